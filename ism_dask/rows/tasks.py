"""What a task is: a function of shards, which loads them and adds up what it makes of them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from dask.delayed import Delayed, delayed

from ism_dask._types import Array
from ism_dask.observe.pass_progress import task_done
from ism_dask.rows.cluster import computed, heard, tell
from ism_dask.rows.source import RowRange
from ism_dask.rows.standardise import Standardisation
from ism_dask.rows.worker import prepare_worker

# Partial sums that one task adds up: with two the tasks would be many, with all of them wide.
FAN = 4


@dataclass(frozen=True)
class LoadedShard:
    """A shard as a task sees it.

    Attributes
    ----------
    start : int
        The number of its first row.
    X : (b, d) array
    facts : tuple
        What was attached to the shards with `with_rows` or `derive`, in that order.
    """

    start: int
    X: Array
    facts: tuple[Any, ...]


@dataclass(frozen=True)
class ShardRef:
    """A shard before it is loaded: every field may still be a Dask task."""

    start: int
    raw: Any
    facts: tuple[Any, ...] = ()

    @property
    def fields(self) -> Any:
        """The shard as an argument of one task."""
        fields = (self.start, self.raw, self.facts)
        return fields if self._pending else _ShardPayload(*fields)

    @property
    def bundle(self) -> Any:
        """The shard as an argument of many tasks, which Dask looks through once for all."""
        bundle = delayed(_ShardPayload, pure=False) if self._pending else _ShardPayload
        return bundle(self.start, self.raw, self.facts)

    @property
    def _pending(self) -> bool:
        return any(isinstance(field, Delayed) for field in (self.raw, *self.facts))


class _ShardPayload:
    """A shard whose fields are all there. Not a dataclass, for the reason that `Slice` gives."""

    def __init__(self, start: int, raw: Any, facts: tuple[Any, ...]) -> None:
        self.start, self.raw, self.facts = start, raw, facts

    @classmethod
    def of(cls, fields: Any) -> _ShardPayload:
        """Return the bundle of `Part.fields`, as a task gets them, or of `Part.bundle`."""
        return fields if isinstance(fields, cls) else cls(*fields)


class Task:
    """A function of shards with what it needs beside them. Not a dataclass, as `Slice`."""

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
        self._calls = 0

    def next_key(self) -> str:
        """Return the name of the next call: Dask begins with the lowest, and shows the function."""
        self._calls += 1
        return f"{self._key}-{self._calls:08d}"

    @cached_property
    def _key(self) -> str:
        return f"{self.function.__name__.strip('_')}-{uuid.uuid4().hex}"

    def on_piece(self, part: Any) -> Any:
        """Call the function on a piece."""
        return self.function(self._load(_ShardPayload.of(part)), *self.args)

    def on_run(self, parts: Sequence[Any]) -> Any:
        """Return the sum of the function over pieces, one after the other."""
        total = self.on_piece(parts[0])
        for part in parts[1:]:
            total = _gathered(total, self.on_piece(part))
        return self._told(total)

    def on_picked(self, part: Any, indices: Array) -> Any:
        """Call the function on some rows of a piece; the others are not standardised."""
        return self.function(self._load(_ShardPayload.of(part), indices), *self.args)

    def on_stripe(self, head: _ShardPayload, tail: Sequence[_ShardPayload]) -> Any:
        """Call the function on a piece and an iterator over pieces."""
        first = self._load(head)
        pieces = (first if part.start == head.start else self._load(part) for part in tail)
        return self._told(self.function(first, pieces, *self.args))

    def on_some_pairs(
        self, loader: Task, head: _ShardPayload, tail: Sequence[_ShardPayload]
    ) -> Any:
        """Call the function on a piece and an iterator over pieces that another task loads."""
        pieces = (loader._load(part) for part in tail)  # a task of the same class
        return self._told(self.function(self._load(head), pieces, *self.args))

    def summed(self, calls: list[Any], finish: Callable[[Any], Any] | None = None) -> Any:
        """Return the sum of calls of this task, added in a tree that their number alone decides.

        Or what `finish` makes of it.
        """
        leaves = len(calls)
        while len(calls) > 1:
            join = delayed(tree_sum, pure=False)
            groups = [calls[i : i + FAN] for i in range(0, len(calls), FAN)]
            calls = [join(*group) if len(group) > 1 else group[0] for group in groups]
        if finish is not None:
            here = not isinstance(calls[0], Delayed)
            calls = [finish(calls[0]) if here else delayed(finish, pure=False)(calls[0])]
        with heard(leaves) as self.number:
            return computed(calls)[0]

    def _told(self, result: Any) -> Any:
        """Return `result`, and let whoever watches know that there is one."""
        if self.number is not None and not task_done(self.number) and os.getpid() != self.driver:
            tell(self.number)
        return result

    def _load(self, part: _ShardPayload, chosen: Array | None = None) -> LoadedShard:
        if os.getpid() != self.driver:
            prepare_worker()
        rows = part.raw.load() if isinstance(part.raw, RowRange) else part.raw
        facts = tuple(_aligned(fact) for fact in part.facts)
        if chosen is not None:
            rows, facts = rows[chosen], tuple(fact[chosen] for fact in facts)
        if self.affine is not None:
            return LoadedShard(part.start, self.affine.apply(rows, self.dtype), facts)
        return LoadedShard(part.start, _aligned(rows.astype(self.dtype, copy=False)), facts)


def tree_sum(first: Any, second: Any, *others: Any) -> Any:
    """Return the sum of results: numbers, arrays, or tuples of such; None stays None."""
    # The results may be asked for again; their first sum is ours.
    return reduce(_gathered, others, _plus(first, second))


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return tuple(_plus(a, b) for a, b in zip(left, right, strict=True))
    return None if left is None else left + right


def _gathered(total: Any, more: Any) -> Any:
    """Return the sum of two results of one task, in the place of the first where it is an array."""
    if isinstance(total, tuple):
        return tuple(_gathered(a, b) for a, b in zip(total, more, strict=True))
    if total is None:
        return None
    total += more
    return total


def _aligned(array: Array) -> Array:
    """Return `array` where BLAS can use it.

    What came over a wire may begin at any byte. NumPy then multiplies by a loop of its own, whose
    last bits differ: the answer would depend on how a message was packed.
    """
    return array if array.flags.aligned else np.require(array, requirements="A")
