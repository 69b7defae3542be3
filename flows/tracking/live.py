"""The progress of a flow run in Prefect and in its log, and who ends the run there.

A thread of its own keeps both up to date, so that the computation does not wait for the server.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import StateType
from prefect.exceptions import MissingContextError, ObjectNotFound

from flows.progress.watching import progress_note, repeated
from flows.services.liveness import RunReceipt
from flows.tracking.client import ServerUnreachable, prefect_client, send_page
from ism_dask.observe.progress import TimeLeft

# Seconds between two updates. Each takes about 60 ms of the server, which may share our cores.
_SECONDS = 4.0
# Seconds between two lines on the progress in the log.
_LINE_SECONDS = 60.0
# The states in which a run is to end that somebody has ended in the UI, in words.
_ENDINGS = {
    StateType.CANCELLING: "cancelled",
    StateType.CANCELLED: "cancelled",
    StateType.PAUSED: "suspended",
}
# Seconds that an interrupted run has to save its last iteration and leave its cluster.
_INTERRUPT_SECONDS = 60.0
# Seconds that a run with a result waits for a server that is away, and between two attempts.
_PATIENCE, _RETRY_SECONDS = 180.0, 2.0


class LiveRun:
    """A flow run that is shown in Prefect: a watcher of its progress, as a context manager.

    `key` is the prefix of the keys of its artifacts, and `title` the text until there is progress.
    """

    def __init__(self, receipt: RunReceipt, key: str, title: str) -> None:
        # How somebody has ended the run, such as "cancelled in the Prefect UI". If it is not empty,
        # the main thread has been interrupted.
        self.ended_by, self._next_interrupt = "", 0.0
        self.receipt, self._run, self._key = receipt, UUID(receipt.run), key
        self._share, self._text = 0.0, title
        self._time_left = TimeLeft()
        self._artifact: UUID | None = None
        self._shown: dict[str, Any] = {}
        # That of the flow, also for lines of its tasks; None without a flow.
        self._log = None
        with suppress(MissingContextError):
            self._log = get_run_logger()
        self._next_line = time.monotonic() + _LINE_SECONDS
        self._may_interrupt = threading.current_thread() is threading.main_thread()
        self._updates = ExitStack()

    def __enter__(self) -> LiveRun:
        self._updates.enter_context(repeated(self._update, _SECONDS))
        return self

    def __exit__(self, *_: object) -> None:
        self._updates.close()
        self._may_interrupt = False
        self._time_left = TimeLeft()  # of a run that is over nothing is left
        self._update()

    def tick(self, share: float, text: str) -> None:
        """Record the progress of the run."""
        self._time_left.tick(share)
        self._share, self._text = share, text

    def noted(self, text: str) -> None:
        """Write the text to the log of the run."""
        self.logged(text)

    def logged(self, text: str) -> None:
        """Write a line to the log of the run, which Prefect sends to its server."""
        if self._log is not None:
            self._log.info(text)

    def send_page(self) -> None:
        """Send the page in the receipt; wait for a server that is away, but not for ever."""
        for attempt in range(1 + int(_PATIENCE / _RETRY_SECONDS)):
            try:
                # The server refuses pages of a run that somebody has deleted.
                with suppress(httpx.HTTPStatusError), prefect_client() as client:
                    self.receipt = send_page(self.receipt, client)
            except ServerUnreachable as away:
                wait = f"waiting for it, up to {_PATIENCE:.0f} s. What was computed is saved"
                if attempt == 0:
                    progress_note(f"{away}: {wait}")
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _update(self) -> None:
        """Show the progress of the run, and interrupt it if somebody has ended it."""
        self.receipt.touch()
        text = self._time_left.after(self._text)
        if time.monotonic() > self._next_line:
            self._next_line += _LINE_SECONDS
            self.logged(f"progress: {self._share:.0%}, {text}")
        # The server refuses updates of a run that somebody has deleted.
        with suppress(ServerUnreachable, httpx.HTTPStatusError), prefect_client() as client:
            self._interrupt_if_ended(client)
            shown: dict[str, Any] = {"data": 100.0 * self._share, "description": text}
            if self._artifact is None:
                key = f"{self._key}-progress"
                made = ArtifactCreate(key=key, type="progress", flow_run_id=self._run, **shown)
                self._artifact = client.create_artifact(made).id
            elif shown != self._shown:
                client.update_artifact(self._artifact, ArtifactUpdate(**shown))
            self._shown = shown

    def _interrupt_if_ended(self, client: SyncPrefectClient) -> None:
        """Interrupt the main thread if the run was cancelled, suspended or deleted.

        If the run goes on all the same, it is interrupted again: a library may have caught it.
        """
        if not self._may_interrupt or time.monotonic() < self._next_interrupt:
            return
        try:
            state = client.read_flow_run(self._run).state
            how = _ENDINGS.get(state.type, "") if state else ""
        except ObjectNotFound:
            how = "deleted"
        if how:
            self.ended_by = f"{how} in the Prefect UI"
            self._next_interrupt = time.monotonic() + _INTERRUPT_SECONDS
            # To the thread itself: nothing less interrupts a thread that waits for a lock.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
