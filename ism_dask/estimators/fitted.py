"""What a fit gives an estimator: the attributes of its solution, none of them set yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.estimators.pose import SupervisedProblem
from ism_dask.estimators.preparation import Prepared
from ism_dask.kernels import as_kernel
from ism_dask.linalg.rotation import rotate_components
from ism_dask.records.iteration import Solution
from ism_dask.rows.execution import on_this_machine
from ism_dask.solvers.support_selection import RowSample, stable_support
from ism_dask.status import Status


class Fitted(NamedTuple):
    """A solution, and the fitted attributes by name."""

    solution: Solution
    attributes: dict[str, Any]


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
    return Contributions(scale * alone, objective - scale * without)


def solution_attributes(solution: Solution, prepared: Prepared) -> dict[str, Any]:
    """Return the fitted attributes that a solution for prepared rows gives any estimator."""
    return {
        **prepared.projection(solution.W),
        "eigenvalues_": solution.eigenvalues,
        "eigengap_": solution.eigengap,
        "objective_": solution.objective,
        "n_iter_": solution.n_iter,
        "status_": solution.status,
        "converged_": solution.status is Status.CONVERGED,
        "history_": solution.history,
        "residual_": solution.residual,
        "residual_rows_": solution.residual_rows,
        "engine_error_": solution.error,
        "certificate_": solution.certificate,
    }


def rotated(solution: Solution, prepared: Prepared, rotation: str | None) -> Solution:
    """Return a solution with W rotated as `rotation` says; the eigengap keeps its meaning."""
    if rotation is None:
        return solution
    outside = float(solution.eigenvalues[-1]) - solution.eigengap
    turn, values = rotate_components(prepared.lift(solution.W.T), solution.eigenvalues)
    return replace(
        solution,
        W=solution.W @ turn,
        product=solution.product @ turn,
        eigenvalues=values,
        eigengap=float(values[-1]) - outside,
    )


def few_features(
    problem: SupervisedProblem, rows: RowSample, prepared: Prepared, full: Solution, seed: int
) -> tuple[Prepared, Array, dict[str, Any]]:
    """Return the rows of the stable features alone, the W to start at, and attributes of both.

    Half-samples of some rows choose the features, starting from the fit to all features.
    """
    most = problem.parameters.max_features
    components = prepared.lift(full.W.T)
    with on_this_machine():
        support = stable_support(
            rows, prepared.feature_space, components.T, most if is_whole(most) else None, seed
        )
    few = problem.prepared(as_kernel(problem.parameters.kernel), support.chosen)
    attributes = {"full_objective_": full.objective, "stability_": support.frequencies}
    return few, few.orthonormal(components), attributes
