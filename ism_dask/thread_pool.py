"""The one pool of threads of a process, which all parallel work in it shares.

A thread that waits for calls makes those itself that no other thread has begun. So calls may be
made side by side within others: some thread always goes on, however few there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
    futures = [_begun(call) for call in calls]
    try:
        for future, call in zip(futures, calls, strict=True):
            yield _result(future, call)
    finally:
        wait([future for future in futures if not future.cancel()])


def prefetched(calls: Sequence[Callable[[], _Result]]) -> Iterator[_Result]:
    """Yield the results of the calls; while one is used, a thread makes the next call."""
    coming = [_begun(call) for call in calls[:1]]
    for number, call in enumerate(calls):
        result = _result(coming[0], call)
        coming = [_begun(following) for following in calls[number + 1 : number + 2]]
        yield result


def _begun(call: Callable[[], _Result]) -> Future[_Result]:
    return thread_pool().submit(copy_context().run, partial(_made_in_pool, call))


def _made_in_pool(call: Callable[[], _Result]) -> _Result:
    with bound(_IN_POOL, True):
        return call()


def _result(future: Future[_Result], call: Callable[[], _Result]) -> _Result:
    """Return the result of a call, made here if no thread has begun it."""
    return call() if future.cancel() else future.result()
