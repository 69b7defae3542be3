"""Run work that has many pieces, such as the files of a table, on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from flows.compute.session import joined_cluster
from storage.tables.side_by_side import map_in_order

if TYPE_CHECKING:
    from flows.compute.endable_client import EndableClient

Item = TypeVar("Item")
Result = TypeVar("Result")

# Pieces for each thread of the cluster that are computed, or wait for their turn, at one time.
_PIECES_PER_THREAD = 2


@dataclass(frozen=True, eq=False)
class Workers:
    """The workers of a cluster that this process has joined.

    Attributes
    ----------
    client : EndableClient
    executor : Executor
        Runs work on them.
    """

    client: EndableClient
    executor: Executor

    def map_in_order(
        self, work: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yield `work(item)` for each item in order.

        Few results wait here at one time, however slowly they are taken. A piece whose worker dies
        is computed again.
        """

        def most_waiting() -> int:
            """Return how many pieces may be at work; workers may come and go on the way."""
            threads = sum(self.client.nthreads().values())
            return _PIECES_PER_THREAD * max(int(threads), 1)

        return map_in_order(self.executor, work, items, most_waiting)


@contextmanager
def joined_workers(scheduler: str | None) -> Iterator[Workers | None]:
    """Give the workers of the cluster that `scheduler` names, None without one."""
    with joined_cluster(scheduler) as session:
        if session is None:
            yield None
        else:
            with session.explained():
                yield Workers(session.client, session.client.get_executor(pure=False))
