"""Run work that has many pieces, such as the files of a table, on the workers of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import cloudpickle

from flows.compute.connection import EndableClient
from flows.compute.session import joined_cluster
from flows.errors import FlowError
from storage.tables.side_by_side import do_held, held_work, map_in_order

Item = TypeVar("Item")
Result = TypeVar("Result")

# Pieces for each thread of the cluster that are computed, or wait for their turn, at one time.
_PIECES_PER_THREAD = 2
# Work of fewer bytes than this travels with each piece.
_SMALL_WORK = 2 * 2**20
# Work may take this share of the memory of a worker: the pieces need some, too.
_MEMORY_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Workers:
    """The workers of a cluster that this process has joined."""

    client: EndableClient
    executor: Executor  # runs work on them

    def map_by_model(
        self, work: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yield `work(item)` for each item in order, with work of any size, such as a model.

        Few results wait here at one time, however slowly they are taken. A piece whose worker dies
        is computed again. Large work is sent to each worker once, and not with each piece. Raise a
        FlowError if the workers have too little memory for it.
        """
        size = len(cloudpickle.dumps(work))
        if size < _SMALL_WORK:
            return map_in_order(self.executor, work, items, self._most_waiting)
        self._check_memory(size)
        # Made by a task, it is made again if the workers that hold it die.
        held = self.client.submit(held_work, work, pure=False)
        self.client.replicate(held)
        pairs = ((held, item) for item in items)
        return map_in_order(self.executor, do_held, pairs, self._most_waiting)

    def _most_waiting(self) -> int:
        """Return how many pieces may be at work; workers may come and go on the way."""
        threads = sum(self.client.nthreads().values())
        return _PIECES_PER_THREAD * max(int(threads), 1)

    def _check_memory(self, size: int) -> None:
        """Raise a FlowError if work of so many bytes is too large for a worker."""
        limits = [each["memory_limit"] or sys.maxsize for each in self.client.workers.values()]
        least = min(limits, default=sys.maxsize)
        if size > _MEMORY_SHARE * least:
            raise FlowError(
                f"the model takes {size / 2**20:.0f} MiB on each worker, but one has "
                f"{least / 2**20:.0f} MiB, of which it may take half; give the workers more "
                "memory, or leave out the scheduler"
            )


@contextmanager
def joined_workers(scheduler: str | None) -> Iterator[Workers | None]:
    """Give the workers of the cluster that `scheduler` names, None without one."""
    with joined_cluster(scheduler) as session:
        if session is None:
            yield None
        else:
            with session.explained():
                yield Workers(session.client, session.client.get_executor(pure=False))
