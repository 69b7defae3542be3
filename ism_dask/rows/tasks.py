"""Tasks: a task loads shards, applies a function to them and adds up the results."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import count
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed, delayed

from ism_dask._types import Array
from ism_dask.rows.execution import computed, named_task, prepare_worker, sent_once_per_worker
from ism_dask.rows.raw import LoadedShard, RowFact, ShardRef, Standardisation

# Partial sums that one task adds: two would mean many tasks, all of them one very large task.
FAN = 4


class Task:
    """A function of shards, with its other arguments. Not a dataclass, like `ShardRef`.

    `names` are those of the facts of the shards.
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        affine: Standardisation | None,
        names: tuple[RowFact, ...],
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        self.dtype, self.affine, self.names = dtype, affine, names
        self.function, self.args = function, args
        self.driver = os.getpid()

    def with_keys(self, method: Callable[..., Any]) -> Callable[..., Delayed]:
        """Return a function that makes Dask tasks of a method of this task."""
        shared, task = sent_once_per_worker(self), delayed(method, pure=False)
        # A key names the function, and lower keys run first.
        prefix = f"{self.function.__name__.strip('_')}-{uuid4().hex}"
        keys = (f"{prefix}-{number:08d}" for number in count(1))
        return lambda *args: task(shared, *args, dask_key_name=next(keys))

    def on_shard(self, indices: Array | None, *arguments: Any) -> Any:
        """Apply the function to a shard, or to some rows of it; no others are standardised."""
        (part,) = self._shards(arguments)
        return self.function(self._load(part, indices), *self.args)

    def on_shards(self, *arguments: Any) -> Any:
        """Return the sum of the function over shards, loaded one after the other."""
        results = (self.function(self._load(each), *self.args) for each in self._shards(arguments))
        return reduce(_add_in_place, results)

    def on_head_and_tail(self, head: ShardRef, *tail: ShardRef) -> Any:
        """Apply the function to a shard and an iterator over shards."""
        first = self._load(head)
        pieces = (first if part.start == head.start else self._load(part) for part in tail)
        return self.function(first, pieces, *self.args)

    def summed(self, calls: list[Any], finish: Callable[[Any], Any] | None = None) -> Any:
        """Return the sum of calls of this task, or `finish` of the sum.

        The results are added in a tree that depends only on their number.
        """
        keys = {call.key for call in calls}
        while len(calls) > 1:
            join = named_task("add_sums", add_sums)
            groups = [calls[i : i + FAN] for i in range(0, len(calls), FAN)]
            calls = [join(*group) if len(group) > 1 else group[0] for group in groups]
        total = calls[0] if finish is None else delayed(finish, pure=False)(calls[0])
        return computed([total], keys)[0]

    def _shards(self, arguments: Sequence[Any]) -> Sequence[ShardRef]:
        """Return the shards that `as_arguments` made arguments of."""
        if isinstance(arguments[0], ShardRef):
            return arguments
        size = 2 + len(self.names)
        groups = [arguments[i : i + size] for i in range(0, len(arguments), size)]
        return [_shard(self.names, *group) for group in groups]

    def _load(self, part: ShardRef, indices: Array | None = None) -> LoadedShard:
        if os.getpid() != self.driver:
            prepare_worker()
        return part.load(self.dtype, self.affine, indices)


def as_arguments(part: ShardRef) -> list[Any]:
    """Return a shard as arguments of one task.

    None of them is a container: Dask would optimise a graph for each that has tasks, which takes
    longer than many a task.
    """
    return [part.start, part.raw, *part.facts.values()] if _is_pending(part) else [part]


def as_shared_argument(part: ShardRef) -> Any:
    """Return a shard as an argument of many tasks."""
    if not _is_pending(part):
        return part
    return named_task("assemble_shard", _shard)(tuple(part.facts), *as_arguments(part))


def _shard(names: tuple[RowFact, ...], start: int, raw: Any, *values: Any) -> ShardRef:
    """Return the shard of such arguments, whose facts have these names."""
    return ShardRef(start, raw, dict(zip(names, values, strict=True)))


def _is_pending(part: ShardRef) -> bool:
    return any(isinstance(each, Delayed) for each in (part.raw, *part.facts.values()))


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
