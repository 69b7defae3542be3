"""Short calls to the Prefect server, which fail at once if it is away, and receipts for it.

Run as a program, it sends the server what it has missed of flow runs that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from time import time
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State, StateType
from prefect.context import SettingsContext, get_settings_context
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.states import Crashed

from flows.errors import FlowError
from flows.services.liveness import RunReceipt, receipts_to_send
from flows.tracking.server import without_password

# How often a call waits for a server that is busy: a database of SQLite is locked for a moment
# while another run writes.
BUSY_RETRIES = 3
# A busy server takes some seconds for an artifact with pictures.
_TIMEOUT_SECONDS = 20.0
# In this time after the end of the process, a worker that cancels a run reports that itself.
_WORKER_SECONDS = 60.0
# The states of a run whose attempt has not ended for the server.
_UNFINISHED = (StateType.RUNNING, StateType.CANCELLING)


class ServerUnreachable(FlowError):  # noqa: N818 - nothing of ours went wrong
    """The Prefect server does not answer."""


@contextmanager
def prefect_client(retries: int = 0) -> Iterator[SyncPrefectClient]:
    """Yield a client of the server in use; raise ServerUnreachable if the server is away.

    By default Prefect's client would wait a minute for it, but a computation must not wait for the
    server. `retries` is for calls outside of one, to a server that may be busy: BUSY_RETRIES.
    """
    settings: dict[str, Any] = {"timeout": _TIMEOUT_SECONDS}
    if server_address().startswith("http://"):
        settings["verify"] = False  # so that no certificates are loaded, which saves 0.04 s
    try:
        with (
            temporary_settings("client", max_retries=retries),
            get_client(httpx_settings=settings, sync_client=True) as client,
        ):
            yield client
    except httpx.TransportError as error:
        raise ServerUnreachable(
            f"the Prefect server at {server_address()} does not answer"
        ) from error
    except httpx.HTTPStatusError as error:
        if error.response.status_code == HTTPStatus.UNAUTHORIZED:
            raise FlowError(
                f"the Prefect server at {server_address()} does not take the "
                "PREFECT_API_AUTH_STRING that is set, or wants one; set it to the "
                "PREFECT_SERVER_API_AUTH_STRING of the server, NAME:PASSWORD"
            ) from error
        if not error.response.is_server_error:
            raise
        message = without_password(str(error))
        raise ServerUnreachable(
            f"the Prefect server at {server_address()} has trouble: {message}"
        ) from error


def server_address() -> str:
    """Return the address of the API in use, or an empty text for Prefect's ephemeral server."""
    return without_password(PREFECT_API_URL.value() or "")


@contextmanager
def temporary_settings(part: str, **values: Any) -> Iterator[None]:
    """Change Prefect's settings of one part, such as "client", in the block.

    Prefect's own function reads its whole environment again for that, which takes 0.1 s.
    """
    context = get_settings_context()
    changed = {part: getattr(context.settings, part).model_copy(update=values)}
    settings = context.settings.model_copy(update=changed)
    with SettingsContext(profile=context.profile, settings=settings):
        yield


def send_receipts() -> None:
    """Send the server in use what it has missed of the runs of this home."""
    for receipt in receipts_to_send(server_address()):
        with suppress(ServerUnreachable):
            deliver(receipt)


def deliver(receipt: RunReceipt) -> None:
    """Send the server what it does not know of a run that has ended, and remove the receipt.

    If the process of the run has died without reporting its end, the crash is reported. A state
    that the server has been sent already stays.
    """
    only = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(receipt.run)]))
    with prefect_client() as client, suppress(ObjectNotFound):  # somebody has deleted the run
        run = client.read_flow_run(UUID(receipt.run))
        known = run.state.type if run.state else StateType.RUNNING
        # If a worker cancels the run, it reports so some seconds after the process has ended. Were
        # the run Cancelled before, a user could retry it at once, and the report of the worker
        # would cancel the new attempt. The receipt therefore waits for the worker.
        is_worker_near = receipt.by_worker and time() - receipt.renewed < _WORKER_SECONDS
        if known == StateType.CANCELLING and is_worker_near:
            return
        # If it was begun again since, its state and its tasks are those of another attempt.
        if run.run_count <= receipt.attempt:
            ending: State[Any] = Crashed(message=f"Its process {receipt.pid} ended without a word.")
            if receipt.state:
                ending = State(**receipt.state)
            send_page(receipt, client)
            # One that is to begin again, such as a suspended one, does not end.
            if known in _UNFINISHED:
                client.set_flow_run_state(run.id, ending, force=True)
            # None of its tasks is left running.
            for task in client.read_task_runs(flow_run_filter=only):
                if task.state is not None and not task.state.is_final():
                    client.set_task_run_state(task.id, State(type=ending.type), force=True)
    receipt.remove()


def send_page(receipt: RunReceipt, client: SyncPrefectClient) -> None:
    """Send the server the page in a receipt, if there is one."""
    if receipt.page:
        page: dict[str, Any] = {"flow_run_id": UUID(receipt.run), **receipt.page}
        client.create_artifact(ArtifactCreate(type="markdown", **page))


if __name__ == "__main__":
    send_receipts()
