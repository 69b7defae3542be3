"""Run tasks on Dask's threads, or on the Dask cluster whose client is active."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import cloudpickle
import dask
import dask.base
import numpy as np
from dask.callbacks import Callback
from dask.delayed import Delayed, delayed

from ism_dask.observe import fit_watcher
from ism_dask.threads import bound, in_pool, pin_process, single_threaded_blas, thread_pool

_Name = TypeVar("_Name")

# Bytes up to which an argument is sent with every task.
_SMALL_ARGUMENT = 2 * 2**20
# Seconds to wait for the first worker of a cluster.
_WORKER_WAIT = 60
# Seconds between two questions to a scheduler, how many tasks of a pass have ended.
_ASK_SECONDS = 1.0
# Share of the free memory of this machine that tasks may use: other programs run here, too.
_MEMORY_SHARE = 0.7
# Share of a worker's memory limit at which Dask pauses it, and the bytes of it that Python and the
# libraries take.
_PAUSE_SHARE = 0.8
_LIBRARY_BYTES = 200 * 2**20
# Names and values of glibc: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# The values that glibc itself raises these thresholds to, unless the environment fixes them ...
_LARGEST_MAPPED, _MAX_FREE = 32 * 2**20, 64 * 2**20
# ... as Dask's nannies do by default.
_NANNY_SETTING = ("MALLOC_TRIM_THRESHOLD_", "65536")
# Whether tasks run in this process even if a cluster is active.
_IN_PROCESS: ContextVar[bool] = ContextVar("on_this_machine", default=False)


def task_budget() -> int:
    """Return the bytes that one task may take on the machines that will run the tasks."""
    client = cluster()
    if client is None:
        return _free_bytes(int(time.monotonic()))
    budgets = [
        max(0.0, _PAUSE_SHARE * w["memory_limit"] - _LIBRARY_BYTES) / w["nthreads"]
        for w in client.scheduler_info(n_workers=-1)["workers"].values()
        if w["memory_limit"]
    ]
    return int(min(budgets)) if budgets else sys.maxsize


def check_memory_here(needed: float, what: str, advice: str) -> None:
    """Raise a MemoryError with `advice` unless `needed` bytes for `what` are free here."""
    free = _available_bytes() * _MEMORY_SHARE
    if needed > free:
        raise MemoryError(
            f"{what} need {needed / 2**20:.0f} MiB, but {free / 2**20:.0f} MiB may be taken here; "
            f"{advice}"
        )


@lru_cache(maxsize=1)
def _free_bytes(second: int) -> int:  # noqa: ARG001
    """Return the free memory for one task, measured once a second: small fits are shorter."""
    return int(_available_bytes() * _MEMORY_SHARE / (os.cpu_count() or 1))


def _available_bytes() -> int:
    """Return the memory that is free or can be freed; all of it where the system is not Linux."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 2**10 * int(line.split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array."""
    return dask.base.is_dask_collection(X) and hasattr(X, "to_delayed") and hasattr(X, "dtype")


def on_this_machine(are_few: bool = True) -> AbstractContextManager[None]:
    """Run tasks in this process in the block if the rows are few, even if a cluster is active.

    For few rows, that is faster than to send tasks to a cluster.
    """
    return bound(_IN_PROCESS, are_few or _IN_PROCESS.get())


def cluster() -> Any:
    """Return the active distributed client, or None; does not import distributed to find out."""
    if _IN_PROCESS.get():
        return None
    # Another thread may be in the middle of the import: then there is no client yet.
    default_client = getattr(sys.modules.get("distributed"), "default_client", None)
    if default_client is None:
        return None
    try:
        return default_client()
    except ValueError:
        return None


def wait_for_a_worker() -> None:
    """Wait until the active cluster, if any, has a worker; raise a RuntimeError if none comes."""
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


def _dask_options() -> dict[str, Any]:
    if cluster() is not None:
        return {}
    if in_pool():  # tasks would wait for the threads that wait for them
        return {"scheduler": "sync"}
    user_chose = any(dask.config.get(name, None) for name in ("pool", "num_workers"))
    # Dask's own pool is inherited in a fork, and waiting for its threads would never end.
    return {"scheduler": "threads"} | ({} if user_chose else {"pool": thread_pool()})


def named_task(name: str, function: Callable[..., Any]) -> Callable[..., Delayed]:
    """Return a function that makes Dask tasks of `function`, called `name` on the dashboard."""
    make = delayed(function, pure=False)
    return lambda *args: make(*args, dask_key_name=f"{name}-{uuid4().hex}")


def as_tasks(slices: list[Any]) -> list[Any]:
    """Return `slices` unchanged or, on a cluster, as tasks that the cluster can run again."""
    client = cluster()
    if client is None or not slices:
        return slices
    # The data go to the scheduler once, inside the tasks: scattered data could not be remade.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return list(client.persist([named_task("hold_rows", _identity)(item) for item in slices]))


def sent_once_per_worker(item: Any) -> Any:
    """Return `item` such that, on a cluster, it travels once to each worker, not with each task.

    A small item travels with the tasks: one that they all depend on would draw them to the worker
    that holds it.
    """
    if cluster() is None or len(cloudpickle.dumps(item)) < _SMALL_ARGUMENT:
        return item
    return named_task("send_function", _identity)(item)


def _identity(item: Any) -> Any:
    return item


def compute_or_persist(items: list[Mapping[_Name, Any]]) -> list[Mapping[_Name, Any]]:
    """Return `items` with the tasks among their values computed, or persisted on the cluster."""
    if not any(isinstance(value, Delayed) for item in items for value in item.values()):
        return items
    with single_threaded_blas():
        run: Callable[..., Any] = dask.base.compute if cluster() is None else dask.base.persist
        (results,) = run(items, **_dask_options())
    return list(results)


def computed(calls: list[Any], counted: Set[str] = frozenset()) -> list[Any]:
    """Return the results of `calls`, which may be Dask tasks, or results already.

    The watcher of fits hears how many of the tasks with `counted` keys have ended: of each one in
    this process, and each second on a cluster.
    """
    if not any(isinstance(call, Delayed) for call in calls):
        return calls
    counting = _counting_here(counted) if cluster() is None else _counting_on_cluster(counted)
    with single_threaded_blas(), counting:
        return list(dask.base.compute(*calls, **_dask_options()))


def _counting_here(counted: Set[str]) -> Callback:
    """Return a context in which the watcher of fits hears of each counted task that ends."""
    on_task, numbers = fit_watcher().on_task, count(1)

    def count_task(key: str, *_: Any) -> None:
        if key in counted:
            on_task(next(numbers), len(counted))

    return Callback(posttask=count_task)


@contextmanager
def _counting_on_cluster(counted: Set[str]) -> Iterator[None]:
    """Ask the scheduler each second in the block how many counted tasks have ended."""
    client, on_task, over = cluster(), fit_watcher().on_task, threading.Event()
    prefix = min(counted, default="").rpartition("-")[0]  # of the keys of one pass

    # Within a function, it is sent by value: a scheduler need not have this package.
    def unfinished(prefix: str, dask_scheduler: Any) -> int | None:
        known = dask_scheduler.tasks.items()
        tasks = [task for key, task in known if str(key).startswith(prefix)]
        ahead = {"queued", "waiting", "no-worker", "processing"}
        return sum(each.state in ahead for each in tasks) if tasks else None

    def ask() -> None:
        with suppress(Exception):  # the pass itself raises what is wrong with the cluster
            while not over.wait(_ASK_SECONDS):
                left = client.run_on_scheduler(unfinished, prefix)
                if left is not None:
                    on_task(len(counted) - left, len(counted))

    if len(counted) > 1:
        threading.Thread(target=ask, name="task counter", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@cache
def reuse_pages() -> None:
    """Free a large array once, so that malloc keeps the memory that this process frees later.

    glibc returns an array to the system if it is larger than any that was freed before, or twice as
    large at the end of the heap; the system then clears new pages for the next tile. That took a
    third of the time of a fit of 700 rows, in a process that had never held a larger array.
    """
    np.empty(_LARGEST_MAPPED - 2**16, np.uint8)  # freed at once, without a write


@cache
def prepare_worker() -> None:
    """Prepare a worker's process for tasks: one BLAS thread, and reuse of freed memory.

    With the thresholds that Dask sets, every array gets new pages from the system, and clearing
    them took a third of the time of a fit. So malloc may reuse some tens of megabytes.
    """
    pin_process()
    name, value = _NANNY_SETTING
    if sys.platform != "linux" or os.environ.get(name) != value:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have no mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_MAPPED)
        mallopt(_TRIM_THRESHOLD, _MAX_FREE)
