"""How many threads BLAS takes: one, wherever this library computes. OpenMP: one for few rows.

Tasks are the parallelism of the tiles. And LAPACK on several threads waits by spinning: on a busy
machine of two cores the eigenvectors of a 623 x 623 matrix took 3.5 s instead of 0.02 s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


class _Pin:
    """One BLAS thread while anyone holds the pin, what there was before when nobody does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limit: AbstractContextManager[Any] | None = None
        # threadpoolctl lets the thread that set a limit, and no other, take it back; fits that
        # overlap end in any order. So one thread does both, for all of them.
        self._hand = ThreadPoolExecutor(1, thread_name_prefix="blas-pin")

    def hold(self) -> None:
        """Count a holder in."""
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._limit = self._hand.submit(_limit).result()

    def release(self) -> None:
        """Count a holder out."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limit is not None:
                self._hand.submit(self._limit.__exit__, None, None, None).result()
                self._limit = None


def _limit() -> AbstractContextManager[Any]:
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    limit.__enter__()
    return limit


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
