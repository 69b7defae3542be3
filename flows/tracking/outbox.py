"""Receipts of flow runs: files on this machine with what the Prefect server does not know yet.

A run writes a receipt when it starts. `ism-dask up`, or else the next command, finds the receipt of
a run that has ended, and sends the server what it has missed. If the process of the run has died
without reporting its end, the crash is reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from flows.services.lost_runs import RECEIPT, receipts_folder
from flows.services.records import PRIVATE, ProcessIdentity
from flows.tracking.client import ServerUnreachable, prefect_client, server_address
from storage import DamagedStore
from storage.atomic import explain_os_errors, replace_synced
from storage.records import read_sealed, restored, to_sealed_json

# A run of another machine counts as dead after this many seconds without a sign of life.
_DEAD_AFTER_SECONDS = 120.0
# In this time after the end of the process, a worker that cancels a run reports that itself.
_WORKER_SECONDS = 60.0


@dataclass(frozen=True)
class ArtifactPage:
    """A Prefect artifact that the UI shows of a finished run.

    Attributes
    ----------
    key : str
        Key of the artifact.
    type : str
        Its type, markdown or table.
    data : str
        Its content: markdown, or rows in JSON.
    description : str
        Its description.
    """

    key: str
    type: str
    data: str
    description: str = ""


@dataclass(frozen=True)
class RunReceipt:
    """The receipt of a flow run on this machine.

    Attributes
    ----------
    run : str
        Id of the flow run.
    api : str
        Address of the API of its server.
    host : str
        Name of the machine that it runs on.
    pid : int
        Process that it runs in.
    created : float
        Start of the process, in seconds since the boot. It tells the process from a later one
        with the same pid.
    ended : str
        The type of its final state, a name of Prefect's `StateType`; empty while it runs.
    name, message : str
        Name of its final state, empty for that of its type, and message.
    pages : tuple of ArtifactPage
        Artifacts that the server does not have yet.
    attempt : int
        Which attempt at the run it is of, from 1; 0 if the server did not say.
    """

    run: str
    api: str
    host: str
    pid: int
    created: float
    ended: str = ""
    name: str = ""
    message: str = ""
    pages: tuple[ArtifactPage, ...] = ()
    attempt: int = 0

    @classmethod
    def for_this_process(cls, run: UUID, attempt: int) -> RunReceipt:
        """Return the receipt of the attempt at a run that starts in this process."""
        own = ProcessIdentity.of_this_process()
        return cls(str(run), server_address(), own.host, own.pid, own.created, attempt=attempt)

    @classmethod
    def read(cls, path: Path) -> RunReceipt:
        """Read a receipt from its file."""
        receipt: RunReceipt = restored(cls, read_sealed(path, RECEIPT))
        return receipt

    def with_end(self, state: State[Any], *pages: ArtifactPage) -> RunReceipt:
        """Return the receipt of the run with its final state and its artifacts."""
        return replace(
            self,
            ended=state.type.name,
            name=state.name or "",
            message=state.message or "",
            pages=pages,
        )

    def save(self) -> None:
        """Write the receipt to its file."""
        with explain_os_errors(receipts_folder()):
            receipts_folder().mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        replace_synced(self._path, to_sealed_json(asdict(self)))

    def touch(self) -> None:
        """Touch the file, which shows other machines that the process lives."""
        with suppress(OSError):
            os.utime(self._path)

    def remove(self) -> None:
        """Remove the file, because the server knows everything."""
        with explain_os_errors(self._path):
            self._path.unlink(missing_ok=True)

    def send_pages(self) -> RunReceipt:
        """Send the server the artifacts that it does not have; return the receipt without them."""
        if not self.pages:
            return self
        with prefect_client() as client:
            for page in self.pages:
                client.create_artifact(ArtifactCreate(flow_run_id=UUID(self.run), **asdict(page)))
        receipt = replace(self, pages=())
        receipt.save()
        return receipt

    def send_end(self) -> None:
        """Set the final state of the run on the server, unless it has a final state there."""
        state: State[Any] = State(
            type=StateType[self.ended], name=self.name or None, message=self.message
        )
        with suppress(ObjectNotFound), prefect_client() as client:
            reported = client.read_flow_run(UUID(self.run)).state
            if reported is None or not reported.is_final():
                client.set_flow_run_state(UUID(self.run), state, force=True)
            _end_tasks(client, UUID(self.run), state.type)
        self.remove()

    def send_if_ended(self) -> None:
        """Report the run to the server if its process has ended, and remove the receipt."""
        if self._is_alive:
            return
        with prefect_client() as client:
            try:
                run = client.read_flow_run(UUID(self.run))
            except ObjectNotFound:
                self.remove()
                return
        if self._is_past(run):
            self.remove()
            return
        cancelling = run.state is not None and run.state.is_cancelling()
        if cancelling and self._age < _WORKER_SECONDS:
            return
        receipt = self
        if not self.ended and cancelling:
            receipt = self.with_end(
                Cancelled(message="It was to be cancelled, and its process ended.")
            )
        elif not self.ended:
            receipt = self.with_end(
                Crashed(message=f"Its process {self.pid} ended without a word.")
            )
        receipt.send_pages().send_end()

    @property
    def _age(self) -> float:
        """Seconds since the process last wrote or touched the receipt."""
        with suppress(OSError):
            return time.time() - self._path.stat().st_mtime
        return 0.0  # another process has settled the run and removed the file

    def _is_past(self, run: FlowRun) -> bool:
        """Return whether the run was begun again since, or is to be: its state is another's."""
        begun_again = 0 < self.attempt < run.run_count
        to_begin = run.state_type in (StateType.SCHEDULED, StateType.PENDING)
        return begun_again or to_begin

    @property
    def _is_alive(self) -> bool:
        process = ProcessIdentity(self.host, self.pid, self.created)
        if process.is_of_this_machine:
            return process.lives
        return self._age < _DEAD_AFTER_SECONDS

    @property
    def _path(self) -> Path:
        return receipts_folder() / f"{self.run}.json"


def send_receipts() -> None:
    """Send the server in use what it has missed of the runs of this home."""
    for receipt in _read_receipts():
        if receipt.api == server_address():
            with suppress(ServerUnreachable):
                receipt.send_if_ended()


def _end_tasks(client: SyncPrefectClient, run: UUID, ended: StateType) -> None:
    """Set the final state of the tasks of a run that the server takes for unfinished."""
    only = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
    for task in client.read_task_runs(flow_run_filter=only):
        if task.state is not None and not task.state.is_final():
            client.set_task_run_state(task.id, State(type=ended), force=True)


def _read_receipts() -> Iterator[RunReceipt]:
    for path in sorted(receipts_folder().glob("*.json")):
        # A receipt that cannot be read was not written by us, or has been removed meanwhile.
        with suppress(OSError, DamagedStore, ValueError, TypeError, KeyError):
            yield RunReceipt.read(path)


if __name__ == "__main__":
    send_receipts()
