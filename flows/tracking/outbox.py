"""Deliver receipts: tell the Prefect server what it has missed of flow runs that have ended.

If the process of a run has died without reporting its end, the crash is reported. A state that the
server has been sent already stays.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from time import time
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from flows.services.liveness import RunReceipt, receipts_to_send
from flows.tracking.client import ServerUnreachable, prefect_client, server_address

# In this time after the end of the process, a worker that cancels a run reports that itself.
_WORKER_SECONDS = 60.0
# A run in such a state is to begin again: its last attempt has nothing more to say.
_TO_BEGIN = (StateType.SCHEDULED, StateType.PENDING, StateType.PAUSED)


def send_receipts() -> None:
    """Send the server in use what it has missed of the runs of this home."""
    for receipt in receipts_to_send(server_address()):
        with suppress(ServerUnreachable):
            deliver(receipt)


def deliver(receipt: RunReceipt) -> None:
    """Send the server what it does not know of a run that has ended, and remove the receipt.

    If a worker cancels the run, it reports so some seconds after the process has ended. Were the
    run Cancelled before, a user could retry it at once, and the report of the worker would cancel
    the new attempt. The receipt therefore waits for the worker.
    """
    with prefect_client() as client, suppress(ObjectNotFound):  # somebody has deleted the run
        run = client.read_flow_run(UUID(receipt.run))
        state = run.state
        is_cancelling = state is not None and state.is_cancelling()
        if is_cancelling and receipt.by_worker and time() - receipt.renewed < _WORKER_SECONDS:
            return
        # If it was begun again since, or is to be, its state is that of another attempt.
        is_past = 0 < receipt.attempt < run.run_count or run.state_type in _TO_BEGIN
        if not is_past:
            ending = _ending(receipt, is_cancelling=is_cancelling)
            receipt = send_pages(receipt, client)
            if state is None or not state.is_final():
                client.set_flow_run_state(run.id, ending, force=True)
            _end_tasks(client, run.id, ending.type)
    receipt.remove()


def send_pages(receipt: RunReceipt, client: SyncPrefectClient) -> RunReceipt:
    """Send the server the artifacts that it does not have; return the receipt without them."""
    if not receipt.pages:
        return receipt
    for page in receipt.pages:
        client.create_artifact(ArtifactCreate(flow_run_id=UUID(receipt.run), **asdict(page)))
    sent = replace(receipt, pages=())
    sent.write()
    return sent


def _ending(receipt: RunReceipt, *, is_cancelling: bool) -> State[Any]:
    """Return the final state of a run, whose process may have died before it could record it."""
    if receipt.ended:
        kind, name = StateType[receipt.ended], receipt.name or None
        return State(type=kind, name=name, message=receipt.message)
    if is_cancelling:
        return Cancelled(message="It was to be cancelled, and its process ended.")
    return Crashed(message=f"Its process {receipt.pid} ended without a word.")


def _end_tasks(client: SyncPrefectClient, run: UUID, ended: StateType) -> None:
    """Set the final state of the tasks of a run that the server takes for unfinished."""
    only = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
    for task in client.read_task_runs(flow_run_filter=only):
        if task.state is not None and not task.state.is_final():
            client.set_task_run_state(task.id, State(type=ended), force=True)


if __name__ == "__main__":
    send_receipts()
