"""Certify that a solution is a local maximum of J, from its residual and its scaled Hessian."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents
from ism_dask.engines import Engine, ExactEngine, PaddedOperator, Problem
from ism_dask.engines.operator import relative_residual
from ism_dask.records.certificate import Certificate
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping_rule import RESIDUAL, Stopping
from ism_dask.solvers.ism import solution_at
from ism_dask.solvers.scaled_hessian import FARTHEST, Extremes, ScaledHessian
from ism_dask.solvers.time_limit import TimeLimited
from ism_dask.status import Status

# Up to this many rows the more precise products by `curvature` take no time that matters.
_FEW_ROWS = 300
# An eigenvalue or eigengap is 0 if it is a smaller share of the largest eigenvalue.
_ROUNDING = 1e-9


def hessian_of(
    engine: Engine, solution: Solution, stopping: Stopping | None = None
) -> ScaledHessian:
    """Return the Hessian at a solution; its products raise TimeIsUpError after a time limit."""
    problem = engine.problem
    by_curvature = problem.shards.n_rows <= _FEW_ROWS and not engine.approximate
    # Single precision is far more accurate than an engine that approximates.
    used = engine.double if by_curvature else engine.steady(solution.W[: problem.d])
    operator = PaddedOperator(used, len(solution.W) - problem.d, rough=engine.approximate)
    limited = TimeLimited(operator, stopping or Stopping())
    return ScaledHessian.at(limited, solution, by_differences=not by_curvature)


def certify(problem: Problem, W: Array, status: Status) -> Certificate:
    """Return the certificate of W (r + s, q) by passes over all pairs of rows.

    `status` says how the fit of W ended.

    Raises
    ------
    MemoryError
        If a task of such a pass would not fit into memory.
    """
    engine = ExactEngine(problem.in_double(), W.shape[1])
    solution = solution_at(PaddedOperator(engine, len(W) - problem.d), W, status)
    solution = replace(solution, residual_rows=problem.shards.n_rows)
    return measured_certificate(engine, solution)


def measured_certificate(engine: Engine, solution: Solution) -> Certificate:
    """Return the certificate of a solution; this measures the Hessian if it can prove anything."""
    can_prove = _is_stationary(solution) and not engine.approximate
    extremes = hessian_of(engine, solution).extremes() if can_prove else None
    return certificate_of(engine, solution, extremes)


def certificate_by_hessian(
    tangents: Tangents, product: Array, hessian: Array, n_rows: int, *, constant: bool
) -> Certificate:
    """Return the certificate of W from Phi W (d, q) and the second derivative (p, p) of 1 - J.

    `constant` says whether W may turn into directions in which the rows are constant.
    """
    values, vectors = np.linalg.eigh(hessian)
    least = float(values[0])
    if constant:
        # There only the lengths of the new features count.
        inner = tangents.W.T @ product
        least = min(least, float(np.linalg.eigvalsh(inner + inner.T)[0]))
    slope = vectors.T @ (2 * tangents.basis.T @ product).ravel()
    largest = float(np.abs(values).max())
    certificate = Certificate(
        residual=relative_residual(tangents.W, product),
        residual_rows=n_rows,
        largest_eigenvalue=-least / largest,
        upper_bound=-least / largest,
        n_products=len(values),
    )
    if least < -_ROUNDING * largest:
        reason = (
            "J rises from W along a direction; a fit that has not converged can end so, or at a "
            "start that predicts unseen rows better"
        )
        return replace(certificate, reason=f"not certified: {reason}")
    if least <= _ROUNDING * largest:
        reason = "to second order J is flat along a direction; take fewer new features"
        return replace(certificate, reason=f"not certified: {reason}")
    distance = float(np.linalg.norm(slope / values))
    certificate = replace(certificate, distance=distance)
    if distance > FARTHEST:
        reason = f"J falls from W, but the maximum may be {distance:.1g} away"
        return replace(certificate, reason=f"not certified: {reason}")
    return replace(certificate, is_certified=True, reason=_proof("J", distance))


def _proof(objective_name: str, distance: float) -> str:
    return (
        f"W is a local maximum of {objective_name}, to within an angle of {distance:.1g}: J falls "
        "from it in every direction, and may be higher elsewhere"
    )


def _is_stationary(solution: Solution) -> bool:
    return solution.residual <= RESIDUAL and solution.status is not Status.FLAT


def certificate_of(engine: Engine, solution: Solution, extremes: Extremes | None) -> Certificate:
    """Return the certificate of a solution whose Hessian has these extremes, if it was measured."""
    can_prove = _is_stationary(solution) and not engine.approximate
    measured = extremes if can_prove else None
    certificate = Certificate(residual=solution.residual, residual_rows=solution.residual_rows)
    if measured is None:
        return replace(certificate, reason=f"not certified: {_unmeasured(engine, solution)}")
    certificate = replace(
        certificate,
        largest_eigenvalue=measured.largest,
        upper_bound=measured.upper_bound,
        n_products=measured.n_products,
    )
    constant = all(term.constant_slope for _, term in engine.problem.kernel.terms)
    # Phi does not depend on W, and W spans its leading eigenvectors.
    if constant and solution.eigengap >= -_ROUNDING * abs(float(solution.eigenvalues[0])):
        reason = (
            f"no W has a larger {engine.objective_name}: Phi does not depend on W, and W spans "
            "its leading eigenvectors"
        )
        return replace(certificate, is_certified=True, is_global=True, distance=0.0, reason=reason)
    if measured.falls:
        certificate = replace(certificate, distance=measured.distance)
    doubt = _doubt(engine.problem, solution, measured)
    if doubt:
        return replace(certificate, reason=f"not certified: {doubt}")
    reason = _proof(engine.objective_name, measured.distance)
    return replace(certificate, is_certified=True, reason=reason)


def _unmeasured(engine: Engine, solution: Solution) -> str:
    """Return why the Hessian at a solution was not measured, or would prove nothing."""
    if solution.status is Status.FLAT:
        return "J does not depend on W"
    if solution.residual > RESIDUAL:
        return f"W is not stationary: its residual is {solution.residual:.2g}, above {RESIDUAL:g}"
    if engine.approximate:
        return (
            f"the engine {engine.name!r} approximates J. `certify` of `SupervisedIKDR`, or a fit "
            "with engine='exact', measures the Hessian under the true kernel"
        )
    return (
        "the fit did not measure the Hessian, because `tol`, a limit or another solver than 'ism' "
        "ended it. `certify` of `SupervisedIKDR` does"
    )


def _doubt(problem: Problem, solution: Solution, extremes: Extremes) -> str:
    """Return why the Hessian at a solution does not prove a maximum, or nothing if it does."""
    if extremes.rises:
        return "J rises from W along a direction, but by too little to follow it"
    if extremes.is_flat:
        return (
            "to second order J is flat along a direction, so that W may be one of many equally "
            "good ones; fewer new features may have a single maximum"
        )
    if not extremes.falls:
        return f"{extremes.n_products} products with the Hessian do not show that J falls from W"
    n_constant = 0 if problem.space is None else problem.space.n_constant
    has_unused = n_constant > 0 and len(solution.W) == problem.d
    if has_unused and solution.eigenvalues[-1] < _ROUNDING * solution.eigenvalues[0]:
        return (
            "J rises if W turns into a direction in which the rows are constant; fewer new "
            "features may have a maximum"
        )
    if not extremes.proves_maximum:
        return (
            f"J falls from W, but the maximum may be {extremes.distance:.1g} away; refine=True "
            "brings W to it"
        )
    return ""
