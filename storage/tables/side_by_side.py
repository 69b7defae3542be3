"""Work on the pieces of a table side by side; the results come in the order of the pieces."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")
OnRows = Callable[[int], None]

# Each takes some 200 MB for pages, batches and chunks of a table with 100 columns, and an ingestion
# is to need less than 1 GB. More cores are for a cluster.
_MOST_THREADS = 2
# The most results that may wait for an earlier one, if they are small.
_MOST_WAITING = 1000


def threads_of_this_process() -> Executor:
    """Return threads for the cores.

    NumPy, pyarrow, compression and digests release the lock of the interpreter.
    """
    cores = len(os.sched_getaffinity(0))
    return ThreadPoolExecutor(min(cores, _MOST_THREADS), thread_name_prefix="piece")


def map_in_order(
    executor: Executor,
    work: Callable[[Piece], Result],
    pieces: Iterable[Piece],
    most_waiting: int = _MOST_WAITING,
) -> Iterator[Result]:
    """Yield the result of `work` for each piece, in order.

    Unlike `Executor.map`, it takes the next piece while the first ones are at work already, yields
    a result as soon as it is there, and does not run ahead of a caller that is slow: at most
    `most_waiting` pieces are at work or have results that wait.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for piece in pieces:
            waiting.append(executor.submit(work, piece))
            while waiting and (waiting[0].done() or len(waiting) >= most_waiting):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for each in waiting:
            each.cancel()


def work_on_rows(
    work: Callable[..., Any], pieces: Iterable[Any], executor: Executor | None, on_rows: OnRows
) -> Iterator[Any]:
    """Yield the result of `work`, which has `rows`, for each piece of a table, in order.

    `on_rows` is called with the number of rows that are done; if there is only one piece, by `work`
    itself. Without an executor, threads of this process do the work.
    """
    if isinstance(pieces, Sequence) and len(pieces) == 1:
        yield work(pieces[0], on_rows=on_rows)
        return
    done = 0
    with threads_of_this_process() if executor is None else nullcontext(executor) as workers:
        for result in map_in_order(workers, work, pieces):
            done += result.rows
            on_rows(done)
            yield result
