"""The progress of a flow run in Prefect, and who ends the run there.

A thread of its own keeps it up to date, so that the computation does not wait for the server.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.logging.loggers import flow_run_logger

from flows.progress.watching import repeated
from flows.services.liveness import RunReceipt
from flows.tracking.client import ServerUnreachable, prefect_client
from ism_dask.observe.progress import TimeLeft

# Seconds between two updates. Each takes about 60 ms of the server, which may share our cores.
_SECONDS = 4.0
# The states in which a run is to end that somebody has ended in the UI, in words.
_ENDINGS = {
    StateType.CANCELLING: "cancelled",
    StateType.CANCELLED: "cancelled",
    StateType.PAUSED: "suspended",
}
# Seconds that an interrupted run has to save its last iteration and leave its cluster.
_INTERRUPT_SECONDS = 60.0


class LiveRun:
    """A flow run that is shown in Prefect: a watcher of its progress.

    `key` is the prefix of the keys of its artifacts, and `title` the text until there is progress.
    """

    def __init__(self, run: FlowRun, receipt: RunReceipt, key: str, title: str) -> None:
        self.receipt, self._run, self._key = receipt, run, key
        # How somebody has ended the run, such as "cancelled in the Prefect UI". If it is not empty,
        # the main thread has been interrupted.
        self.ended_by = ""
        # When it may be interrupted: only what computes in the main thread can be.
        is_main = threading.current_thread() is threading.main_thread()
        self._next_interrupt = 0.0 if is_main else inf
        self._share, self._text, self._time_left = 0.0, title, TimeLeft()
        self._artifact: UUID | None = None
        # That of the flow, also for lines of its tasks.
        self._log = flow_run_logger(run)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress of the run during the block, and once more when it is over."""
        try:
            with repeated(self._update, _SECONDS):
                yield
        finally:
            self._next_interrupt, self._time_left = inf, TimeLeft()  # nothing is left
            self._update()

    def tick(self, share: float, text: str) -> None:
        """Record the progress of the run."""
        self._time_left.tick(share)
        self._share, self._text = share, text

    def logged(self, text: str) -> None:
        """Write a line to the log of the run, which Prefect sends to its server."""
        self._log.info(text)

    noted = logged

    def _update(self) -> None:
        """Show the progress of the run, and interrupt it if somebody has ended it."""
        self.receipt.touch()
        text = self._time_left.after(self._text)
        # The server refuses updates of a run that somebody has deleted.
        with suppress(ServerUnreachable, httpx.HTTPStatusError), prefect_client() as client:
            self._interrupt_if_ended(client)
            shown: dict[str, Any] = {"data": 100.0 * self._share, "description": text}
            if self._artifact is None:
                key = f"{self._key}-progress"
                made = ArtifactCreate(key=key, type="progress", flow_run_id=self._run.id, **shown)
                self._artifact = client.create_artifact(made).id
            else:
                client.update_artifact(self._artifact, ArtifactUpdate(**shown))

    def _interrupt_if_ended(self, client: SyncPrefectClient) -> None:
        """Interrupt the main thread if the run was cancelled, suspended or deleted.

        If the run goes on all the same, it is interrupted again: a library may have caught it.
        """
        if time.monotonic() < self._next_interrupt:
            return
        try:
            state = client.read_flow_run(self._run.id).state
            how = _ENDINGS.get(state.type, "") if state else ""
        except ObjectNotFound:
            how = "deleted"
        if how:
            self.ended_by = f"{how} in the Prefect UI"
            self._next_interrupt = time.monotonic() + _INTERRUPT_SECONDS
            # To the thread itself: nothing less interrupts a thread that waits for a lock. The & of
            # a script starts it with SIGINT ignored.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
