"""Rows cut into shards, with what is known of them; folds over shards and over pairs of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from dask.delayed import Delayed, delayed

from ism_dask._types import Array
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.rows.cluster import (
    cluster,
    computed,
    is_dask,
    once_for_each_worker,
    placed,
    settle,
    task_budget,
    wait_for_a_worker,
)
from ism_dask.rows.source import RowRange, is_row_source
from ism_dask.rows.standardise import Standardisation, tile_dtype
from ism_dask.rows.tasks import LoadedShard, ShardRef, Task
from ism_dask.rows.worker import reuse_pages

# A tile of 2,500 x 2,500 keeps BLAS busy, and its parts stay near the core.
ROWS_PER_SHARD = 2560
# Wide data gets fewer rows, so that a standardised shard stays about this large.
_SHARD_BYTES = 64 * 2**20
# Tasks of a fold at most: each brings a partial sum, which may be large and has to be added.
_RUNS = 64
# Rows, or bytes of them, that a task of a fold sees: with fewer a cluster would spend more time on
# the task than in it; but so many tasks there should be.
_RUN_ROWS, _RUN_BYTES = 8192, 24 * 2**20
_LEAST_RUNS = 6
# Whole shards that a task is handed at once take up to this many bytes. Not what the workers
# happen to have: the sums, and so the last bits, would change with it.
_HANDED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Shards:
    """Rows cut into shards, with what is known of them.

    Make one with `cut`. Functions given to the methods must be importable by a worker, must not
    change what they get, return arrays of their own, and see X as float32 or float64.
    """

    parts: tuple[ShardRef, ...]
    n_rows: int
    n_raw_columns: int
    dtype: np.dtype[Any]
    raw_itemsize: int
    affine: Standardisation | None = None
    source: Shards | None = None

    def in_double(self) -> Shards:
        """Return the same rows in double precision, with the same facts.

        Rows that were standardised in single precision come from their `source` again.
        """
        if self.dtype == np.float64:
            return self
        origin = self if self.source is None else self.source
        parts = zip(origin.parts, self.parts, strict=True)
        return replace(
            origin,
            parts=tuple(replace(raw, facts=own.facts) for raw, own in parts),
            dtype=np.dtype(np.float64),
        )

    def backed_by(self, source: Shards) -> Shards:
        """Return the shards with what they were made from, cut alike, for `in_double`."""
        return replace(self, source=source)

    @cached_property
    def n_columns(self) -> int:
        """Columns that functions see."""
        return int(self.affine.kept.sum()) if self.affine else self.n_raw_columns

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """The first row of each shard, and the number of rows."""
        return (*(part.start for part in self.parts), self.n_rows)

    @cached_property
    def largest(self) -> int:
        """Rows of the largest shard."""
        return max(stop - start for start, stop in pairwise(self.bounds))

    @property
    def raw_bytes(self) -> int:
        """What the largest shard takes before it is cast and standardised."""
        return self.largest * self.n_raw_columns * self.raw_itemsize

    @property
    def handed(self) -> int | None:
        """How many shards a task may be handed at once; None where it reads them one by one."""
        read = all(isinstance(part.raw, RowRange) for part in self.parts)
        return None if read else max(1, _HANDED_BYTES // self.raw_bytes)

    def some(self, numbers: Sequence[int]) -> Shards:
        """Return the shards with these numbers, as all there are."""
        parts = [self.parts[number] for number in numbers]
        sizes = [self.bounds[number + 1] - self.bounds[number] for number in numbers]
        starts = [0, *np.cumsum(sizes).tolist()]
        moved = tuple(replace(part, start=at) for part, at in zip(parts, starts, strict=False))
        source = None if self.source is None else self.source.some(numbers)
        return replace(self, parts=moved, n_rows=starts[-1], source=source)

    def standardised(self, affine: Standardisation) -> Shards:
        """Return the shards seen through `affine`."""
        return replace(self, affine=affine)

    def with_rows(self, values: Array) -> Shards:
        """Return the shards with `values` (n, ...) attached, cut alike."""
        slices = [values[a:b] for a, b in pairwise(self.bounds)]
        return self._attach(placed(slices))

    def derive(self, function: Callable[..., Any], *args: Any) -> Shards:
        """Return the shards with `function(piece, *args)` of each attached, computed once."""
        return self._attach(self._map(function, args, self.parts))

    def settled(self) -> Shards:
        """Return the shards with what `derive` attached computed now, for use in many folds."""
        facts = settle([part.facts for part in self.parts])
        parts = zip(self.parts, facts, strict=True)
        return replace(self, parts=tuple(replace(p, facts=tuple(row)) for p, row in parts))

    def through(self, width: int, fact: int = -1) -> Shards:
        """Return the shards whose rows are one of their facts (b, width): folds do not read X.

        It is the last one where nothing else is said.
        """
        parts = tuple(replace(part, raw=part.facts[fact]) for part in self.parts)
        size = self.dtype.itemsize
        return replace(
            self, parts=parts, n_raw_columns=width, raw_itemsize=size, affine=None, source=None
        )

    def times(self, matrix: Array) -> Shards:
        """Return the shards with rows times `matrix` (d, k), computed now, without any facts."""
        products = self.derive(_times, matrix).settled().through(matrix.shape[1])
        parts = tuple(replace(part, facts=()) for part in products.parts)
        return replace(products, parts=parts)

    def joined(self, other: Shards) -> Shards:
        """Return the shards with the last fact of `other`, which is cut alike, as one more."""
        return self._attach([part.facts[-1] for part in other.parts])

    def sharing(self, other: Shards) -> Shards:
        """Return the shards with the last fact of `other`, which is cut alike, as their only one.

        Other facts stay behind: a Gamma and its rows go together.
        """
        parts = zip(self.parts, other.parts, strict=True)
        return replace(self, parts=tuple(replace(p, facts=o.facts[-1:]) for p, o in parts))

    def fold(
        self,
        function: Callable[..., Any],
        *args: Any,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the sum over shards of `function(piece, *args)`: arrays, or tuples of such.

        Several shards may share a task, which then sees them one after the other. `finish` is
        called with the sum where that lies, for what it makes may be smaller.
        """
        work = self._work(function, *args)
        if self._inline:
            with single_threaded_blas():
                total = work.on_piece(self.parts[0].fields)
            return total if finish is None else finish(total)
        task = self._task(Task.on_run, work)
        fields = [part.fields for part in self.parts]
        return work.summed([task(fields[run]) for run in self._runs], finish)

    def fold_pairs(self, function: Callable[..., Any], *args: Any, calls: int = 4) -> Any:
        """Return the sum of `function(head, tail, *args)` over all unordered pairs of shards.

        `head` is a piece, `tail` an iterator over pieces, the head itself among them once: each
        pair of shards is seen once, by some `calls` for each head, more where `handed` is few.
        """
        bundles = [part.bundle for part in self.parts]
        work = self._work(function, *args)
        stripe = self._task(Task.on_stripe, work)
        tasks = []
        for index, head in enumerate(bundles):
            # Each head takes the next half of the circle: tasks of one size keep workers even,
            # where the rows of a triangle would not.
            tail = (bundles[index:] + bundles[:index])[: _share(index, len(bundles))]
            # Parts of them, for workers that would wait for the last of an odd number of heads.
            size = min(-(-len(tail) // calls), self.handed or len(tail))
            tasks += [stripe(head, tail[i : i + size]) for i in range(0, len(tail), size)]
        return work.summed(tasks)

    def fold_some_pairs(
        self,
        function: Callable[..., Any],
        chosen: Sequence[Sequence[int]],
        tails: Shards,
        *args: Any,
    ) -> Any:
        """Return the sum over shards of `function(head, tail, *args)`.

        `head` is a piece, `tail` an iterator over the pieces of `tails`, which are cut alike, that
        `chosen` lists for it by number. A head sees them in several calls where they are more
        than `handed`.
        """
        work, loader = self._work(function, *args), tails._work(_itself)
        stripe = self._task(Task.on_some_pairs, work)
        bundles = [part.bundle for part in tails.parts]
        tasks = []
        for part, numbers in zip(self.parts, chosen, strict=True):
            head, tail = part.bundle, [bundles[number] for number in numbers]
            size = tails.handed or max(1, len(tail))
            tasks += [stripe(loader, head, tail[i : i + size]) for i in range(0, len(tail), size)]
        return work.summed(tasks)

    def gathered(self) -> Array:
        """Return the last fact of all rows (n, ...)."""
        facts = computed([part.facts[-1] for part in self.parts])
        return np.concatenate(facts)

    def rows(self, indices: Array) -> Array:
        """Return the rows numbered `indices` (m,), rising, as functions see them."""
        return self.pick(indices).X

    def pick(self, indices: Array) -> LoadedShard:
        """Return the rows numbered `indices` (m,), rising, with their facts, as one piece."""
        picks = np.split(indices, np.searchsorted(indices, self.bounds[1:-1]))
        take = self._task(Task.on_picked, self._work(_itself))
        calls = [
            take(part.fields, pick - part.start)
            for part, pick in zip(self.parts, picks, strict=True)
            if len(pick)
        ]
        pieces = computed(calls)
        facts = zip(*(piece.facts for piece in pieces), strict=True)
        return LoadedShard(
            0,
            np.concatenate([piece.X for piece in pieces]),
            tuple(np.concatenate(column) for column in facts),
        )

    def _attach(self, column: Sequence[Any]) -> Shards:
        parts = zip(self.parts, column, strict=True)
        return replace(self, parts=tuple(replace(p, facts=(*p.facts, c)) for p, c in parts))

    @property
    def runs(self) -> int:
        """How many tasks a fold has, each with a partial sum."""
        return len(self._runs)

    @property
    def _runs(self) -> list[slice]:
        """Which shards share a task of a fold; the last ones do not, so that all workers end."""
        count, size = len(self.parts), self._run_length
        edges = [*range(0, count - size, size), *range(max(0, count - size), count + 1)]
        return [slice(*pair) for pair in pairwise(edges)]

    @property
    def _run_length(self) -> int:
        tile = self.largest * self.n_columns * self.dtype.itemsize
        count = len(self.parts)
        light = min(_RUN_ROWS // self.largest, _RUN_BYTES // tile, count // _LEAST_RUNS)
        size = max(1, light, -(-count // _RUNS))
        return min(size, self.handed or size)

    @property
    def _inline(self) -> bool:
        if len(self.parts) > 1 or isinstance(self.parts[0].raw, Delayed):
            return False
        return cluster() is None

    def _map(
        self, function: Callable[..., Any], args: tuple[Any, ...], parts: Sequence[ShardRef]
    ) -> list[Any]:
        task = self._task(Task.on_piece, self._work(function, *args))
        return [task(part.fields) for part in parts]

    def _work(self, function: Callable[..., Any], *args: Any) -> Task:
        return Task(self.dtype, self.affine, function, args)

    def _task(self, method: Callable[..., Any], work: Task) -> Callable[..., Any]:
        """Return what calls `method` of `work` here and now, or makes a Dask task of it."""
        if not self._inline:
            shared, task = once_for_each_worker(work), delayed(method, pure=False)
            return lambda *args: task(shared, *args, dask_key_name=work.next_key())

        def call(*args: Any) -> Any:
            with single_threaded_blas():
                return method(work, *args)

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
    wait_for_a_worker()
    reuse_pages()
    n, d = (int(size) for size in X.shape)
    dtype = tile_dtype(X.dtype)
    rows = rows_per_shard or _default_rows(X, n, d, dtype)
    starts = range(0, n, rows)
    if is_row_source(X):
        raws: list[Any] = [RowRange(X, start, min(start + rows, n)) for start in starts]
    elif is_dask(X):
        raws = list(X.rechunk({0: rows, 1: -1}).to_delayed()[:, 0])
    else:
        raws = placed([X[start : start + rows] for start in starts])
    parts = tuple(ShardRef(start, raw) for start, raw in zip(starts, raws, strict=True))
    shards = Shards(parts, n, d, dtype, np.dtype(X.dtype).itemsize)
    _refuse_beyond_memory(shards)
    return shards


def _refuse_beyond_memory(shards: Shards) -> None:
    """Refuse shards that no task could hold: as stored, cast, and once more to work with."""
    needed = shards.raw_bytes + 2 * shards.largest * shards.n_columns * shards.dtype.itemsize
    budget = task_budget()
    if needed > budget:
        raise MemoryError(
            f"a shard of {shards.largest} rows x {shards.n_columns} columns needs "
            f"{needed / 2**20:.0f} MiB, but a task may take {budget / 2**20:.0f} MiB here; give "
            "the workers more memory or fewer threads, or store X in chunks of fewer rows"
        )


def _default_rows(X: Any, n: int, d: int, dtype: np.dtype[Any]) -> int:
    rows = max(1, min(ROWS_PER_SHARD, _SHARD_BYTES // (d * dtype.itemsize)))
    if is_row_source(X):
        # Half a chunk costs as much to read as a whole one.
        return X.chunk_rows * max(1, rows // X.chunk_rows)
    if n <= rows:
        return n
    # Four shards or more, all of one size and even in number, make tasks of one size.
    count = max(4, 2 * -(-n // (2 * rows)))
    return -(-n // count)


def _share(index: int, count: int) -> int:
    """Return how many of `count` on a circle number `index` takes, from itself on."""
    # With an even count the two ends of a diameter would both see it: the first one does.
    return count // 2 + (count % 2 or 2 * index < count)


def _itself(piece: LoadedShard) -> LoadedShard:
    return piece


def _times(piece: LoadedShard, matrix: Array) -> Array:
    return np.asarray(piece.X @ matrix.astype(piece.X.dtype))
