"""Where tasks run: on Dask's threads, or on the cluster whose client is active."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import Any, TypeVar

import cloudpickle
import dask
import dask.base
import psutil
from dask.delayed import Delayed, delayed
from dask.system import CPU_COUNT

from ism_dask.blas_threads import single_threaded_blas
from ism_dask.observe.pass_progress import count_tasks, task_done

_Result = TypeVar("_Result")

# Where workers say that a task is done, and the clients that listen.
_TOPIC = "ism-dask-progress"
_LISTENING: weakref.WeakSet[Any] = weakref.WeakSet()
# Bytes that each task may bring along.
_LIGHT = 2 * 2**20
# Seconds that a cluster without workers is given to get one.
_WORKER_WAIT = 60
# Of the memory that is free here: other programs live here, too.
_OURS = 0.7
# Rows from which on threads save more time than they take.
_THREADS_FROM = 500
# Of a worker's memory: at 0.8 Dask pauses it. Python and the libraries take their part of that.
_BEFORE_PAUSE = 0.8
_LIBRARIES = 200 * 2**20
# Whether tasks run in this process, whatever cluster is active.
_HERE: ContextVar[bool] = ContextVar("on_this_machine", default=False)
# Of each process that has computed: a child of a fork inherits those of its parent.
_THREADS: dict[int, ThreadPoolExecutor] = {}


def task_budget() -> int:
    """Return the bytes that one task may take, where the tasks will run."""
    client = cluster()
    if client is None:
        return _free(int(time.monotonic()))
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    rooms = [
        max(0.0, _BEFORE_PAUSE * w["memory_limit"] - _LIBRARIES) / w["nthreads"]
        for w in workers
        if w["memory_limit"]
    ]
    return int(min(rooms)) if rooms else sys.maxsize


@lru_cache(maxsize=1)
def _free(second: int) -> int:  # noqa: ARG001
    """Return what is free here for one task, asked for once a second: small fits take less."""
    cores = psutil.cpu_count(logical=True) or 1
    return int(psutil.virtual_memory().available * _OURS / cores)


def is_dask(X: Any) -> bool:
    """Say whether X is a Dask array."""
    return dask.base.is_dask_collection(X) and hasattr(X, "to_delayed") and hasattr(X, "dtype")


@contextmanager
def on_this_machine() -> Iterator[None]:
    """Compute in this process for a while, also where a cluster is active.

    Few rows are done here before a cluster has heard of them.
    """
    token = _HERE.set(True)
    try:
        yield
    finally:
        _HERE.reset(token)


def cluster() -> Any:
    """Return the active distributed client, or None; nothing is imported to find out."""
    if _HERE.get():
        return None
    # Another thread may be half way through the import: then there is no client yet.
    default_client = getattr(sys.modules.get("distributed"), "default_client", None)
    if default_client is None:
        return None
    try:
        return default_client()
    except ValueError:
        return None


def side_by_side(calls: Sequence[Callable[[], _Result]], n_rows: int) -> list[_Result]:
    """Return what each of some calls returns, in threads of this process where rows are many."""
    if n_rows < _THREADS_FROM:
        return [call() for call in calls]
    with ThreadPoolExecutor(CPU_COUNT) as pool:  # calls may wait for tasks in the other threads
        running = [pool.submit(copy_context().run, call) for call in calls]
        return [each.result() for each in running]


def wait_for_a_worker() -> None:
    """Wait until the active cluster, if any, has a worker: without one nothing would move."""
    client = cluster()
    if client is None or client.scheduler_info(n_workers=1)["workers"]:
        return
    try:
        client.wait_for_workers(1, timeout=_WORKER_WAIT)
    except TimeoutError as error:
        raise RuntimeError(
            f"the Dask cluster at {client.scheduler_info()['address']} has no workers, and none "
            f"came within {_WORKER_WAIT} s; start some, or close the client to compute here"
        ) from error


def _where() -> dict[str, Any]:
    if cluster() is not None:
        return {}
    told = any(dask.config.get(name, None) for name in ("pool", "num_workers"))
    return {"scheduler": "threads"} | ({} if told else {"pool": _threads()})


def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process, for those of its parent are not in it.

    Dask's own are remembered across a fork, where waiting for them would never end.
    """
    pid = os.getpid()
    if pid not in _THREADS:
        _THREADS.setdefault(pid, ThreadPoolExecutor(CPU_COUNT))
    return _THREADS[pid]


def placed(slices: list[Any]) -> list[Any]:
    """Return `slices` where tasks find them: here, or as tasks of the cluster that remake them."""
    client = cluster()
    if client is None:
        return slices
    # These go to the scheduler once, inside the tasks, for `scatter` could not remake them.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return list(client.persist([delayed(_itself, pure=False)(item) for item in slices]))


def once_for_each_worker(item: Any) -> Any:
    """Return `item` such that, on a cluster, it travels once to each worker, not with each task.

    What is light goes with the tasks: one that they all wait for would draw them to its worker.
    """
    if cluster() is None or len(cloudpickle.dumps(item)) < _LIGHT:
        return item
    return delayed(_itself, pure=False)(item)


def _itself(item: Any) -> Any:
    return item


def settle(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return `rows` with the tasks among their fields computed, or kept on the cluster."""
    if not any(isinstance(field, Delayed) for row in rows for field in row):
        return rows
    with single_threaded_blas():
        run: Callable[..., Any] = dask.base.compute if cluster() is None else dask.base.persist
        (kept,) = run(rows, **_where())
    return list(kept)


def computed(calls: list[Any]) -> list[Any]:
    """Return what `calls` give: they may be tasks, or results already."""
    if not any(isinstance(call, Delayed) for call in calls):
        return calls
    with single_threaded_blas():
        return list(dask.base.compute(*calls, **_where()))


@contextmanager
def heard(total: int) -> Iterator[str | None]:
    """Yield what tasks name when they are done, here or on a cluster; None if nobody watches."""
    with count_tasks(total) as number:
        client = cluster()
        if number is not None and client is not None and client not in _LISTENING:
            # Once for each client: the scheduler keeps every topic that it was ever told of.
            _LISTENING.add(client)
            client.subscribe_topic(_TOPIC, _noted)
        yield number


def tell(number: str) -> None:
    """Let the driver know, from a worker, that a task of the pass called `number` is done."""
    sys.modules["distributed"].get_worker().log_event(_TOPIC, number)


def _noted(event: tuple[float, str]) -> None:
    task_done(event[1])
