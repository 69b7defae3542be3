"""What a fit gives an estimator: the attributes of its solution, none of them set yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from ism_dask._types import Array
from ism_dask.criteria.prediction import RowsInMemory
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.preparation import Prepared
from ism_dask.gamma.base import AvoidingDependence, Dependence
from ism_dask.gamma.independence import dependence_test
from ism_dask.gamma.thin_factors import alignment
from ism_dask.kernels.pairing import mean_of_gaussians, median_distance
from ism_dask.linalg.subspaces import signs_of, varimax
from ism_dask.records.fit_report import Avoidance, Trial
from ism_dask.records.iteration import Solution
from ism_dask.selection.rules import RULES
from ism_dask.status import Status

# The most rows that are compared: all pairs of them for an `Avoidance`, and columns over them.
_ROWS = 1000
# Weights from this size up are read, and a column may have the weight of another one if X W then
# moves by at most this share of its deviation.
_LARGE_WEIGHT, _ALIKE = 0.25, 0.05
# The fewest rows for the estimate without bias.
_FEWEST_ROWS = 4


class Contributions(NamedTuple):
    """What each new feature contributes to J.

    Attributes
    ----------
    alone : (q,) array
        J of each new feature alone.
    lost : (q,) array
        By how much J falls if one new feature is left out.
    """

    alone: Array
    lost: Array


def contributions(evaluate: Callable[[Array], Any], W: Array, objective: float) -> Contributions:
    """Return the contribution of each column of W (r, q), whose J of all rows is `objective`.

    `evaluate` returns J on a sample as an `objective`. J is scaled by the ratio of that of all rows
    to it, so that the result is exact if the sample has all rows.
    """
    whole = evaluate(W).objective
    scale = objective / whole if whole else 0.0
    columns = np.eye(W.shape[1], dtype=bool)
    alone = np.array([evaluate(W * column).objective for column in columns])
    without = np.zeros(1)
    if len(columns) > 1:
        without = np.array([evaluate(W * ~column).objective for column in columns])
    with np.errstate(invalid="ignore"):  # J of a part of W may overflow
        return Contributions(scale * alone, objective - scale * without)


def solution_attributes(
    solution: Solution, prepared: Prepared, sample: Array, every: Prepared, **report: Any
) -> dict[str, Any]:
    """Return the fitted attributes that a solution for prepared rows gives any estimator.

    `sample` (m, r) has some of the rows of `every`, which has all features also if W has few.
    `report` are further fields of the solution's report.
    """
    projection = prepared.projection(solution.W)
    some = sample[np.linspace(0, len(sample) - 1, min(len(sample), _ROWS)).astype(int)]
    alike = interchangeable(every.lift_rows(some), projection["components_"])
    return {
        **projection,
        "eigenvalues_": solution.eigenvalues,
        "eigengap_": solution.eigengap,
        "objective_": solution.objective,
        "n_iter_": solution.state.iteration,
        "status_": solution.status,
        "converged_": solution.status is Status.CONVERGED,
        "history_": solution.history,
        "residual_": solution.residual,
        "report_": replace(solution.report, **report),
        "_interchangeable": alike,
    }


def interchangeable(X: Array, components: Array) -> tuple[tuple[int, int, float], ...]:
    """Return pairs of columns of which one could have the weight of both, and their correlation.

    `components` (q, d) are the weights of the new features of standardised rows X (m, d). Only
    columns with a large weight count, each with the other column that is most like it.
    """
    large = np.flatnonzero(np.abs(components).max(axis=0) >= _LARGE_WEIGHT)
    unit = X - X.mean(axis=0)
    unit /= np.maximum(np.linalg.norm(unit, axis=0), np.finfo(np.float64).tiny)
    correlations = unit[:, large].T @ unit
    correlations[np.arange(len(large)), large] = 0.0
    others = np.abs(correlations).argmax(axis=1)
    nearest = correlations[np.arange(len(large)), others]
    sizes = np.abs(components[:, large]) * X[:, large].std(axis=0)
    moved = sizes * np.sqrt(np.maximum(1 - nearest**2, 0.0))
    allowed = _ALIKE * (X @ components.T).std(axis=0)[:, None]
    # A column that hardly varies, as one that follows from what is given, is like no other.
    alike = (moved <= allowed).all(axis=0) & (sizes > allowed).any(axis=0)
    each = zip(large[alike], others[alike], nearest[alike], strict=True)
    pairs = {(int(min(j, k)), int(max(j, k))): float(r) for j, k, r in each}
    return tuple((*pair, pairs[pair]) for pair in sorted(pairs, key=lambda at: -abs(pairs[at])))


def rotated(solution: Solution, prepared: Prepared, rotation: str | None) -> Solution:
    """Return a solution with W rotated as `rotation` says; the eigengap keeps its meaning.

    The signs of W are such that the largest weight of each new feature is positive.
    """
    weights = prepared.lift(solution.W.T).T
    if rotation is None:
        signs = signs_of(weights)
        state = replace(solution.state, W=solution.W * signs)
        return replace(solution, state=state, product=solution.product * signs)
    outside = float(solution.eigenvalues[-1]) - solution.eigengap
    turn = varimax(weights)
    # The diagonal of `W^T Phi W` after the rotation, with columns ordered so that it falls.
    values = solution.eigenvalues @ turn**2
    order = np.argsort(-values, kind="stable")
    turn, values = turn[:, order], values[order]
    turn = turn * signs_of(weights @ turn)
    return replace(
        solution,
        state=replace(solution.state, W=solution.W @ turn, eigenvalues=values),
        product=solution.product @ turn,
        eigengap=float(values[-1]) - outside,
    )


def prediction_advice(
    trials: Sequence[Trial], rows: RowsInMemory, seed: int, parts: Contributions, objective: float
) -> str:
    """Return advice if y or some of the new features seem to explain nothing; else no text."""
    if trials and trials[0].explained <= RULES.clear * trials[0].error:
        share = f"share of y explained: {trials[0].explained:.3f} +- {trials[0].error:.3f}"
        advice = f"unseen rows are hardly predicted better than by their mean ({share})"
        nothing = "y may not depend on X at all"
        Y = rows.Y[:, np.ptp(rows.Y, axis=0) > 0]  # a rare class may be in none of these rows
        # The test counts all rows alike.
        if not Y.size or (rows.weights is not None and np.ptp(rows.weights)):
            return f"{advice}: {nothing}"
        test = dependence_test(rows.X, Y, target="linear", n_permutations=0, random_state=seed)
        if test.pvalue <= RULES.chance:
            nothing = (
                "y does depend on X, but these rows are too few to tell how. Take more rows, or "
                "fewer `n_components`"
            )
        return (
            f"{advice}: {nothing}. A test of independence on {rows.n_rows} rows has the p-value "
            f"{test.pvalue:.2g} (`ism_dask.dependence_test`)"
        )
    useless = np.flatnonzero(objective - parts.lost > RULES.nothing * objective) + 1
    if not len(useless) or len(parts.lost) == 1:
        return ""
    return (
        f"J is as large without new feature {', '.join(map(str, useless))}: it explains nothing of "
        "y that the others do not. Take fewer `n_components`"
    )


def measured_avoidance(rows: DependenceRows, W: Array, dependence: Dependence) -> Avoidance | None:
    """Return the correlations for a solution W, without bias; None if nothing was to be avoided."""
    if not isinstance(dependence, AvoidingDependence):
        return None
    some = np.linspace(0, len(rows.chosen) - 1, min(len(rows.chosen), _ROWS)).astype(int)
    X = rows.sample[some]
    if len(X) < _FEWEST_ROWS:
        return Avoidance(0.0, 0.0, len(X))
    side = dependence.avoided.part(rows.chosen[some])
    kernel_of_s = side.factor * side.gamma.signs @ side.factor.T
    kernels = _kernel(X), _kernel(X @ W[: X.shape[1]]), kernel_of_s
    all_features, new_features, avoided = map(_without_bias, kernels)
    return Avoidance(alignment(all_features, avoided), alignment(new_features, avoided), len(X))


def _kernel(points: Array) -> Array:
    """Return the mean (m, m) of gaussian kernels of three widths of points (m, k)."""
    if not np.ptp(points, axis=0).any():
        return np.ones((len(points), len(points)))
    median = median_distance(points, "the median distance of the rows")
    return mean_of_gaussians(euclidean_distances(points, squared=True), median)


def _without_bias(K: Array) -> Array:
    """Return a kernel without diagonal, centred so that inner products have no bias.

    After Szekely and Rizzo, "Partial distance correlation" (2014), and Song et al. (2012).
    """
    m = len(K)
    off = K - np.diag(np.diag(K))
    sums = off.sum(axis=0)
    centred = off - (sums + sums[:, None]) / (m - 2) + sums.sum() / ((m - 1) * (m - 2))
    np.fill_diagonal(centred, 0.0)
    return np.asarray(centred)
