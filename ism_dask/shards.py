"""X cut by rows, in memory or on Dask: the only file that knows where a computation runs.

A shard is a pure function of its source, so that a lost worker costs time and nothing else. The
results of shards are added in a fixed tree: the same cut gives the same bits on any number of
workers. One shard runs inline, several on Dask's threads, or on the cluster whose client is
active.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import dask
import dask.base
import numpy as np
import psutil
from dask.delayed import Delayed, delayed

from ism_dask.blas import pin_process, single_threaded_blas
from ism_dask.progress import counted, done
from ism_dask.rows import Affine, RowSource, Slice, tile_dtype
from ism_dask.typing import Array

# A tile of 2,500 x 2,500 keeps BLAS busy, and its parts stay near the core.
ROWS_PER_SHARD = 2560
# Wide data gets fewer rows, so that a standardised shard stays about this large.
_SHARD_BYTES = 64 * 2**20
# Tasks of a fold at most: each brings a partial sum, which may be large and has to be added.
_RUNS = 64
# Whole shards that a task is handed at once take up to this many bytes. Not what the workers
# happen to have: the sums, and so the last bits, would change with it.
_HANDED_BYTES = 256 * 2**20
# Seconds that a cluster without workers is given to get one.
_WORKER_WAIT = 60
# What is left of a worker's memory for the data of its tasks: Python and libraries take the rest.
_USABLE = 0.7


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
class _Part:
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


class _Task:
    """A function of shards with what it needs beside them. Not a dataclass, as `Slice`."""

    def __init__(self, shards: Shards, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.dtype, self.affine = shards.dtype, shards.affine
        self.function, self.args = function, args
        self.driver = os.getpid()
        self.topic: str | None = None

    def on_piece(self, part: _Bundle) -> Any:
        """Call the function on a piece."""
        return self.function(self._load(part), *self.args)

    def on_run(self, parts: Sequence[_Bundle]) -> Any:
        """Return the sum of the function over pieces, one after the other."""
        total = self.on_piece(parts[0])
        for part in parts[1:]:
            total = _gathered(total, self.on_piece(part))
        return self._told(total)

    def on_picked(self, part: _Bundle, indices: Array) -> Piece:
        """Return some rows of a piece; the others are not standardised."""
        return self._load(part, indices)

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
        with _heard(leaves) as self.topic:
            return _computed(calls)[0]

    def _told(self, result: Any) -> Any:
        """Return `result`, and let whoever watches know that there is one."""
        if self.topic is not None and not done(self.topic) and os.getpid() != self.driver:
            sys.modules["distributed"].get_worker().log_event(self.topic, 1)
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


@dataclass(frozen=True)
class Shards:
    """Rows cut into shards, with what is known of them.

    Make one with `cut`. Functions given to the methods must be importable by a worker, must not
    change what they get, return arrays of their own, and see X as float32 or float64.
    """

    parts: tuple[_Part, ...]
    n_rows: int
    n_raw_columns: int
    dtype: np.dtype[Any]
    raw_itemsize: int
    affine: Affine | None = None

    @property
    def n_columns(self) -> int:
        """Columns that functions see."""
        return int(self.affine.kept.sum()) if self.affine else self.n_raw_columns

    @property
    def bounds(self) -> tuple[int, ...]:
        """The first row of each shard, and the number of rows."""
        return (*(part.start for part in self.parts), self.n_rows)

    @property
    def largest(self) -> int:
        """Rows of the largest shard."""
        return int(np.diff(self.bounds).max())

    @property
    def raw_bytes(self) -> int:
        """What the largest shard takes before it is cast and standardised."""
        return self.largest * self.n_raw_columns * self.raw_itemsize

    @property
    def handed(self) -> int | None:
        """How many shards a task may be handed at once; None where it reads them one by one."""
        resident = any(isinstance(part.raw, Delayed) for part in self.parts)
        return max(1, _HANDED_BYTES // self.raw_bytes) if resident else None

    def standardised(self, affine: Affine) -> Shards:
        """Return the shards seen through `affine`."""
        return replace(self, affine=affine)

    def with_rows(self, values: Array) -> Shards:
        """Return the shards with `values` (n, ...) attached, cut alike."""
        slices = [values[a:b] for a, b in zip(self.bounds, self.bounds[1:], strict=False)]
        return self._attach(_placed(slices))

    def derive(self, function: Callable[..., Any], *args: Any) -> Shards:
        """Return the shards with `function(piece, *args)` of each attached, computed once."""
        return self._attach(self._map(function, args, self.parts))

    def settled(self) -> Shards:
        """Return the shards with what `derive` attached computed now, for use in many folds."""
        return replace(self, parts=_settle(self.parts))

    def through(self, width: int) -> Shards:
        """Return the shards whose rows are their last facts (b, width): folds do not read X."""
        parts = tuple(replace(part, raw=part.facts[-1]) for part in self.parts)
        size = self.dtype.itemsize
        return replace(self, parts=parts, n_raw_columns=width, raw_itemsize=size, affine=None)

    def fold(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum over shards of `function(piece, *args)`: arrays, or tuples of such.

        Several shards may share a task, which then sees them one after the other.
        """
        work = _Task(self, function, args)
        task = self._task(work.on_run)
        bundles = [part.bundle for part in self.parts]
        size = min(-(-len(bundles) // _RUNS), self.handed or len(bundles))
        runs = [bundles[i : i + size] for i in range(0, len(bundles), size)]
        return work.summed([task(run) for run in runs])

    def fold_pairs(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum of `function(head, tail, *args)` over all unordered pairs of shards.

        `head` is a piece, `tail` an iterator over pieces, the head itself among them once: each
        pair of shards is seen once, by one call for each head and `handed` of tails.
        """
        bundles = [part.bundle for part in self.parts]
        work = _Task(self, function, args)
        stripe = self._task(work.on_stripe)
        calls = []
        for index, head in enumerate(bundles):
            # Each head takes the next half of the circle: tasks of one size keep workers even,
            # where the rows of a triangle would not.
            tail = (bundles[index:] + bundles[:index])[: _share(index, len(bundles))]
            size = self.handed or len(tail)
            calls += [stripe(head, tail[i : i + size]) for i in range(0, len(tail), size)]
        return work.summed(calls)

    def rows(self, indices: Array) -> Array:
        """Return the rows numbered `indices` (m,), rising, as functions see them."""
        return self.pick(indices).X

    def pick(self, indices: Array) -> Piece:
        """Return the rows numbered `indices` (m,), rising, with their facts, as one piece."""
        picks = np.split(indices, np.searchsorted(indices, self.bounds[1:-1]))
        take = self._task(_Task(self, _itself, ()).on_picked)
        calls = [
            take(part.bundle, pick - part.start)
            for part, pick in zip(self.parts, picks, strict=True)
            if len(pick)
        ]
        pieces = _computed(calls)
        facts = zip(*(piece.facts for piece in pieces), strict=True)
        return Piece(
            0,
            np.concatenate([piece.X for piece in pieces]),
            tuple(np.concatenate(column) for column in facts),
        )

    def _attach(self, column: Sequence[Any]) -> Shards:
        parts = zip(self.parts, column, strict=True)
        return replace(self, parts=tuple(replace(p, facts=(*p.facts, c)) for p, c in parts))

    @property
    def _inline(self) -> bool:
        return len(self.parts) == 1 and self.handed is None and _cluster() is None

    def _map(
        self, function: Callable[..., Any], args: tuple[Any, ...], parts: Sequence[_Part]
    ) -> list[Any]:
        task = self._task(_Task(self, function, args).on_piece)
        return [task(part.bundle) for part in parts]

    def _task(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what calls `function` here and now, or makes a Dask task of it."""
        if not self._inline:
            return delayed(function, pure=False)

        def call(*args: Any) -> Any:
            with single_threaded_blas():
                return function(*args)

        return call


def cut(X: Any, rows_per_shard: int | None = None) -> Shards:
    """Return `Shards` of a NumPy array, a Dask array of any row chunking, or a `RowSource`.

    Parameters
    ----------
    X : (n, d) array-like
    rows_per_shard : int, optional
        Default: equal shards of up to 2,560 rows, fewer for very wide data, and whole chunks of
        a `RowSource`.
    """
    _wait_for_a_worker()
    n, d = (int(size) for size in X.shape)
    dtype = tile_dtype(X.dtype)
    rows = rows_per_shard or _default_rows(X, n, d, dtype)
    starts = range(0, n, rows)
    if isinstance(X, RowSource):
        raws: list[Any] = [Slice(X, start, min(start + rows, n)) for start in starts]
    elif is_dask(X):
        raws = list(X.rechunk({0: rows, 1: -1}).to_delayed()[:, 0])
    else:
        raws = _placed([X[start : start + rows] for start in starts])
    parts = tuple(_Part(start, raw) for start, raw in zip(starts, raws, strict=True))
    return Shards(parts, n, d, dtype, np.dtype(X.dtype).itemsize)


def is_dask(X: Any) -> bool:
    """Say whether X is a Dask array."""
    return dask.base.is_dask_collection(X) and hasattr(X, "to_delayed") and hasattr(X, "dtype")


def task_budget() -> int:
    """Return the bytes that one task may take, where the tasks will run."""
    client = _cluster()
    if client is None:
        cores = psutil.cpu_count(logical=True) or 1
        return int(psutil.virtual_memory().available * _USABLE / cores)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [w["memory_limit"] / w["nthreads"] for w in workers if w["memory_limit"]]
    return int(min(limits) * _USABLE) if limits else sys.maxsize


def added(left: Any, right: Any) -> Any:
    """Return the sum of two results: numbers, arrays, or tuples of such; None stays None."""
    if isinstance(left, tuple):
        return tuple(added(a, b) for a, b in zip(left, right, strict=True))
    return None if left is None else left + right


def _default_rows(X: Any, n: int, d: int, dtype: np.dtype[Any]) -> int:
    rows = max(1, min(ROWS_PER_SHARD, _SHARD_BYTES // (d * dtype.itemsize)))
    if isinstance(X, RowSource):
        # Half a chunk costs as much to read as a whole one.
        return X.chunk_rows * max(1, rows // X.chunk_rows)
    if n <= rows:
        return n
    # Four shards or more, all of one size and even in number, make tasks of one size.
    count = max(4, 2 * -(-n // (2 * rows)))
    return -(-n // count)


def _aligned(array: Array) -> Array:
    """Return `array` where BLAS can use it.

    What came over a wire may begin at any byte. NumPy then multiplies by a loop of its own, whose
    last bits differ: the answer would depend on how a message was packed.
    """
    return np.require(array, requirements="A")


def _share(index: int, count: int) -> int:
    """Return how many of `count` on a circle number `index` takes, from itself on."""
    # With an even count the two ends of a diameter would both see it: the first one does.
    return count // 2 + (count % 2 or 2 * index < count)


def _gathered(total: Any, more: Any) -> Any:
    """Return the sum of two results of one task, in the place of the first where it is an array."""
    if isinstance(total, tuple):
        return tuple(_gathered(a, b) for a, b in zip(total, more, strict=True))
    if total is None:
        return None
    total += more
    return total


@contextmanager
def _heard(total: int) -> Iterator[str | None]:
    """Yield what tasks name when they are done, here or on a cluster; None if nobody watches."""
    with counted(total) as topic:
        client = _cluster()
        if topic is None or client is None:
            yield topic
            return
        client.subscribe_topic(topic, lambda _event: done(topic))
        try:
            yield topic
        finally:
            client.unsubscribe_topic(topic)


def _cluster() -> Any:
    """Return the active distributed client, or None; nothing is imported to find out."""
    # Another thread may be half way through the import: then there is no client yet.
    default_client = getattr(sys.modules.get("distributed"), "default_client", None)
    if default_client is None:
        return None
    try:
        return default_client()
    except ValueError:
        return None


def _wait_for_a_worker() -> None:
    client = _cluster()
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
    return {"scheduler": "threads"} if _cluster() is None else {}


def _placed(slices: list[Any]) -> list[Any]:
    """Return `slices` where tasks find them: here, or as tasks of the cluster that remake them."""
    client = _cluster()
    if client is None:
        return slices
    # These go to the scheduler once, inside the tasks, for `scatter` could not remake them.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return list(client.persist([delayed(_itself, pure=False)(item) for item in slices]))


def _itself(item: Any) -> Any:
    return item


def _settle(parts: tuple[_Part, ...]) -> tuple[_Part, ...]:
    client = _cluster()
    facts = [part.facts for part in parts]
    if not any(isinstance(fact, Delayed) for row in facts for fact in row):
        return parts
    with single_threaded_blas():
        run: Callable[..., Any] = dask.base.compute if client is None else dask.base.persist
        (kept,) = run(facts, **_where())
    return tuple(replace(p, facts=tuple(row)) for p, row in zip(parts, kept, strict=True))


def _computed(calls: list[Any]) -> list[Any]:
    if not any(isinstance(call, Delayed) for call in calls):
        return calls
    with single_threaded_blas():
        return list(dask.base.compute(*calls, **_where()))
