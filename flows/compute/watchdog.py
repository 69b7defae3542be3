"""Whether a cluster gets anything done: what hangs would be waited for without end."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.compute.losing import ClusterLost, no_workers, pulse_of
from flows.compute.place import Reached
from flows.compute.pulse import Pulse, state_of_scheduler, state_of_worker
from flows.progress import duration
from flows.services.records import PRIVATE
from storage.atomic import replace_synced

if TYPE_CHECKING:
    from flows.compute.client import EndableClient

# Seconds between two looks at most, and looks at least before a cluster counts as stalled.
_LOOKS_EVERY, _LOOKS = 5.0, 5
# Seconds without any worker, at least, after which a cluster counts as lost.
_UNMANNED = 30.0
# Seconds that scheduler and workers may take to tell their state.
_TOLD_WITHIN = 15.0


class Watchdog:
    """Looks at a cluster again and again, and ends the waits for one that is lost.

    Parameters
    ----------
    client : EndableClient
    reached : Reached
    stall : float
        Seconds without a task that is done.
    folder : Path
        Where the state of a stalled cluster is kept.
    """

    def __init__(self, client: EndableClient, reached: Reached, stall: float, folder: Path) -> None:
        self._client, self._reached, self._stall, self._folder = client, reached, stall, folder
        self._every = min(_LOOKS_EVERY, stall / _LOOKS)
        self._done = -1
        self._moved = self._manned = time.monotonic()

    def watch(self, ended: threading.Event) -> None:
        """Look until the work has ended, or the cluster is lost."""
        while not ended.wait(self._every):
            lost = self._look(pulse_of(self._client))
            if lost is not None and not ended.is_set():
                self._client.end_waits(lost)
                return

    def _look(self, found: Pulse | None) -> ClusterLost | None:
        """Take note of how the cluster is; return what there is to say if it is lost."""
        now = time.monotonic()
        idle = not self._client.awaited
        if idle or (found is not None and found.done != self._done):
            self._moved = now
        if idle or found is None or found.workers:
            self._manned = now
        if found is not None:
            self._done = found.done
        if now - self._manned > max(_UNMANNED, self._reached.wait):
            return no_workers(self._reached)
        return self._stalled() if now - self._moved > self._stall else None

    def _stalled(self) -> ClusterLost:
        what = (
            f"no task was done for {duration(self._stall)} on the Dask cluster at "
            f"{self._reached.address}"
        )
        return ClusterLost(
            f"{what} ({self._dumped()})",
            "see the logs of its scheduler and workers, or give it more time with --stall",
        )

    def _dumped(self) -> str:
        """Keep the state of the cluster, and say where."""
        moment = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        path = self._folder / f"cluster-{moment}.json"
        try:
            self._folder.mkdir(exist_ok=True, mode=PRIVATE)
            replace_synced(path, json.dumps(state_of(self._client), default=str))
        # A stall is to be told whatever becomes of what is told of it.
        except Exception as error:
            return f"its state could not be kept: {type(error).__name__} {error}"
        return f"its state is in {path}"


@contextmanager
def watched(client: EndableClient, reached: Reached, stall: float, folder: Path) -> Iterator[None]:
    """Raise ClusterLost in the block where it waits for a cluster that hangs."""
    ended = threading.Event()
    dog = Watchdog(client, reached, stall, folder)
    thread = threading.Thread(target=dog.watch, args=(ended,), name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Not waited for: a look at a cluster that hangs takes its time.
        ended.set()


def state_of(client: EndableClient) -> dict[str, Any]:
    """Return what scheduler and workers tell of themselves, as far as they answer."""

    async def told(call: Any) -> Any:
        try:
            return await asyncio.wait_for(call, _TOLD_WITHIN)
        except Exception as error:
            return f"no answer: {type(error).__name__} {error}"

    async def all_told() -> dict[str, Any]:
        scheduler = await told(client._run_on_scheduler(state_of_scheduler))
        addresses = list(scheduler["workers"]) if isinstance(scheduler, dict) else []
        calls = [told(client._run(state_of_worker, workers=[each])) for each in addresses]
        workers = dict(zip(addresses, await asyncio.gather(*calls), strict=True))
        return {"scheduler": scheduler, "workers": workers}

    found: dict[str, Any] = client.ask(all_told, within=4 * _TOLD_WITHIN)
    return found
