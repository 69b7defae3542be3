"""Rows cut into shards with attached facts; folds over shards and over pairs of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
from dask.delayed import Delayed

from ism_dask._types import Array
from ism_dask.rows.execution import (
    as_tasks,
    cluster,
    compute_or_persist,
    computed,
    is_dask,
    reuse_pages,
    task_budget,
    wait_for_a_worker,
)
from ism_dask.rows.raw import (
    RANGE_ROWS,
    LoadedShard,
    RowFact,
    ShardRef,
    SparseRows,
    Standardisation,
    as_dense,
    fits_memory,
    is_row_source,
    tile_dtype,
)
from ism_dask.rows.tasks import Task, as_arguments, as_shared_argument
from ism_dask.threads import single_threaded_blas

# A tile of 2,500 x 2,500 keeps BLAS busy, and its parts stay in the caches of the core.
ROWS_PER_SHARD = 2560
# Shards of wide data have fewer rows, which limits the numbers of a standardised shard.
_SHARD_NUMBERS = 8 * 2**20
# Maximum number of tasks of a fold: each returns a partial sum, which may be large, to add up.
_RUNS = 64
# Rows of a task of a fold, or their bytes: with fewer, a cluster would spend more time on the task
# than in it. A fold that would then have less than the minimum number of tasks has smaller tasks.
_RUN_ROWS, _RUN_BYTES = 8192, 24 * 2**20
_MIN_RUNS = 6
# Maximum size in bytes of the whole shards that are arguments of one task. It does not depend on
# the memory of the workers: the order of the sums, and so the last bits, would change with it.
_TASK_SHARD_BYTES = 256 * 2**20
# What a function returns for the rows, (b, k).
_MADE_ROWS = RowFact("made rows")


@dataclass(frozen=True)
class Shards:
    """Rows cut into shards, with the facts attached to them.

    Make one with `cut`. Facts are arrays with one entry for each row, cut like the rows; each has
    a name, and a new fact replaces an earlier one of the same name. Functions passed to the methods
    must be importable by a worker, must not change their arguments, must return new arrays, and get
    X as float32 or float64.
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

        Rows that were standardised in single precision are made again from their `source`.
        """
        if self.dtype == np.float64:
            return self
        origin = self if self.source is None else self.source
        double = replace(origin, dtype=np.dtype(np.float64))
        return double._with_facts(part.facts for part in self.parts)

    @cached_property
    def n_columns(self) -> int:
        """Number of columns that functions get."""
        return self.affine.n_columns if self.affine else self.n_raw_columns

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """The index of the first row of each shard, then the number of rows."""
        return (*(part.start for part in self.parts), self.n_rows)

    @cached_property
    def largest(self) -> int:
        """Number of rows of the largest shard."""
        return max(stop - start for start, stop in pairwise(self.bounds))

    @property
    def raw_bytes(self) -> int:
        """Size of the largest shard before it is cast and standardised."""
        return self.largest * self.n_raw_columns * self.raw_itemsize

    @property
    def loaded_bytes(self) -> int:
        """Size of the largest shard as functions get it."""
        return self.largest * self.n_columns * self.dtype.itemsize

    @property
    def max_shards_per_task(self) -> int | None:
        """Maximum number of shards passed to one task; None if tasks read shards one by one."""
        read = all(isinstance(part.raw, partial) for part in self.parts)
        return None if read else max(1, _TASK_SHARD_BYTES // self.raw_bytes)

    def standardised(self, affine: Standardisation) -> Shards:
        """Return the shards with rows standardised by `affine` when they are loaded."""
        return replace(self, affine=affine)

    def with_rows(self, fact: RowFact, values: Array) -> Shards:
        """Return the shards with `values` (n, ...) attached as the fact of this name, cut alike."""
        slices = [values[a:b] for a, b in pairwise(self.bounds)]
        return self._attach(fact, as_tasks(slices))

    def derive(self, fact: RowFact, function: Callable[..., Any], *args: Any) -> Shards:
        """Return the shards with `function(piece, *args)` of each shard attached as a fact."""
        if self._inline:
            return self._attach(fact, [self._of_one_shard(function, *args)])
        call = self._task(function, args).with_keys(Task.on_shard)
        return self._attach(fact, [call(None, *as_arguments(part)) for part in self.parts])

    def persisted(self) -> Shards:
        """Return the shards with their facts computed now, for use in many folds."""
        return self._with_facts(compute_or_persist([part.facts for part in self.parts]))

    def every(self, step: int, indices: Array) -> Shards:
        """Return every `step`-th shard that has one of the rows (m,), with all rows and facts."""
        numbers = np.unique(np.searchsorted(self.bounds, indices, side="right") - 1)[::step]
        starts = np.cumsum([0, *np.diff(self.bounds)[numbers]]).tolist()
        some = zip(starts, [self.parts[number] for number in numbers], strict=False)
        parts = tuple(ShardRef(start, part.raw, part.facts) for start, part in some)
        source = None if self.source is None else self.source.every(step, indices)
        return replace(self, parts=parts, n_rows=starts[-1], source=source)

    def on_cluster(self) -> Shards:
        """Return the shards of rows that are here with the rows on the active cluster, if any."""
        raws = as_tasks([part.raw for part in self.parts])
        pairs = zip(self.parts, raws, strict=True)
        return replace(self, parts=tuple(ShardRef(p.start, raw, p.facts) for p, raw in pairs))

    def fact_as_rows(self, fact: RowFact, width: int) -> Shards:
        """Return shards whose rows are a fact (b, width), so that folds do not read X."""
        parts = tuple(ShardRef(part.start, part.facts[fact], part.facts) for part in self.parts)
        return Shards(parts, self.n_rows, width, self.dtype, self.dtype.itemsize)

    def mapped(self, function: Callable[..., Any], width: int, *args: Any) -> Shards:
        """Return shards of the rows `function(piece, *args)` (b, width), computed now, no facts."""
        made = self.derive(_MADE_ROWS, function, *args).persisted().fact_as_rows(_MADE_ROWS, width)
        return made._with_facts({} for _ in made.parts)

    def with_fact_of(self, other: Shards, fact: RowFact) -> Shards:
        """Return the shards with a fact of `other`, which is cut alike, beside their own facts."""
        return self._attach(fact, [part.facts[fact] for part in other.parts])

    def fold(
        self,
        function: Callable[..., Any],
        *args: Any,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the sum over shards of `function(piece, *args)`: an array, or a tuple of arrays.

        Several shards may share a task, which loads them one after the other. `finish` is applied
        to the sum on the worker that has it, since its result may be smaller.
        """
        if self._inline:
            total = self._of_one_shard(function, *args)
            return total if finish is None else finish(total)
        task = self._task(function, args)
        call = task.with_keys(Task.on_shards)
        arguments = [as_arguments(part) for part in self.parts]
        calls = [call(*chain.from_iterable(arguments[run])) for run in self.runs]
        return task.summed(calls, finish)

    def fold_pairs(self, function: Callable[..., Any], *args: Any, calls: int = 4) -> Any:
        """Return the sum of `function(head, tail, *args)` over all unordered pairs of shards.

        `head` is a loaded shard, `tail` an iterator over loaded shards, with the head itself once.
        Each pair of shards occurs once. The tail of a head is split over `calls` calls, or over
        more if `max_shards_per_task` is small.
        """
        if self._inline:
            return self._of_one_shard(lambda piece: function(piece, iter([piece]), *args))
        shared = [as_shared_argument(part) for part in self.parts]
        task = self._task(function, args)
        call = task.with_keys(Task.on_head_and_tail)
        tasks, n = [], len(shared)
        for index, head in enumerate(shared):
            # Each head is paired with the next half of the circle of shards: tasks of one size keep
            # workers equally busy, which the rows of a triangle would not. With an even count both
            # ends of a diameter would take the pair: only the first does.
            n_partners = n // 2 + (n % 2 or 2 * index < n)
            tail = (shared[index:] + shared[:index])[:n_partners]
            # The tail is split, since workers would wait for the last of an odd number of heads.
            size = min(-(-len(tail) // calls), self.max_shards_per_task or len(tail))
            tasks += [call(head, *tail[i : i + size]) for i in range(0, len(tail), size)]
        return task.summed(tasks)

    def gather_fact(self, fact: RowFact) -> Array:
        """Return a fact of all rows (n, ...)."""
        return np.concatenate(computed([part.facts[fact] for part in self.parts]))

    def rows(self, indices: Array) -> Array:
        """Return the rows with ascending `indices` (m,), as functions get them."""
        return self.load_rows(indices).X

    def load_rows(self, indices: Array) -> LoadedShard:
        """Return the rows with ascending `indices` (m,) and their facts, as one loaded shard."""
        if self._inline:
            return self._of_one_shard(_chosen_rows, indices=indices)
        picks = np.split(indices, np.searchsorted(indices, self.bounds[1:-1]))
        take = self._task(_chosen_rows, ()).with_keys(Task.on_shard)
        pairs = zip(self.parts, picks, strict=True)
        chosen = ((pick - part.start, *as_arguments(part)) for part, pick in pairs if len(pick))
        pieces = computed([take(*each) for each in chosen])
        X, names = np.concatenate([piece.X for piece in pieces]), self.parts[0].facts
        facts = {name: np.concatenate([piece.facts[name] for piece in pieces]) for name in names}
        return LoadedShard(0, X, facts)

    def _attach(self, fact: RowFact, column: Sequence[Any]) -> Shards:
        pairs = zip(self.parts, column, strict=True)
        return self._with_facts({**part.facts, fact: values} for part, values in pairs)

    def _with_facts(self, facts: Iterable[Mapping[RowFact, Any]]) -> Shards:
        """Return the shards with these facts in place of their own."""
        pairs = zip(self.parts, facts, strict=True)
        parts = tuple(ShardRef(part.start, part.raw, each) for part, each in pairs)
        return replace(self, parts=parts)

    @property
    def runs(self) -> list[slice]:
        """The shards of each task of a fold, as slices.

        The last tasks have one shard each, so that all workers finish at about the same time.
        """
        n = len(self.parts)
        by_bytes = _RUN_BYTES // max(1, self.loaded_bytes)
        affordable = min(_RUN_ROWS // self.largest, by_bytes, n // _MIN_RUNS)
        size = max(1, affordable, -(-n // _RUNS))
        size = min(size, self.max_shards_per_task or size)
        edges = [*range(0, n - size, size), *range(max(0, n - size), n + 1)]
        return [slice(*pair) for pair in pairwise(edges)]

    @property
    def _inline(self) -> bool:
        """Whether functions are called here: there is one shard, and it is in memory or read."""
        if len(self.parts) > 1 or isinstance(self.parts[0].raw, Delayed):
            return False
        return cluster() is None

    def _of_one_shard(
        self, function: Callable[..., Any], *args: Any, indices: Array | None = None
    ) -> Any:
        """Return `function(piece, *args)` of the only shard, or of some of its rows."""
        with single_threaded_blas():
            return function(self.parts[0].load(self.dtype, self.affine, indices), *args)

    def _task(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Task:
        return Task(self.dtype, self.affine, tuple(self.parts[0].facts), function, args)


def cut(X: Any, rows_per_shard: int | None = None) -> Shards:
    """Return the `Shards` of an array of NumPy or Dask, or of a `RowSource`.

    By default there are equal shards of up to 2,560 rows, fewer for very wide data, and whole
    chunks of a `RowSource`. Rows too large for memory have shards of 2,048 rows, wherever they are.
    """
    wait_for_a_worker()
    reuse_pages()
    n, d = (int(size) for size in X.shape)
    rows = rows_per_shard or _default_rows(X, n, d)
    ranges = [(start, min(start + rows, n)) for start in range(0, n, rows)]
    raws: list[Any]
    if isinstance(X, SparseRows):  # each task takes its own rows along
        raws = [partial(as_dense, X.part(*each)) for each in ranges]
    elif is_row_source(X):
        raws = [partial(X.read, *each) for each in ranges]
    elif is_dask(X):
        raws = list(X.rechunk({0: rows, 1: -1}).to_delayed()[:, 0])
    else:
        raws = as_tasks([X[start:stop] for start, stop in ranges])
    parts = tuple(ShardRef(start, raw, {}) for (start, _), raw in zip(ranges, raws, strict=True))
    shards = Shards(parts, n, d, tile_dtype(X.dtype), np.dtype(X.dtype).itemsize)
    # A task needs the shard as stored, its cast copy, and one more copy to work with.
    needed, budget = shards.raw_bytes + 2 * shards.loaded_bytes, task_budget()
    if needed > budget:
        raise MemoryError(
            f"a shard of {shards.largest} rows x {d} columns needs "
            f"{needed / 2**20:.0f} MiB, but a task may take {budget / 2**20:.0f} MiB here; give "
            "the workers more memory or fewer threads, or store X in chunks of fewer rows"
        )
    return shards


def _default_rows(X: Any, n: int, d: int) -> int:
    rows, are_large = max(1, min(ROWS_PER_SHARD, _SHARD_NUMBERS // d)), not fits_memory((n, d))
    if are_large:
        rows = min(RANGE_ROWS, 1 << (rows.bit_length() - 1))
    if is_row_source(X):
        # To read half a chunk costs as much as to read all of it.
        return X.chunk_rows * max(1, rows // X.chunk_rows)
    if n <= rows:
        return n
    if are_large:
        return rows
    # Four or more shards of one size, even in number, make tasks of one size.
    return -(-n // max(4, 2 * -(-n // (2 * rows))))


def _chosen_rows(piece: LoadedShard) -> LoadedShard:
    return piece
