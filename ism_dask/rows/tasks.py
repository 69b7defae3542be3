"""Tasks: a task loads shards, applies a function to them and adds up the results."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any, NewType

import numpy as np
from dask.delayed import Delayed, delayed

from ism_dask._types import Array
from ism_dask.observe import count_tasks, task_done
from ism_dask.rows.execution import cluster, computed, named_task
from ism_dask.rows.raw import Standardisation
from ism_dask.threads import pin_process

# Partial sums that one task adds: two would mean many tasks, all of them one very large task.
FAN = 4

# The topic on which workers report a finished task, and the clients that listen to it.
_TOPIC = "ism-dask-progress"
_LISTENING: weakref.WeakSet[Any] = weakref.WeakSet()
# Names and values of glibc: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# The values that glibc itself raises these thresholds to, unless the environment fixes them ...
_LARGEST_MAPPED, _MAX_FREE = 32 * 2**20, 64 * 2**20
# ... as Dask's nannies do by default.
_NANNY_SETTING = ("MALLOC_TRIM_THRESHOLD_", "65536")

# The name of a fact, an array with one entry for each row. The module that attaches a fact declares
# its name, as a constant.
RowFact = NewType("RowFact", str)


@dataclass(frozen=True)
class LoadedShard:
    """A shard as the function of a task gets it: rows X (b, d), standardised and cast.

    `start` is the index of its first row. `facts` are the arrays (b, ...) that `with_rows` or
    `derive` attached to the shards.
    """

    start: int
    X: Array
    facts: Mapping[RowFact, Array]


class ShardRef:
    """A shard before it is loaded; its rows and its facts may still be Dask tasks.

    `raw` is the rows, or a `partial` that reads them from a `RowSource`. It is not a dataclass,
    since Dask would search every field of a dataclass for collections, each time.
    """

    def __init__(self, start: int, raw: Any, facts: Mapping[RowFact, Any]) -> None:
        self.start, self.raw, self.facts = start, raw, facts

    @property
    def argument(self) -> Any:
        """The shard as an argument of one task."""
        return (self.start, self.raw, self.facts) if self._pending else self

    @property
    def shared_argument(self) -> Any:
        """The shard as an argument of many tasks; Dask searches it for tasks only once."""
        if not self._pending:
            return self
        return named_task("assemble_shard", ShardRef)(self.start, self.raw, self.facts)

    @property
    def _pending(self) -> bool:
        return any(isinstance(each, Delayed) for each in (self.raw, *self.facts.values()))


class Task:
    """A function of shards, with its other arguments. Not a dataclass, like `ShardRef`."""

    def __init__(
        self,
        dtype: np.dtype[Any],
        affine: Standardisation | None,
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        self.dtype, self.affine = dtype, affine
        self.function, self.args = function, args
        self.driver = os.getpid()
        self.number: str | None = None

    def on_shard(self, part: Any) -> Any:
        """Apply the function to one shard."""
        return self.function(self._load(part), *self.args)

    def on_shards(self, parts: Sequence[Any]) -> Any:
        """Return the sum of the function over shards, loaded one after the other."""
        total = self.on_shard(parts[0])
        for part in parts[1:]:
            total = _add_in_place(total, self.on_shard(part))
        self._report()
        return total

    def on_rows(self, part: Any, indices: Array) -> Any:
        """Apply the function to some rows of a shard; the other rows are not standardised."""
        return self.function(self._load(part, indices), *self.args)

    def on_head_and_tail(self, head: ShardRef, tail: Sequence[ShardRef]) -> Any:
        """Apply the function to a shard and an iterator over shards."""
        first = self._load(head)
        pieces = (first if part.start == head.start else self._load(part) for part in tail)
        result = self.function(first, pieces, *self.args)
        self._report()
        return result

    def summed(self, calls: list[Any], finish: Callable[[Any], Any] | None = None) -> Any:
        """Return the sum of calls of this task, or `finish` of the sum.

        The results are added in a tree that depends only on their number.
        """
        with count_tasks(len(calls)) as self.number:
            client = None if self.number is None else cluster()
            if client is not None and client not in _LISTENING:
                # Once for each client: the scheduler keeps every topic for good.
                _LISTENING.add(client)
                client.subscribe_topic(_TOPIC, lambda event: task_done(event[1]))
            while len(calls) > 1:
                join = named_task("add_sums", add_sums)
                groups = [calls[i : i + FAN] for i in range(0, len(calls), FAN)]
                calls = [join(*group) if len(group) > 1 else group[0] for group in groups]
            return computed(calls if finish is None else [delayed(finish, pure=False)(calls[0])])[0]

    def _report(self) -> None:
        """Report that a task is done, from a worker to the driver, if anyone watches the pass."""
        if self.number is not None and not task_done(self.number) and os.getpid() != self.driver:
            sys.modules["distributed"].get_worker().log_event(_TOPIC, self.number)

    def _load(self, part: Any, indices: Array | None = None) -> LoadedShard:
        """Return a shard, or some of its rows, from what `ShardRef` made an argument."""
        if os.getpid() != self.driver:
            prepare_worker()
        part = part if isinstance(part, ShardRef) else ShardRef(*part)
        rows = part.raw() if isinstance(part.raw, partial) else part.raw
        facts = {name: _aligned(values) for name, values in part.facts.items()}
        if indices is not None:
            rows = rows[indices]
            facts = {name: values[indices] for name, values in facts.items()}
        if self.affine is not None:
            return LoadedShard(part.start, self.affine.apply(rows, self.dtype), facts)
        rows = rows.astype(self.dtype, copy=False)
        return LoadedShard(part.start, _aligned(rows), facts)


def add_sums(first: Any, second: Any, *others: Any) -> Any:
    """Return the sum of results: numbers, arrays, or tuples of these; None stays None."""
    # Other tasks may use the results: the first sum is a new array, the others are added in place.
    return reduce(_add_in_place, others, _add(first, second))


def _add(left: Any, right: Any, add: Callable[[Any, Any], Any] = operator.add) -> Any:
    """Return the sum of two results, by a function that adds two arrays or numbers."""
    if isinstance(left, tuple):
        return tuple(_add(a, b, add) for a, b in zip(left, right, strict=True))
    return None if left is None else add(left, right)


# Stores the sum of two results of one task in the first, if that is an array.
_add_in_place = partial(_add, add=operator.iadd)


def _aligned(array: Array) -> Array:
    """Return `array` with aligned memory, as BLAS needs it.

    An array from a message may begin at any byte. NumPy then multiplies in a loop of its own,
    whose last bits differ: the answer would depend on how the message was packed.
    """
    return array if array.flags.aligned else np.require(array, requirements="A")


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
