"""The rows of a prediction, and what X W is to predict of them: y itself, or its law.

A fit begins on few rows and grows: it continues on more, with a width and ridge chosen anew. The
rows that join have not been seen by W, so that the errors of their regressions, each row predicted
by the others, choose the width and the ridge without favour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.landmark_regression import TARGET
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.engines.base import SAMPLE_ROWS
from ism_dask.estimators.preparation import Prepared
from ism_dask.gamma.base import AvoidingDependence, Dependence, repeated_rows
from ism_dask.gamma.row_values import near_zero
from ism_dask.gamma.targets import CLASS_TARGETS, NUMERIC_KERNELS, target_name
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import largest_pairs
from ism_dask.linalg.subspaces import centred_by
from ism_dask.rows.execution import on_this_machine
from ism_dask.rows.raw import (
    MANY_ROWS,
    LoadedShard,
    deal,
    fits_memory,
)
from ism_dask.rows.shards import Shards
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample
from ism_dask.solvers.base import TimeLimit

# The names of the two targets of numbers.
MEAN, LAW = "mean", "law"


@dataclass(frozen=True, eq=False)
class Target:
    """What a regression on X W is to predict: y itself, the "mean", or functions of y, the "law".

    The law differs, too, where only the spread of y depends on X. Columns of Y (n, r) have mean 0;
    the rows of those to predict have a mean square of 1. The signs (r,) are the weights of the
    columns in J, negative for what X W is not to predict. Rows of similar y have similar keys (n,).
    """

    name: str
    Y: Array
    keys: Array
    signs: Array | None = None


def prediction_targets(
    y: Array,
    target: str,
    weights: Array | None,
    dependence_on: Callable[..., Dependence],
) -> dict[str, Target]:
    """Return what X W may have to predict, with y read as `target` says.

    It is the "mean" of y, or the "law", its leading functions under a kernel, or one of both. In
    the last case they are functions of the ranks of y, which outliers do not rule. `dependence_on`
    returns the dependence to explain for a reading of y or of its ranks.
    """
    name, counts = target_name(y, target), np.ones(len(y)) if weights is None else weights
    if name not in NUMERIC_KERNELS:
        return {MEAN: _target(MEAN, y, name, counts, dependence_on(name))}
    if target == name:
        return {LAW: _target(LAW, y, name, counts, dependence_on(name))}
    law = dependence_on(name, of_ranks=True)
    return {
        MEAN: _target(MEAN, y, "linear", counts, dependence_on("linear")),
        LAW: _target(LAW, y, name, counts, law),
    }


def _target(name: str, y: Array, reading: str, counts: Array, dependence: Dependence) -> Target:
    """Return the target of y as `reading` says, and of what X W is not to predict."""
    explained = dependence.explained if isinstance(dependence, AvoidingDependence) else dependence
    U = explained.scaled_factor
    if reading in NUMERIC_KERNELS:
        U = _leading(U, counts, min(RULES.law_functions, U.shape[1]))
    U = _oriented(U) if reading == "linear" else U
    Y = _unit(U, counts)
    # Rows of similar y have similar keys, whatever its sign or class names.
    if y.ndim > 1:
        keys = _leading(U, counts, 1)
    elif reading in CLASS_TARGETS:
        _, firsts, codes = np.unique(y, return_index=True, return_inverse=True)
        keys = np.argsort(np.argsort(firsts))[codes].astype(np.float64)[:, None]
    else:
        keys = near_zero(y).astype(np.float64)[:, None]
    keys = (keys if reading in CLASS_TARGETS else _oriented(keys))[:, 0]
    if not isinstance(dependence, AvoidingDependence):
        return Target(name, Y, keys)
    S = _unit(dependence.avoided.scaled_factor, counts)
    signs = np.repeat([1.0, -dependence.weight], [Y.shape[1], S.shape[1]])
    return Target(name, np.hstack([Y, S]), keys, signs)


def _oriented(columns: Array) -> Array:
    """Return columns (n, r) with signs such that the first number that differs is above the first.

    So rows are dealt in the same way for y and for -y, which could else end in different maxima.
    """
    other = (columns != columns[0]).argmax(axis=0)
    falls = columns[other, np.arange(columns.shape[1])] < columns[0]
    return np.where(falls, -columns, columns)


def _leading(U: Array, counts: Array, number: int) -> Array:
    """Return the leading functions (n, number) of rows that count by `counts` (n,)."""
    centred = centred_by(U.astype(np.float64), counts)
    return np.asarray(centred @ largest_pairs(centred.T @ (counts[:, None] * centred), number)[1])


def _unit(U: Array, counts: Array) -> Array:
    """Return U (n, r), centred, with rows of mean square 1, where rows count by `counts` (n,)."""
    centred = centred_by(U.astype(np.float64), counts)
    return np.asarray(centred / np.sqrt(counts @ (centred**2).sum(axis=1) / counts.sum()))


# The rows.


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The prepared rows of a fit with what X W may have to predict: one target by name, or two.

    They are dealt by a seed into samples, stages and blocks. The kernel is the user's. Rows of one
    of the `groups` (n,) judge only what was fitted to other groups.
    """

    prepared: Prepared
    targets: dict[str, Target]
    weights: Array | None
    kernel: Kernel
    seed: int
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    groups: Array | None = None
    _samples: dict[tuple[str, int], Sample] = field(default_factory=dict, init=False)
    _shards: dict[str, Shards] = field(default_factory=dict, init=False)

    @property
    def first_target(self) -> Target:
        """The target whose keys deal the rows of the choices."""
        return next(iter(self.targets.values()))

    def sample(self, target: Target, q: int) -> Sample:
        """Return the rows on which a fit of q new features makes its choices, made once."""
        if (key := (target.name, q)) not in self._samples:
            first, rows = self._first
            counted = rows.X
            if self.weights is not None:
                counted = counted[repeated_rows(self.weights[first], SAMPLE_ROWS)]
            counted = self.prepared.with_others(counted)
            kernel = self.kernel.resolve(counted, self.prepared.column_share(q))
            self._samples[key] = Sample(
                replace(rows, Y=target.Y[first]),
                target.keys[first],
                RidgeRegression(kernel, 1.0, target.signs),
                self.kernel.width_is_free,
                q,
                self.seed,
                self.time_limit,
            )
        return self._samples[key]

    @cached_property
    def _first(self) -> tuple[Array, RowsInMemory]:
        """The numbers (m,) of the rows of the choices, and these in double precision."""
        keys = self.first_target.keys
        stages = self.stages(keys)
        first = stages[0] if stages else self.counting
        rows = self.block(self.first_target, first, self.prepared.shards.in_double())
        weights = None if rows.weights is None else rows.weights / rows.weights.mean()
        return first, replace(rows, weights=weights)

    @property
    def n_rows(self) -> int:
        """The number of rows, n."""
        return self.prepared.shards.n_rows

    @cached_property
    def counting(self) -> Array:
        """The numbers (k,) of the rows that count; those in memory all do."""
        return np.arange(self.n_rows) if self.weights is None else np.flatnonzero(self.weights)

    @property
    def are_one_block(self) -> bool:
        """Whether the rows are so few that one regression has them all."""
        return len(self.counting) <= RULES.exact_rows

    @cached_property
    def stage_sizes(self) -> tuple[int, ...]:
        """The numbers of rows of the stages of growth; none if one regression has all rows."""
        if self.are_one_block:
            return ()
        most = max(RULES.stages[0], RULES.stage_numbers // self.prepared.n_varying)
        most = min(most, int(len(self.counting) / RULES.least_growth))
        return tuple(size for size in RULES.stages if size <= most)

    @property
    def selection_steps(self) -> int:
        """The steps of the choices that a watcher hears of: each target, then each stage."""
        return len(self.targets) + len(self.stage_sizes)

    def stages(self, keys: Array) -> list[Array]:
        """Return the row numbers of the stages of growth.

        Each stage has the rows of the one before. `keys` (n,) deal the rows.
        """
        if not self.stage_sizes:
            return []
        counting, keys = self.counting, keys[self.counting]
        # Half of the groups join late, so that rows of theirs can judge.
        groups = None if self.groups is None else self.groups[counting]
        halves = [np.arange(len(keys))] if groups is None else deal(keys, 2, self.seed, groups)
        hands = [
            (half, deal(keys[half], len(half) // RULES.hand_rows, self.seed)) for half in halves
        ]
        order = np.concatenate([half[rows] for half, dealt in hands for rows in dealt])
        return [counting[np.sort(order[:size])] for size in self.stage_sizes]

    def of_other_groups(self, rows: Array, seen: Array) -> Array:
        """Return those of the rows (k,) that are not in groups of the rows seen (m,)."""
        if self.groups is None:
            return np.setdiff1d(rows, seen)
        return rows[~np.isin(self.groups[rows], self.groups[seen])]

    def some(self, keys: Array, rows: Array, most: int) -> Array:
        """Return up to `most` of the rows (k,), dealt by the keys (n,) of all rows."""
        return rows[deal(keys[rows], -(-len(rows) // most), self.seed)[0]]

    def block(self, target: Target, rows: Array, shards: Shards | None = None) -> RowsInMemory:
        """Return some of the rows (k,), in ascending order, as one block."""
        facts = (self.weights, self.groups)
        weights, groups = (None if fact is None else fact[rows] for fact in facts)
        # A cluster need not send rows that are here.
        with on_this_machine(self._are_here):
            X = (shards or self._precise).rows(rows)
        return RowsInMemory(X, target.Y[rows], weights, groups, rows)

    def blocks(self, target: Target, rows: Array, count: int) -> list[RowsInMemory]:
        """Return some of the rows (k,), in ascending order, dealt into blocks."""
        some = self.block(target, rows)
        dealt = deal(target.keys[rows], count, self.seed, some.groups)
        return [some.part(part) for part in dealt if len(part)]

    def with_target(self, target: Target) -> Shards:
        """Return the shards of all rows with what X W is to predict, and their weights, made once.

        So a cluster gets the rows once, and rows that fit into memory are standardised once.
        """
        if target.name not in self._shards:
            whole = RowsInMemory(np.empty((self.n_rows, 0)), target.Y, self.weights)
            shards = self._precise
            if self._are_here:
                shards = shards.on_cluster().mapped(_rows_of, shards.n_columns)
            shards = shards.with_rows(TARGET, whole.target_and_weights).persisted()
            self._shards[target.name] = shards
        return self._shards[target.name]

    @property
    def _are_here(self) -> bool:
        return fits_memory((self.n_rows, len(self.prepared.affine.varying)))

    @property
    def _precise(self) -> Shards:
        """The rows; few of them are in double precision, whatever their type."""
        shards = self.prepared.shards
        return shards if self.n_rows >= MANY_ROWS else shards.in_double()


def _rows_of(piece: LoadedShard) -> Array:
    return piece.X
