"""Alerts on refreshes: automations of the Prefect server, which call a webhook or send a mail."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from apprise import Apprise  # which Prefect brings
from prefect.automations import AutomationCore, EventTrigger, Posture
from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
from prefect.events.actions import SendNotification
from pydantic import SecretStr

from flows.errors import SettingsError
from flows.tracking.client import BUSY_RETRIES, prefect_client

# Names of the automations and of the block with the address, as the Prefect UI lists them.
_BAD_END, _MISSED = "ism-dask: a refresh has not published", "ism-dask: a refresh was missed"
_BLOCK = "ism-dask-alert"
_STATES = ("Suspicious", "Failed", "Crashed", "TimedOut")
# A run that is late by more than this was missed: the Prefect worker does not take it up.
_LATE_BY = timedelta(minutes=10)
# Events of refreshes alone, whether a schedule or a person began them; one alert for each run.
_OF_REFRESHES: dict[str, Any] = {
    "match_related": {"prefect.resource.role": "flow", "prefect.resource.name": "refresh"},
    "for_each": {"prefect.resource.id"},
    "threshold": 1,
}
_SUBJECT = "ism-dask: {{ flow_run.name }} is {{ flow_run.state.name }}"
_BODY = "{{ flow_run.state.message or 'It has not begun.' }} {{ flow_run | ui_url }}"


def switch_on(url: str) -> None:
    """Alert `url` of each refresh that fails, is suspicious, or is missed.

    It is a webhook, https://..., which gets a JSON object with `subject`, `text` and both in
    `content`; or a mailbox in the notation of Apprise, mailto://user:password@host?to=...
    """
    kind, _, rest = url.partition("://")
    block: Any
    if not rest:
        raise SettingsError(
            f"`url` is {url!r}; expected a webhook, https://..., or mailto://user:password@host"
        )
    if kind in ("http", "https"):
        words = {"subject": "{{subject}}", "text": "{{subject}}: {{body}}"}
        # Most chats read one of these two keys.
        words["content"] = words["text"]
        given = {"name": _BLOCK, "url": "{{url}}", "json_data": words, "secrets": {"url": url}}
        block = CustomWebhookNotificationBlock.model_validate(given)
    else:
        if Apprise.instantiate(url) is None:
            raise SettingsError(
                "`url` is no address that mail can be sent to; expected one such as "
                "mailto://user:password@host?from=ism@host&to=me@host"
            )
        # The block of Prefect that takes any address of Apprise, mail among them.
        block = SlackWebhook(url=SecretStr(url))
    switch_off()
    action = SendNotification(
        block_document_id=block.save(_BLOCK, overwrite=True), subject=_SUBJECT, body=_BODY
    )
    bad_end = EventTrigger(
        expect={f"prefect.flow-run.{each}" for each in _STATES},
        posture=Posture.Reactive,
        **_OF_REFRESHES,
    )
    missed = EventTrigger(
        after={"prefect.flow-run.Late"},
        expect={"prefect.flow-run.Pending", "prefect.flow-run.Running"},
        posture=Posture.Proactive,
        within=_LATE_BY,
        **_OF_REFRESHES,
    )
    with prefect_client(BUSY_RETRIES) as client:
        for name, trigger in ((_BAD_END, bad_end), (_MISSED, missed)):
            about = f"Alerts {urlsplit(url).hostname}; `ism-dask alert --off` removes it."
            client.create_automation(
                AutomationCore(name=name, description=about, trigger=trigger, actions=[action])
            )


def switch_off() -> None:
    """Remove the alert, if there is one."""
    with prefect_client(BUSY_RETRIES) as client:
        for name in (_BAD_END, _MISSED):
            for each in client.read_automations_by_name(name):
                client.delete_automation(each.id)


def describe_alert() -> str:
    """Return which host is alerted, in words; empty if none is."""
    with prefect_client(BUSY_RETRIES) as client:
        return next((each.description for each in client.read_automations_by_name(_BAD_END)), "")
