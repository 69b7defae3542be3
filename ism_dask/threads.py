"""Threads of this process: the one pool, one BLAS thread for each, and values within a context.

All parallel work in a process shares its pool. A thread that waits for calls makes those itself
that no other thread has begun. So calls may be made side by side within others: some thread always
goes on, however few there are.

These calls are the parallelism, and BLAS has one thread wherever this library computes. LAPACK on
several threads waits by spinning: on a busy machine of two cores the eigenvectors of a 623 x 623
matrix took 3.5 s instead of 0.02 s.

Programs that only watch fits import this module, too: what is slow to import waits for its use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import LibController, ThreadpoolController

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
# From this number of rows on, threads save more time than they cost.
_ROWS_FOR_THREADS = 500
# Rows of a piece: what is made of all rows at once, as in double precision, takes more memory.
_PIECE_ROWS = 8192
# Whether this thread is one of the pool, for which other work must not wait.
_IN_POOL: ContextVar[bool] = ContextVar("in_pool", default=False)


@contextmanager
def bound(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """Give a context variable a value in the block, and its earlier one at the end."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def thread_pool() -> ThreadPoolExecutor:
    """Return the pool of this process, of as many threads as it has cores."""
    return _pool(os.getpid())


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    # The threads of a parent do not survive a fork, and to wait for them would never end.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    from joblib import cpu_count  # type: ignore[import-untyped]  # noqa: PLC0415

    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="ism_dask")


def in_pool() -> bool:
    """Return whether the pool made the call that asks."""
    return _IN_POOL.get()


def in_threads(calls: Sequence[Callable[[], _Result]], n_rows: int) -> list[_Result]:
    """Return the results of the calls, made in threads of this process if there are many rows."""
    if n_rows < _ROWS_FOR_THREADS:
        return [call() for call in calls]
    return side_by_side(calls)


def side_by_side(calls: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """Return the results of calls in their order; threads of the pool begin them at once."""
    if len(calls) == 1:
        return [calls[0]()]
    with ExitStack() as begun:
        results = [begun.enter_context(beside(call)) for call in calls]
        return [result() for result in results]


@contextmanager
def beside(call: Callable[[], _Result]) -> Iterator[Callable[[], _Result]]:
    """Begin a call in a thread of the pool; the block gets a function that returns its result.

    This function makes the call if no thread has begun it. After the block, no thread is at it.
    """
    context = copy_context()
    context.run(_IN_POOL.set, True)
    future = thread_pool().submit(context.run, call)
    try:
        yield lambda: call() if future.cancel() else future.result()
    finally:
        if not future.cancel():
            future.exception()  # waits for its end


def pieces(n_rows: int) -> list[slice]:
    """Return the places of the pieces of rows that are worked on at once."""
    starts = range(0, n_rows, _PIECE_ROWS)
    return [slice(start, start + _PIECE_ROWS) for start in starts]


def by_pieces(function: Callable[[slice], _Result], n_rows: int) -> list[_Result]:
    """Return the results of a function of each piece of rows, in their order, by threads."""
    return in_threads([partial(function, piece) for piece in pieces(n_rows)], n_rows)


class _ThreadLimit:
    """A limit of one BLAS thread while it has holders; the last one restores the earlier numbers.

    Fits that overlap end in any order: the thread that lifts the limit may not be the one that
    set it. `ThreadpoolController.limit` forbids that, and a thread that did both for all others
    would cost more than a small fit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._saved_counts: list[int] = []

    def __enter__(self) -> None:
        """Add a holder; the first one sets the limit."""
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._saved_counts = [library.get_num_threads() for library in _libraries()]
                _set_threads([1] * len(self._saved_counts))

    def __exit__(self, *_: object) -> None:
        """Remove a holder; the last one lifts the limit."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                _set_threads(self._saved_counts)


def _set_threads(counts: list[int]) -> None:
    """Set the number of threads of each BLAS library, so that any thread may set the next limit."""
    for library, count in zip(_libraries(), counts, strict=True):
        library.set_num_threads(count)
        # Since threadpoolctl 3.8, only the thread that first set a limit of OpenBLAS can change it,
        # until it gives up this right.
        give_up = getattr(library, "clear_controlling_thread", None)
        if give_up is not None:
            give_up()


@cache
def _libraries() -> tuple[LibController, ...]:
    """Return the BLAS libraries whose limit belongs to the process and not to a thread."""
    blas = _controller().select(user_api="blas").lib_controllers
    return tuple(each for each in blas if getattr(each, "threading_layer", "") != "openmp")


@cache
def _controller() -> ThreadpoolController:
    # To find the libraries takes milliseconds, so it is done once per process.
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415

    return ThreadpoolController()


@cache
def _thread_limit(_process: int) -> _ThreadLimit:
    return _ThreadLimit()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Limit BLAS to one thread of this process in the block; blocks may nest and overlap."""
    # A forked child gets a limit of its own: the threads that hold its parent's are not in it.
    return _thread_limit(os.getpid())


def single_threaded_openmp(pinned: bool) -> AbstractContextManager[Any]:
    """Limit OpenMP to one thread in the block if `pinned`, since it, too, waits by spinning.

    On a machine of two busy cores k-means of 683 rows took 3.3 s instead of 0.04 s.
    """
    return _controller().limit(limits=1 if pinned else None, user_api="openmp")


@cache
def pin_process() -> None:
    """Limit BLAS to one thread in this process, a worker's, permanently."""
    single_threaded_blas().__enter__()
