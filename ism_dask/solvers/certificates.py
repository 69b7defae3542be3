"""Certify that W is a local maximum of J, from its residual and the second derivative of J."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents
from ism_dask.engines import ExactEngine, Problem
from ism_dask.linalg.eigen import largest_eigenvalue_outside
from ism_dask.linalg.subspaces import relative_residual
from ism_dask.records.fit_report import Certificate
from ism_dask.records.iteration import RESIDUAL
from ism_dask.solvers.ascent import Slope
from ism_dask.solvers.search import PaddedOperator
from ism_dask.stationarity import is_flat

# Up to this many free weights of W the second derivative is computed as a matrix.
MOST_DENSE = 200
# An eigenvalue or eigengap is 0 if it is a smaller share of the largest eigenvalue.
_ROUNDING = 1e-9
# J does not depend on W if no turn by a radian changes it by a larger share, to second order.
_CONSTANT = 1e-6
_CONSTANT_WORDS = "J does not depend on W; take a wider kernel"
# Within this distance second order describes J well enough to say where its maximum is.
_FARTHEST = 0.05
# The relative accuracy of extreme eigenvalues by products, and the restarts of Lanczos for them.
_ACCURACY, _RESTARTS = 1e-2, 100

Hessian = Array | LinearOperator


def certify(
    tangents: Tangents,
    value: Slope,
    hessian: Callable[[], Hessian],
    n_rows: int,
    *,
    limit: float = RESIDUAL,
    has_constant: bool = False,
) -> Certificate:
    """Return the certificate of W: whether it is a local maximum of J.

    `value` is J and Phi W (d, q) at W, under the true kernel. `hessian` returns the second
    derivative (p, p) of -J along the tangents, or an operator that multiplies by it; it is called
    only if W is stationary, with a residual of at most `limit`. With `has_constant`, W may also
    turn into directions in which the rows are constant.
    """
    if is_flat(value.product, value.objective):
        return _refused(Certificate(residual=1.0, residual_rows=n_rows), _CONSTANT_WORDS)
    residual = relative_residual(tangents.W, value.product)
    certificate = Certificate(residual=residual, residual_rows=n_rows)
    if not residual <= limit:
        words = f"W is not stationary: its residual is {residual:.2g}, above {limit:.2g}"
        return _refused(certificate, words)
    if not tangents.size:
        words = "W spans all features that it may use, so that no weight is free and J is constant"
        return _refused(certificate, f"{words}; raise `max_features`, or take fewer new features")
    slope = (2 * tangents.basis.T @ value.product).ravel()
    try:
        least, largest, error, distance = _extremes(hessian(), slope)
    except ArpackNoConvergence:
        return _refused(certificate, "products with the Hessian do not show whether J falls from W")
    if has_constant:
        # Along such a direction only the lengths of the new features count.
        inner = tangents.W.T @ value.product
        least = min(least, float(np.linalg.eigvalsh(inner + inner.T)[0]))
    doubt = _doubt(value.objective, least, largest, _ROUNDING * largest + error, distance)
    certificate = replace(
        certificate,
        largest_eigenvalue=-least / largest if largest > 0 else 0.0,
        distance=distance if least > 0 else np.inf,
    )
    if doubt:
        return _refused(certificate, doubt)
    reason = (
        f"W is a local maximum of J, to within an angle of {distance:.1g}: J falls from it in "
        "every direction, and may be higher elsewhere"
    )
    return replace(certificate, is_certified=True, reason=reason)


def certify_dependence(problem: Problem, W: Array) -> Certificate:
    """Return the certificate of W (r + s, q) by passes over all pairs of rows."""
    n_varying, q = problem.d, W.shape[1]
    has_constant = len(W) > n_varying and not W[n_varying:].any()
    W = W[:n_varying] if has_constant else W
    operator = PaddedOperator(ExactEngine(problem.in_double(), q), len(W) - n_varying)
    evaluation, tangents = operator.gradient(W), Tangents.at_weights(W)
    inner = W.T @ evaluation.product

    def product(direction: Array) -> Array:
        D = direction.reshape(-1, q)
        change = tangents.basis.T @ operator.curvature(W, tangents.basis @ D)
        return np.asarray(D @ (inner + inner.T) - 2 * change).ravel()

    def hessian() -> Hessian:
        size = tangents.size
        if size <= MOST_DENSE:
            return np.array([product(each) for each in np.eye(size)]).T
        return LinearOperator((size, size), matvec=product, dtype=np.float64)

    n_rows = problem.shards.n_rows
    if all(term.constant_slope for _, term in problem.kernel.terms):
        residual = relative_residual(W, evaluation.product)
        values = np.linalg.eigvalsh((inner + inner.T) / 2)
        outside = largest_eigenvalue_outside(operator.phi(W).phi, W)
        outside = max(outside, 0.0) if has_constant else outside
        if residual <= RESIDUAL and values[0] - outside >= -_ROUNDING * abs(values[-1]):
            reason = "no W has a larger J: Phi does not depend on W, and W spans its leading "
            return Certificate(True, f"{reason}eigenvectors", True, residual, n_rows, distance=0.0)
    return certify(tangents, evaluation, hessian, n_rows, has_constant=has_constant)


def _doubt(objective: float, least: float, largest: float, rounding: float, distance: float) -> str:
    """Return why a stationary W may be no maximum, or nothing; eigenvalues are those of -J."""
    if not largest > _CONSTANT * abs(objective):
        return _CONSTANT_WORDS
    if least < -rounding:
        return (
            "J rises from W along a direction: it is a saddle point, or a start that predicts "
            "unseen rows better"
        )
    if least <= rounding:
        return "to second order J is flat along a direction; take fewer new features"
    if distance > _FARTHEST:
        return f"J falls from W, but the maximum may be {distance:.1g} away"
    return ""


def _refused(certificate: Certificate, words: str) -> Certificate:
    return replace(certificate, reason=f"not certified: {words}")


def _extremes(hessian: Hessian, slope: Array) -> tuple[float, float, float, float]:
    """Return the least eigenvalue, the largest one in size, their error, and the distance.

    The distance is the length of a Newton step from W, or a bound on it.
    """
    if isinstance(hessian, np.ndarray):
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
        error = float(np.linalg.norm(hessian - hessian.T, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = float(np.linalg.norm((vectors.T @ slope) / values))
        return float(values[0]), float(np.abs(values).max()), error, distance
    start = np.random.default_rng(0).normal(size=len(slope))
    solve = partial(
        eigsh, hessian, k=1, v0=start, tol=_ACCURACY, maxiter=_RESTARTS, return_eigenvectors=False
    )
    least, size = float(solve(which="SA")[0]), float(solve(which="LM")[0])
    # The true eigenvalue is nearer to 0 than this.
    bound = (1.0 - _ACCURACY) * least
    distance = float(np.linalg.norm(slope)) / bound if bound > 0 else np.inf
    return bound if least > 0 else least, abs(size), 0.0, distance
