"""The one pool of threads of a process, which all parallel work in it shares.

A thread that waits for calls makes those itself that no other thread has begun. So calls may be
made side by side within others: some thread always goes on, however few there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import TypeVar

from joblib import cpu_count  # type: ignore[import-untyped]

from ism_dask._context import bound

_Result = TypeVar("_Result")
# Whether this thread is one of the pool, for which other work must not wait.
_IN_POOL: ContextVar[bool] = ContextVar("in_pool", default=False)


def thread_pool() -> ThreadPoolExecutor:
    """Return the pool of this process, of as many threads as it has cores."""
    return _pool(os.getpid())


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    # The threads of a parent do not survive a fork, and to wait for them would never end.
    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="ism_dask")


def in_pool() -> bool:
    """Return whether the pool made the call that asks."""
    return _IN_POOL.get()


def side_by_side(calls: Sequence[Callable[[], _Result]]) -> Iterator[_Result]:
    """Yield the results of calls in their order; threads of the pool begin them at once."""
    if len(calls) == 1:
        yield calls[0]()
        return
    futures = [
        thread_pool().submit(copy_context().run, partial(_made_in_pool, call)) for call in calls
    ]
    try:
        for future, call in zip(futures, calls, strict=True):
            # A call that no thread has begun is made here.
            yield call() if future.cancel() else future.result()
    finally:
        wait([future for future in futures if not future.cancel()])


def _made_in_pool(call: Callable[[], _Result]) -> _Result:
    with bound(_IN_POOL, True):
        return call()
