"""How many threads BLAS takes: one, wherever this library computes. OpenMP: one for few rows.

Tasks are the parallelism of the tiles. And LAPACK on several threads waits by spinning: on a busy
machine of two cores the eigenvectors of a 623 x 623 matrix took 3.5 s instead of 0.02 s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import LibController, ThreadpoolController


class _Pin:
    """One BLAS thread while anyone holds the pin, what there was before when nobody does.

    Fits that overlap end in any order: the thread that takes the limit back may not be the
    one that set it. `ThreadpoolController.limit` forbids that, and a thread that did both for
    all others would cost more than a small fit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before: list[int] = []

    def hold(self) -> None:
        """Count a holder in."""
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._before = [library.get_num_threads() for library in _libraries()]
                _set_threads([1] * len(self._before))

    def release(self) -> None:
        """Count a holder out."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                _set_threads(self._before)


def _set_threads(counts: list[int]) -> None:
    """Set the number of threads of each BLAS library; any thread may set the next limit."""
    for library, count in zip(_libraries(), counts, strict=True):
        library.set_num_threads(count)
        # Since threadpoolctl 3.8 the first thread that sets a limit of OpenBLAS is the only one
        # that can, until it gives that up.
        give_up = getattr(library, "clear_controlling_thread", None)
        if give_up is not None:
            give_up()


@cache
def _libraries() -> tuple[LibController, ...]:
    """Return the BLAS libraries whose limit is that of the process, and not of a thread."""
    blas = _controller().select(user_api="blas").lib_controllers
    return tuple(each for each in blas if getattr(each, "threading_layer", "") != "openmp")


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds: once for the process.
    return ThreadpoolController()


@cache
def _pin(_process: int) -> _Pin:
    return _Pin()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread in this process meanwhile; it may be nested, and overlap."""
    # A forked child has no part in its parent's pin: the thread that holds it is not there.
    pin = _pin(os.getpid())
    pin.hold()
    try:
        yield
    finally:
        pin.release()


@contextmanager
def single_threaded_loops(pinned: bool = True) -> Iterator[None]:
    """Keep OpenMP to one thread in the block, if `pinned`: it waits by spinning as well.

    On a machine of two busy cores k-means of 683 rows took 3.3 s instead of 0.04 s.
    """
    with _controller().limit(limits=1 if pinned else None, user_api="openmp"):
        yield


@cache
def pin_process() -> None:
    """Keep BLAS to one thread in this process, a worker's, for good."""
    _pin(os.getpid()).hold()
