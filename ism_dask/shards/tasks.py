"""What a task is: a function of shards, which loads them and adds up what it makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.delayed import Delayed, delayed

from ism_dask.blas import pin_process
from ism_dask.progress import done
from ism_dask.rows import Affine, Slice
from ism_dask.shards.where import computed, heard, tell
from ism_dask.typing import Array


@dataclass(frozen=True)
class Piece:
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
class Part:
    """A shard before it is loaded: every field may still be a Dask task."""

    start: int
    raw: Any
    facts: tuple[Any, ...] = ()

    @property
    def bundle(self) -> Any:
        """The shard as one argument of a task, which Dask need not look through."""
        pending = any(isinstance(field, Delayed) for field in (self.raw, *self.facts))
        bundle = delayed(_Bundle, pure=False) if pending else _Bundle
        return bundle(self.start, self.raw, self.facts)


class _Bundle:
    """A shard whose fields are all there. Not a dataclass, for the reason that `Slice` gives."""

    def __init__(self, start: int, raw: Any, facts: tuple[Any, ...]) -> None:
        self.start, self.raw, self.facts = start, raw, facts


class Task:
    """A function of shards with what it needs beside them. Not a dataclass, as `Slice`."""

    def __init__(
        self,
        dtype: np.dtype[Any],
        affine: Affine | None,
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        self.dtype, self.affine = dtype, affine
        self.function, self.args = function, args
        self.driver = os.getpid()
        self.number: str | None = None

    def on_piece(self, part: _Bundle) -> Any:
        """Call the function on a piece."""
        return self.function(self._load(part), *self.args)

    def on_run(self, parts: Sequence[_Bundle]) -> Any:
        """Return the sum of the function over pieces, one after the other."""
        total = self.on_piece(parts[0])
        for part in parts[1:]:
            total = _gathered(total, self.on_piece(part))
        return self._told(total)

    def on_picked(self, part: _Bundle, indices: Array) -> Any:
        """Call the function on some rows of a piece; the others are not standardised."""
        return self.function(self._load(part, indices), *self.args)

    def on_stripe(self, head: _Bundle, tail: Sequence[_Bundle]) -> Any:
        """Call the function on a piece and an iterator over pieces."""
        first = self._load(head)
        pieces = (first if part.start == head.start else self._load(part) for part in tail)
        return self._told(self.function(first, pieces, *self.args))

    def summed(self, calls: list[Any]) -> Any:
        """Return the sum of calls of this task, added in a tree that their number alone decides."""
        leaves, join = len(calls), delayed(added, pure=False)
        while len(calls) > 1:
            odd = calls[len(calls) // 2 * 2 :]
            calls = [join(a, b) for a, b in zip(calls[::2], calls[1::2], strict=False)] + odd
        with heard(leaves) as self.number:
            return computed(calls)[0]

    def _told(self, result: Any) -> Any:
        """Return `result`, and let whoever watches know that there is one."""
        if self.number is not None and not done(self.number) and os.getpid() != self.driver:
            tell(self.number)
        return result

    def _load(self, part: _Bundle, chosen: Array | None = None) -> Piece:
        if os.getpid() != self.driver:
            pin_process()
        rows = part.raw.load() if isinstance(part.raw, Slice) else part.raw
        facts = tuple(_aligned(fact) for fact in part.facts)
        if chosen is not None:
            rows, facts = rows[chosen], tuple(fact[chosen] for fact in facts)
        if self.affine is not None:
            return Piece(part.start, self.affine.apply(rows, self.dtype), facts)
        return Piece(part.start, _aligned(rows.astype(self.dtype, copy=False)), facts)


def added(left: Any, right: Any) -> Any:
    """Return the sum of two results: numbers, arrays, or tuples of such; None stays None."""
    if isinstance(left, tuple):
        return tuple(added(a, b) for a, b in zip(left, right, strict=True))
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
    return np.require(array, requirements="A")
