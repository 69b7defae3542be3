"""How many threads BLAS takes: one, wherever this library computes.

Tasks are the parallelism of the tiles. And LAPACK on several threads waits by spinning: on a busy
machine of two cores the eigenvectors of a 623 x 623 matrix took 3.5 s instead of 0.02 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread in this process meanwhile.

    To be entered and left by the same thread; it may be nested.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def pin_process() -> None:
    """Keep BLAS to one thread in this process, a worker's, for good."""
    _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds: once for the process.
    return ThreadpoolController()
