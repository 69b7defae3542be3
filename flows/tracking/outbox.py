"""What this machine knows of a flow run, kept until the Prefect server knows it too.

A run leaves a slip when it begins. Who finds a slip whose run is over delivers what the server
has missed; who finds one whose process has died without a word tells the server so.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound

from flows.services.records import PRIVATE, is_alive, process_start
from flows.tracking.client import ServerUnreachable, prefect_client, server_address
from storage import DamagedStore, home
from storage.atomic import explain_os_errors, replace_synced
from storage.records import check_field_types, read_sealed, to_sealed_json

# Seconds after which a run of another machine that has not been heard of is over.
_OVER_AFTER = 120.0


@dataclass(frozen=True)
class ArtifactPage:
    """What the UI shows of a run that is over, an artifact of Prefect.

    Attributes
    ----------
    key : str
    type : str
        markdown or table.
    data : str
        Markdown, or rows in JSON.
    description : str
    """

    key: str
    type: str
    data: str
    description: str = ""


@dataclass(frozen=True)
class RunReceipt:
    """What is known here of a flow run.

    Attributes
    ----------
    run : str
        Its id.
    api : str
        The server that has it.
    host : str
        The machine that it runs on.
    pid : int
    created : float
        When the process began, in seconds since the machine did: another one may have its number
        by now.
    ended : str
        How it ended, a name of Prefect's `StateType`; empty while it goes on.
    message : str
        What is said of the end.
    pages : tuple of Page
        What the server has yet to be given.
    """

    run: str
    api: str
    host: str
    pid: int
    created: float
    ended: str = ""
    message: str = ""
    pages: tuple[ArtifactPage, ...] = ()

    @classmethod
    def of(cls, run: UUID) -> RunReceipt:
        """Return the slip of a run of this process, which begins."""
        own = psutil.Process()
        return cls(str(run), server_address(), platform.node(), own.pid, process_start(own))

    @classmethod
    def read(cls, path: Path) -> RunReceipt:
        """Read a slip."""
        record = read_sealed(path, "what is known of a flow run")
        slip = cls(**{**record, "pages": tuple(ArtifactPage(**page) for page in record["pages"])})
        check_field_types(slip)
        return slip

    def over(self, ended: StateType, message: str, *pages: ArtifactPage) -> RunReceipt:
        """Return the slip of the run when it is over."""
        return replace(self, ended=ended.name, message=message, pages=pages)

    def keep(self) -> None:
        """Write it down."""
        with explain_os_errors(_folder()):
            _folder().mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        replace_synced(self._path, to_sealed_json(asdict(self)))

    def beat(self) -> None:
        """Show other machines that its process lives."""
        with suppress(OSError):
            os.utime(self._path)

    def drop(self) -> None:
        """Forget it: the server knows."""
        with explain_os_errors(self._path):
            self._path.unlink(missing_ok=True)

    def hand_pages(self) -> RunReceipt:
        """Give the server the pages that it has not; return what is left to tell."""
        if not self.pages:
            return self
        with prefect_client() as client:
            for page in self.pages:
                client.create_artifact(ArtifactCreate(flow_run_id=UUID(self.run), **asdict(page)))
        told = replace(self, pages=())
        told.keep()
        return told

    def tell_end(self) -> None:
        """Tell the server how the run ended, whatever it takes it for."""
        with prefect_client() as client:
            _end(client, UUID(self.run), StateType[self.ended], self.message)
        self.drop()

    def settle(self) -> None:
        """See to it that the server knows of a run whose process is gone."""
        if self._alive:
            return
        with prefect_client() as client:
            try:
                run = client.read_flow_run(UUID(self.run))
            except ObjectNotFound:
                self.drop()
                return
        slip = (self if self.ended else self._died(run)).hand_pages()
        if run.state_type is StateType[slip.ended]:
            slip.drop()
        else:
            slip.tell_end()

    def _died(self, run: FlowRun) -> RunReceipt:
        """Return how a run ended that could not say it: as the server has it, if that is an end."""
        if run.state is not None and run.state.is_final():
            return self.over(run.state.type, "")
        if run.state is not None and run.state.is_cancelling():
            return self.over(StateType.CANCELLED, "It was to be cancelled, and its process ended.")
        return self.over(StateType.CRASHED, f"Its process {self.pid} ended without a word.")

    @property
    def _alive(self) -> bool:
        if self.host == platform.node():
            return is_alive(self.pid, self.created) is not None
        with suppress(OSError):
            return time.time() - self._path.stat().st_mtime < _OVER_AFTER
        return True  # whoever has removed it knows

    @property
    def _path(self) -> Path:
        return _folder() / f"{self.run}.json"


def send_receipts() -> None:
    """Tell the server in use what it has missed of the runs of this home."""
    for slip in _receipts():
        if slip.api == server_address():
            with suppress(ServerUnreachable):
                slip.settle()


def _end(client: SyncPrefectClient, run: UUID, ended: StateType, message: str) -> None:
    client.set_flow_run_state(run, State(type=ended, message=message), force=True)
    only = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
    for task in client.read_task_runs(flow_run_filter=only):
        if task.state is not None and not task.state.is_final():
            client.set_task_run_state(task.id, State(type=ended), force=True)


def _receipts() -> Iterator[RunReceipt]:
    for path in sorted(_folder().glob("*.json")):
        # One that cannot be read was not written by us, or is gone by now.
        with suppress(OSError, DamagedStore, ValueError, TypeError, KeyError):
            yield RunReceipt.read(path)


def _folder() -> Path:
    return home() / "flow-runs"
