"""Who follows a run under Prefect: shows how far it is, and hears when it is to be cancelled.

All of it from a thread of its own: what is computed does not wait for the server.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import MissingContextError

from flows.interface.interrupts import interrupt
from flows.interface.progress import TimeLeft
from flows.tracking.client import ServerUnreachable, prefect_client

# A look takes some 30 ms of a server that may share the cores: every third second is enough ...
_SECONDS = 3.0
# ... and where it is away, it is not asked again that soon.
_AWAY_SECONDS = 5.0


class LiveRun:
    """A watcher that keeps a progress artifact of a flow run up to date, in a block.

    Parameters
    ----------
    run : UUID
    key : str
        Of the artifacts.
    title : str
        What the artifact says before there is anything to say.
    tags : set of str
        What to tag the run with.
    beat : callable
        Called as long as the run goes on, every few seconds.

    Attributes
    ----------
    cancelled : bool
        Whether the run was to be cancelled: the main thread is interrupted then.
    dashboard : str
        The page of the Dask cluster that computes, if one does.
    """

    def __init__(
        self, run: UUID, key: str, title: str, tags: set[str], beat: Callable[[], None]
    ) -> None:
        self.cancelled = False
        self._run, self._key, self._tags, self._beat = run, key, tags, beat
        self._share, self._text = 0.0, title
        self._left = TimeLeft()
        self.dashboard, self._linked = "", False
        self._artifact: UUID | None = None
        self._shown: tuple[float, str] | None = None
        self._ended = threading.Event()
        self._interrupts = threading.current_thread() is threading.main_thread()
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
        """Take note of how far the run is."""
        self._left.tick(share)
        self._share, self._text = share, text
        self.dashboard = self.dashboard or _dashboard()

    def linked(self, url: str) -> None:
        """Do nothing: whoever reads the artifact is there."""

    def noted(self, text: str) -> None:
        """Let the log of the run have it."""
        with suppress(MissingContextError):  # a thread of its own
            get_run_logger().warning(text)

    def _follow(self) -> None:
        while True:
            with suppress(ServerUnreachable):
                self._follow_with_one_client()
                return
            self._beat()
            if self._ended.wait(_AWAY_SECONDS):
                return

    def _follow_with_one_client(self) -> None:
        # A client of its own for each look would ask for more than the look does.
        with prefect_client() as client:
            self._tag(client)
            self._look(client)
            while not self._ended.wait(_SECONDS):
                self._look(client)
            self._show(client, self._text)

    def _look(self, client: SyncPrefectClient) -> None:
        """Show how far the run is, and ask after it."""
        self._beat()
        self._show(client, self._left.after(self._text))
        self._show_dashboard(client)
        self._obey(client)

    def _tag(self, client: SyncPrefectClient) -> None:
        # Here, and not by whoever starts the flow: that may be a schedule, or the form of the UI.
        # Nor by Prefect's `tags`: tasks would have them too, and ask for a limit of each, for two
        # seconds.
        client.update_flow_run(self._run, tags=self._tags)

    def _show(self, client: SyncPrefectClient, text: str) -> None:
        if (self._share, text) == self._shown:
            return
        progress = 100.0 * self._share
        if self._artifact is None:
            self._artifact = self._create(client, "progress", progress, text)
        else:
            client.update_artifact(self._artifact, ArtifactUpdate(data=progress, description=text))
        self._shown = (self._share, text)

    def _show_dashboard(self, client: SyncPrefectClient) -> None:
        if self.dashboard and not self._linked:
            link = f"[{self.dashboard}]({self.dashboard})"
            self._create(client, "markdown", link, "The Dask cluster at work", "dashboard")
            self._linked = True

    def _create(
        self, client: SyncPrefectClient, kind: str, data: Any, text: str, name: str = "progress"
    ) -> UUID:
        artifact = ArtifactCreate(
            key=f"{self._key}-{name}",
            type=kind,
            data=data,
            description=text,
            flow_run_id=self._run,
        )
        return client.create_artifact(artifact).id

    def _obey(self, client: SyncPrefectClient) -> None:
        """Interrupt the main thread once if the run is to be cancelled."""
        if self.cancelled or not self._interrupts:
            return
        state = client.read_flow_run(self._run).state
        self.cancelled = state is not None and (state.is_cancelling() or state.is_cancelled())
        if self.cancelled:
            interrupt()


def _dashboard() -> str:
    """Return the page of the Dask cluster that this thread computes on, if it does."""
    client = sys.modules.get("distributed.client")
    if client is not None:
        with suppress(ValueError):
            return str(client.default_client().dashboard_link)
    return ""
