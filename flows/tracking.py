"""What a Prefect run shows of itself: its name, its link, its progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from flows.progress import link, watching

# An update takes 10 to 44 ms: once a second costs a few percent at most.
_SECONDS = 1.0


class ProgressArtifact:
    """A watcher that keeps a progress artifact of the current run up to date."""

    def __init__(self, key: str, title: str) -> None:
        # Typed as perhaps a coroutine, which it is in an asynchronous flow only.
        self._id = cast(UUID, create_progress_artifact(progress=0.0, key=key, description=title))
        self._next = 0.0
        self._lost = False

    def tick(self, share: float, text: str) -> None:
        """Update the artifact, unless that was done just now and the work goes on."""
        if self._lost or (share < 1 and time.monotonic() < self._next):
            return
        try:
            update_progress_artifact(self._id, progress=100.0 * share, description=text)
        except Exception:
            self._lost = True
            get_run_logger().warning("The progress is no longer shown: the API does not answer.")
        self._next = time.monotonic() + _SECONDS

    def linked(self, url: str) -> None:
        """Do nothing: whoever reads the artifact is there."""


@contextmanager
def tracked(kind: str, *subject: str) -> Iterator[str]:
    """Announce the run and show its progress in the block; yield the key for its artifacts."""
    url = current_run()["url"]
    if url is not None:
        link(url)
    key = artifact_key(kind, *subject)
    with watching(ProgressArtifact(f"{key}-progress", f"{kind} {' '.join(subject)}")):
        yield key


def artifact_key(*parts: str) -> str:
    """Return a key of lowercase letters, digits and dashes, as Prefect wants it."""
    text = "-".join(parts).lower()
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)


def rename_run(name: str) -> None:
    """Give the current run a name that only its data could tell."""
    if name != flow_run.name:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(str(flow_run.id)), name=name)


def current_run() -> dict[str, str | None]:
    """Return the id and the page of the current run; a server without pages has none."""
    identity = UUID(str(flow_run.id))
    return {"id": str(identity), "url": url_for("flow-run", obj_id=identity)}
