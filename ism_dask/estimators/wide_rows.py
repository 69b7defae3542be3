"""Fits to sparse rows with many columns, such as words: Phi (d, d) is never computed.

W is fitted in a subspace of a few directions, where the rows are dense and Phi is small. Then it
climbs along the gradient of J in all d columns, which sparse products give, and the subspace takes
in the W that it comes to. This ends when W is stationary in all columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines import Auto, Engine, Problem, as_engine, first_that_serves
from ism_dask.estimators.fit_rows import FitRows
from ism_dask.estimators.preparation import Prepared, Report, standardisation
from ism_dask.gamma.base import GAMMA_FACTS, Dependence, Gamma
from ism_dask.kernels import Kernel
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import RESIDUAL, Stopping
from ism_dask.rows.blocks import MEMORY_NUMBERS, fits_memory
from ism_dask.rows.column_statistics import ROW_WEIGHTS
from ism_dask.rows.execution import check_memory_here
from ism_dask.rows.shards import Shards, cut
from ism_dask.rows.sparse import is_sparse
from ism_dask.rows.standardise import Standardisation
from ism_dask.rows.tasks import LoadedShard
from ism_dask.solvers.ism import continue_from
from ism_dask.solvers.lbfgs import Precondition, lbfgs_ascent
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.solvers.solver_log import SolverLog
from ism_dask.stationarity import with_true_residual
from ism_dask.status import Status

# Sparse rows with up to this many columns are made dense, a task's rows at a time.
MOST_DENSE_COLUMNS = 2000
# Directions of largest variance in the first subspace, and the steps of the iteration for them.
_DIRECTIONS, _STEPS = 48, 4
# Up to this number of rows, the first subspace has all directions in which they vary.
_FEW_ROWS = 500
# The most arrays of the size of the basis at a time: partial sums over rows.
_BASES = 20
# The most times that W climbs in all columns.
_CLIMBS = 6
# The climb ends at this share of the residual that `converged_` allows, or when J is still.
_REST, _STILL = 0.4, 1e-9
# Directions are dependent on others if this share of their length, or less, is left beside these.
_DEPENDENT = 1e-10


@dataclass(frozen=True)
class WidePrepared(Prepared):
    """Sparse rows in a subspace of their columns, with the rows themselves.

    Outside of the subspace the rows vary, too, so that W may not use these directions.

    Attributes
    ----------
    rows : Shards
        The sparse rows (n, d), standardised when they are loaded.
    """

    basis: Array = field(kw_only=True)
    rows: Shards = field(kw_only=True)

    def column_share(self, q: int) -> float:
        """Return q / r, as widths are taken from distances in the subspace."""
        return min(q / self.n_varying, 1.0)

    def lift(self, directions: Array) -> Array:
        """Return directions of the subspace (k, r) in terms of the features (k, d).

        Directions (k, d) are in terms of the features already: W is while it climbs.
        """
        return directions if directions.shape[1] == len(self.origin) else super().lift(directions)

    def extended(self, W: Array) -> WidePrepared:
        """Return the rows in the subspace with the directions of W (d, q) added, after its own."""
        added = W
        for _ in range(2):  # the second time removes the rounding of the first
            outside = added - self.basis @ (self.basis.T @ added)
            added = _orthonormal(outside[:, np.linalg.norm(outside, axis=0) > _DEPENDENT])
        return _within(self.rows, self.affine, self.origin, np.hstack([self.basis, added]))


def is_wide(X: Any) -> bool:
    """Return whether X is sparse with too many columns for dense rows and for Phi."""
    return is_sparse(X) and X.shape[1] > MOST_DENSE_COLUMNS


def check_dense(X: Any, what: str, advice: str = "", n_rows: int | None = None) -> None:
    """Raise a ValueError if sparse rows would be too large; `what` needs dense ones.

    `n_rows` is their number, if it is not that of X.
    """
    n, d = n_rows or X.shape[0], X.shape[1]
    if is_wide(X) and not fits_memory((n, d)):
        raise ValueError(
            f"{what} needs dense rows, and {n} x {d} numbers are too many to make the sparse X "
            f"dense; expected at most {MOST_DENSE_COLUMNS} columns, or {MEMORY_NUMBERS:,} numbers"
            f"{advice}"
        )


def prepare_wide(
    X: Any,
    kernel: Kernel,
    dependence: Dependence,
    *,
    standardize: bool,
    weights: Array | None,
) -> WidePrepared:
    """Return sparse rows X (n, d) in a first subspace: that of Phi0, and of largest variance.

    For kernels with one width, Phi0 has the range of `X^T U` if `U U^T` is Gamma: thin products
    give the spectral start.
    """
    n, d = X.shape
    if any(term.per_row_width for _, term in kernel.terms):
        raise ValueError(
            f"X is sparse with {d} columns, and the widths of this kernel belong to rows, so that "
            f"it needs dense rows; expected at most {MOST_DENSE_COLUMNS} columns, or a kernel with "
            'one width such as "gaussian"'
        )
    _check_memory(n, d, X.dtype.itemsize)
    raw = cut(X)
    raw = raw if weights is None else raw.with_rows(ROW_WEIGHTS, weights)
    affine, origin = standardisation(raw, kernel, standardize=standardize)
    if not affine.varying.any():
        raise ValueError("all features are constant over these rows; there is nothing to reduce")
    # Constant columns stay: they are 0 once the mean is subtracted, and so is W there.
    affine = replace(affine, varying=np.ones(d, dtype=bool), indicators=None)
    rows = raw.standardised(affine)
    gamma, facts = dependence.weighted
    start = rows.with_rows(GAMMA_FACTS, facts).fold(_times_factor, gamma)
    count = n - 1 if n <= _FEW_ROWS else _DIRECTIONS
    directions = np.hstack([start, _directions_of_variance(rows, count)])
    return _within(rows, affine, origin, _orthonormal(directions))


def _within(rows: Shards, affine: Standardisation, origin: Array, basis: Array) -> WidePrepared:
    """Return sparse rows (n, d) in the subspace with an orthonormal basis (d, r)."""
    shards = rows.in_double().times(basis).cast(rows.dtype)
    return WidePrepared(shards, affine, origin, varying_only=True, basis=basis, rows=rows)


def _check_memory(n: int, d: int, itemsize: int) -> None:
    """Raise a MemoryError unless the rows in a subspace, and sums of its size, fit into memory."""
    r = _DIRECTIONS if n > _FEW_ROWS else n
    needed = n * r * (itemsize + 2 * 8) + _BASES * 8 * d * r
    check_memory_here(
        needed, f"{n} sparse rows of {d} columns in {r} directions", "take fewer rows or columns"
    )


def _directions_of_variance(rows: Shards, count: int) -> Array:
    """Return directions (d, count) near those of largest variance, by subspace iteration."""
    rng = np.random.default_rng(count)
    basis = rng.normal(size=(rows.n_columns, count))
    for _ in range(_STEPS):
        basis = rows.fold(_gram_times, scipy.linalg.qr(basis, mode="economic")[0])
    return basis


def _times_factor(piece: LoadedShard, gamma: Gamma) -> Array:
    return np.asarray(piece.X.T @ gamma.factor(piece.facts[GAMMA_FACTS]), dtype=np.float64)


def _gram_times(piece: LoadedShard, basis: Array) -> Array:
    return np.asarray(piece.X.T @ (piece.X @ basis.astype(piece.X.dtype)), dtype=np.float64)


def _orthonormal(directions: Array) -> Array:
    """Return an orthonormal basis (d, r) of the span of directions (d, k)."""
    lengths = np.linalg.norm(directions, axis=0)
    unit = directions[:, lengths > 0] / lengths[lengths > 0]
    Q, R, _ = scipy.linalg.qr(unit, mode="economic", pivoting=True)
    return np.asarray(Q[:, np.abs(np.diag(R)) > _DEPENDENT])


def fit_wide(
    search: MultistartSearch,
    dependence: Dependence,
    rows: FitRows,
    start: State | None,
    report: Report,
) -> tuple[Solution, FitRows]:
    """Return the solution in a subspace, and the rows in it.

    `search` looks for W in each subspace; `rows` are those in the first one.
    """
    started, q = time.perf_counter(), rows.q
    if isinstance(search.engine, Auto):
        # J in all columns, whose rows are sparse, has to be that of the search.
        search = replace(search, engine=replace(search.engine, blocks=False))
    engines = as_engine(search.engine).engines(_wide_problem(rows, dependence), q)
    solution = search.run(rows.problem(dependence), q, start)
    for _ in range(_CLIMBS):
        in_columns = first_that_serves(engines, partial(_in_all_columns, rows, solution))
        stopping = search.stopping.after(time.perf_counter() - started)
        if in_columns.residual <= RESIDUAL or stopping.is_spent(solution.n_iter, 0.0):
            break
        climb = partial(_climb, rows, in_columns, stopping, search.on_iteration)
        reached = first_that_serves(engines, climb)
        rows = _extended(rows, reached.best.W)
        search = replace(search, on_iteration=partial(report, rows.prepared))
        before = replace(solution, n_iter=reached.iteration, history=reached.history)
        state = continue_from(before, rows.prepared.lower(reached.best.W.T))
        solution = search.run(rows.problem(dependence), q, state)
        # J by landmarks jumps from W to W, which ends a climb early: the next one takes more.
        finer = engines[0].finer() if engines[0].approximate else None
        engines = engines if finer is None else [finer, *engines]
    else:
        in_columns = first_that_serves(engines, partial(_in_all_columns, rows, solution))
    residual, residual_rows = in_columns.residual, in_columns.residual_rows
    if solution.status is Status.CONVERGED and residual > RESIDUAL:
        approximate = any(each.approximate for each in engines if each.name == solution.engine)
        solution = replace(solution, status=Status.APPROXIMATE if approximate else Status.STALLED)
    solution = replace(solution, residual=residual, residual_rows=residual_rows)
    return solution, rows


def _wide_problem(rows: FitRows, dependence: Dependence) -> Problem:
    """Return the problem of the sparse rows, in all columns."""
    wide = _wide(rows)
    shards = wide.rows.in_double() if rows.shards.dtype == np.float64 else wide.rows
    sample = wide.rows.in_double().rows(rows.chosen)
    return Problem.from_dependence(shards, rows.kernel, dependence, sample=sample, seed=rows.seed)


def _in_all_columns(rows: FitRows, solution: Solution, engine: Engine) -> Solution:
    """Return a solution in terms of all columns, with its residual under the true kernel."""
    W = rows.prepared.lift(solution.W.T).T
    evaluation = engine.gradient(W)
    in_columns = replace(solution, W=W, product=evaluation.product, in_double=True)
    return with_true_residual(engine, in_columns)


def _climb(
    rows: FitRows,
    solution: Solution,
    stopping: Stopping,
    on_iteration: Callable[[State], None] | None,
    engine: Engine,
) -> State:
    """Return the last state of a climb by L-BFGS from the W (d, q) of a solution."""
    start = continue_from(solution)
    log = SolverLog(
        engine, rows.q, stopping, on_iteration, start, rest=_REST * RESIDUAL, still=_STILL
    )
    steps = lbfgs_ascent(log.evaluate, log.start, log.evaluation, _precondition(rows))
    log.follow(steps)
    return log.state


def _wide(rows: FitRows) -> WidePrepared:
    return cast(WidePrepared, rows.prepared)


def _extended(rows: FitRows, W: Array) -> FitRows:
    """Return the rows in the subspace with the directions of W (d, q) added, after its own."""
    prepared = _wide(rows).extended(W)
    sample = prepared.shards.in_double().rows(rows.chosen)
    return replace(rows, prepared=prepared, sample=sample)


def _precondition(rows: FitRows) -> Precondition:
    """Return the preconditioner for gradients (d, k) in all columns.

    Outside of the subspace, where the rows vary less than within, it divides by the ridge.
    """
    covariance, basis = rows.covariance, _wide(rows).basis
    inverse, ridge = rows.precondition, np.trace(covariance) / len(covariance)

    def precondition(Z: Array) -> Array:
        within = basis.T @ Z
        return np.asarray(basis @ inverse(within) + (Z - basis @ within) / ridge)

    return precondition
