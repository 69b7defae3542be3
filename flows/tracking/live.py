"""The thread that shows the progress of a flow run in Prefect, logs it, and obeys cancellation.

It is a thread of its own so that the computation does not wait for the server.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from contextvars import copy_context
from math import inf
from typing import Any
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import StateType
from prefect.exceptions import MissingContextError, ObjectNotFound

from flows.progress.watching import progress_note
from flows.services.liveness import RunReceipt
from flows.tracking.client import ServerUnreachable, prefect_client, send_page
from ism_dask.observe.progress import TimeLeft

# Seconds between two updates. Each takes about 30 ms of the server, which may share our cores.
_SECONDS = 3.0
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
# Seconds until the next attempt if the server is away.
_RETRY_SECONDS = 5.0
# Seconds that a run that has ended waits for a server that is away, with something to show, and
# else; and seconds between two attempts then.
_PATIENCE, _LAST_SECONDS, _LAST_RETRY_SECONDS = 180.0, 3.0, 1.0


class LiveRun:
    """A flow run that a thread shows in Prefect: a watcher of its progress, as a context manager.

    `key` is the prefix of the keys of its artifacts, and `title` the text until there is progress.
    """

    def __init__(self, receipt: RunReceipt, key: str, title: str) -> None:
        # How somebody has ended the run, such as "cancelled in the Prefect UI". If it is not empty,
        # the main thread has been interrupted.
        self.ended_by, self._next_interrupt = "", 0.0
        self.receipt, self._run, self._key = receipt, UUID(receipt.run), key
        # Name and tags that the server is to have.
        self._description: dict[str, Any] | None = None
        self._share, self._text = 0.0, title
        self._time_left = TimeLeft()
        self._artifact: UUID | None = None
        self._last_shown: tuple[float, str] | None = None
        # That of the flow, also for lines of its tasks; None without a flow.
        self._log = None
        with suppress(MissingContextError):
            self._log = get_run_logger()
        self._next_line = time.monotonic() + _LINE_SECONDS
        self._ended = threading.Event()
        self._may_interrupt = threading.current_thread() is threading.main_thread()
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._follow,), name="follower", daemon=True
        )

    def __enter__(self) -> LiveRun:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

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

    def _follow(self) -> None:
        """Keep the server up to date until the end, or until one that is away is given up."""
        until = inf
        while time.monotonic() < until:
            away = ""
            try:
                self._follow_with_one_client()
            except ServerUnreachable as error:
                away = str(error)
            except (ObjectNotFound, httpx.HTTPStatusError):
                pass  # the server refuses updates of a run that somebody has deleted
            else:
                return
            self.receipt.touch()
            if self._ended.wait(_RETRY_SECONDS):
                if until == inf:
                    until = time.monotonic() + self._patience(away)
                time.sleep(_LAST_RETRY_SECONDS)

    def _follow_with_one_client(self) -> None:
        # Making a new client for each update would cost the server more than the update itself.
        with prefect_client() as client:
            self._update(client)
            while not self._ended.wait(_SECONDS):
                self._update(client)
            self._update(client)
            self.receipt = send_page(self.receipt, client)

    def _patience(self, away: str) -> float:
        """Return for how long a run that has ended waits; tell people if the server is away."""
        if not (away and self.receipt.page):
            return _LAST_SECONDS
        progress_note(
            f"{away}: waiting for it, up to {_PATIENCE:.0f} s. What was computed is saved"
        )
        return _PATIENCE

    def _update(self, client: SyncPrefectClient) -> None:
        """Show the progress of the run, and interrupt it if somebody has ended it."""
        self.receipt.touch()
        text = self._text
        if not self._ended.is_set():  # of a run that is over nothing is left
            self._interrupt_if_ended(client)
            text = self._time_left.after(text)
        self._show_description(client)
        self._show_progress(client, text)
        if time.monotonic() > self._next_line:
            self._next_line += _LINE_SECONDS
            self.logged(f"progress: {self._share:.0%}, {text}")

    def _show_description(self, client: SyncPrefectClient) -> None:
        # The tags are set here and not at the start of the flow, because a schedule or the form in
        # the UI may start it. They are not set by Prefect's `tags`, because tasks would get them
        # too, and look up a concurrency limit for each, which takes two seconds.
        description = self._description
        if description is not None:
            client.update_flow_run(self._run, **description)
            if self._description is description:
                self._description = None

    def _show_progress(self, client: SyncPrefectClient, text: str) -> None:
        if (self._share, text) == self._last_shown:
            return
        progress = 100.0 * self._share
        if self._artifact is None:
            key = f"{self._key}-progress"
            made = ArtifactCreate(
                key=key, type="progress", data=progress, description=text, flow_run_id=self._run
            )
            self._artifact = client.create_artifact(made).id
        else:
            client.update_artifact(self._artifact, ArtifactUpdate(data=progress, description=text))
        self._last_shown = (self._share, text)

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
