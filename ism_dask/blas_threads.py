"""Limit BLAS to one thread wherever this library computes, and OpenMP to one thread for few rows.

The tasks of the tiles are the parallelism. LAPACK on several threads waits by spinning: on a busy
machine of two cores the eigenvectors of a 623 x 623 matrix took 3.5 s instead of 0.02 s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import LibController, ThreadpoolController


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

    def hold(self) -> None:
        """Add a holder; the first one sets the limit."""
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._saved_counts = [library.get_num_threads() for library in _libraries()]
                _set_threads([1] * len(self._saved_counts))

    def release(self) -> None:
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
    return ThreadpoolController()


@cache
def _thread_limit(_process: int) -> _ThreadLimit:
    return _ThreadLimit()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread of this process in the block; blocks may nest and overlap."""
    # A forked child gets a limit of its own: the threads that hold its parent's are not in it.
    limit = _thread_limit(os.getpid())
    limit.hold()
    try:
        yield
    finally:
        limit.release()


@contextmanager
def single_threaded_openmp(pinned: bool = True) -> Iterator[None]:
    """Limit OpenMP to one thread in the block if `pinned`, since it, too, waits by spinning.

    On a machine of two busy cores k-means of 683 rows took 3.3 s instead of 0.04 s.
    """
    with _controller().limit(limits=1 if pinned else None, user_api="openmp"):
        yield


@cache
def pin_process() -> None:
    """Limit BLAS to one thread in this process, a worker's, permanently."""
    _thread_limit(os.getpid()).hold()
