"""Short talks with the Prefect server: they tell at once whether it is away."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import SettingsContext, get_settings_context
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    Settings,
)

from flows.errors import FlowError
from flows.services.prefect import not_admitted, without_password

# A page with pictures takes a server with much to do some seconds.
_SECONDS = 20.0
# What was made of settings, by their id: they live on with it.
_CHANGED: dict[tuple[int, str], tuple[Settings, Settings]] = {}


class ServerUnreachable(FlowError):  # noqa: N818 - nothing of ours went wrong
    """The Prefect server does not answer."""


@contextmanager
def prefect_client() -> Iterator[SyncPrefectClient]:
    """Yield a client of the server in use; whatever shows that it is away is a ServerAway.

    Prefect's own would wait a minute for it: what is computed waits for nobody.
    """
    try:
        with (
            _set(PREFECT_CLIENT_MAX_RETRIES, 0),
            get_client(httpx_settings=_connection(), sync_client=True) as client,
        ):
            yield client
    except httpx.TransportError as error:
        raise ServerUnreachable(
            f"the Prefect server at {server_address()} does not answer"
        ) from error
    except httpx.HTTPStatusError as error:
        if error.response.status_code == HTTPStatus.UNAUTHORIZED:
            given = bool(PREFECT_API_AUTH_STRING.value())
            raise FlowError(not_admitted(server_address(), given=given)) from error
        if not error.response.is_server_error:
            raise
        said = without_password(str(error))
        raise ServerUnreachable(
            f"the Prefect server at {server_address()} has trouble: {said}"
        ) from error


@contextmanager
def without_heartbeats() -> Iterator[None]:
    """Let flows of the block end at once: Prefect looks once a second whether to stop beating."""
    with _set(PREFECT_FLOWS_HEARTBEAT_FREQUENCY, None):
        yield


def check_admitted() -> None:
    """Raise FlowError where the server in use wants another password than Prefect has."""
    with prefect_client() as client:
        client.hello()


def server_address() -> str:
    """Return where the server in use answers; nothing where Prefect has one inside."""
    return without_password(PREFECT_API_URL.value() or "")


def _connection() -> dict[str, Any]:
    """Return settings of httpx."""
    if not server_address().startswith("http://"):
        return {"timeout": _SECONDS}
    # Where no certificate is shown, none need be read to check it by: 0.04 s.
    return {"timeout": _SECONDS, "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}


@contextmanager
def _set(setting: Any, value: int | None) -> Iterator[None]:
    """Change a setting in the block.

    For each change Prefect reads all of its environment again, which takes 0.1 s.
    """
    context = get_settings_context()
    key = id(context.settings), setting.name
    if key not in _CHANGED:
        changed = context.settings.copy_with_update({setting: value})
        _CHANGED[key] = context.settings, changed
    with SettingsContext(profile=context.profile, settings=_CHANGED[key][1]):
        yield
