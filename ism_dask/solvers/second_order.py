"""Refinement of a solution by a few Newton steps in a trust region on the Grassmann manifold.

Near a maximum each step squares the error, whereas the spectral iteration divides it by a constant.
Each product with the second derivative of J is a pass over all pairs of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import Operator, ProductEvaluation, relative_residual
from ism_dask.linalg.eigen import nearest_orthonormal
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers.ism import SOLVER_TOLERANCE, solution_at
from ism_dask.solvers.time_limit import TimeIsUpError, TimeLimited
from ism_dask.status import Status

# The most steps, and the most products with the second derivative in each.
_STEPS, _PRODUCTS = 12, 40
# The refinement ends at this residual, or if the model predicts a gain below this share of J.
_RESIDUAL, _GAIN = 1e-8, 1e-12
# Conjugate gradients end when the squared residual is this share of the first one.
_FORCING = 1e-4
# The trust-region radius at the start, and its largest value.
_FIRST_RADIUS, _LAST_RADIUS = 0.3, 1.5
# Shares of the gain that the model predicts. A step that gains less than _LEAST is rejected, and a
# shorter one tried. After a step that gains more than _MOST the next may be longer.
_LEAST, _MOST = 0.1, 0.75


@dataclass(frozen=True)
class _QuadraticModel:
    """J near W to second order, along tangents Z (d, q) with `W^T Z = 0`."""

    operator: TimeLimited
    W: Array
    product: Array

    @property
    def slope(self) -> Array:
        """Half of the Riemannian gradient of J."""
        return self._tangent(self.product)

    def hessian_product(self, Z: Array) -> Array:
        """Return the product of Z with half of the Riemannian Hessian of J."""
        inner = self.W.T @ self.product
        return self._tangent(self.operator.curvature(self.W, Z)) - Z @ (inner + inner.T) / 2

    def gain(self, Z: Array, HZ: Array) -> float:
        """Return the gain of J that the model predicts along Z, given its `hessian_product`."""
        return float(np.sum((2 * self.slope + HZ) * Z))

    def _tangent(self, Z: Array) -> Array:
        return Z - self.W @ (self.W.T @ Z)


def refine_by_newton(
    operator: Operator, solution: Solution, stopping: Stopping | None = None
) -> Solution:
    """Return the solution refined by trust-region steps, at no lower J.

    The history stays that of the iteration. The status becomes "converged" if the refined W is
    stationary, even if the iteration did not converge.

    Parameters
    ----------
    operator : Operator
    solution : Solution
    stopping : Stopping, optional
        Its `max_seconds` limit the time of the steps. At the limit the best W so far is returned.
    """
    W, timed_out = solution.W, False
    try:
        for better in _trust_region_steps(TimeLimited(operator, stopping or Stopping()), solution):
            W = better
    except TimeIsUpError:
        timed_out = True
    if W is solution.W:
        return replace(solution, status=Status.OVER_CAP) if timed_out else solution
    status = Status.OVER_CAP if timed_out else solution.status
    refined = solution_at(operator, W, status, solution.history)
    is_fine = refined.residual <= SOLVER_TOLERANCE
    return replace(refined, status=Status.CONVERGED) if is_fine else refined


def _trust_region_steps(operator: TimeLimited, solution: Solution) -> Iterator[Array]:
    """Yield W (d, q) after each accepted step."""
    W, evaluation = solution.W, ProductEvaluation(solution.objective, solution.product)
    radius = _FIRST_RADIUS
    for _ in range(_STEPS):
        if relative_residual(W, evaluation.product) <= _RESIDUAL:
            return
        model = _QuadraticModel(operator, W, evaluation.product)
        Z, HZ, at_edge = _truncated_cg(model, radius)
        predicted = model.gain(Z, HZ)
        if not predicted > _GAIN * abs(evaluation.objective):
            return
        tried = nearest_orthonormal(W + Z)
        at_tried = operator.gradient(tried)
        share = (at_tried.objective - evaluation.objective) / predicted
        if not share >= _LEAST:  # written so that NaN is rejected, too
            radius = 0.25 * float(np.linalg.norm(Z))
            continue
        W, evaluation = tried, at_tried
        yield W
        if share > _MOST and at_edge:
            radius = min(2 * radius, _LAST_RADIUS)


def _truncated_cg(model: _QuadraticModel, radius: float) -> tuple[Array, Array, bool]:
    """Return the maximising step, its Hessian product, and whether it ends at the radius.

    These are truncated conjugate gradients after Steihaug and Toint.
    """
    residual = model.slope
    Z, HZ = np.zeros_like(residual), np.zeros_like(residual)
    along = residual
    size = first = float(np.sum(residual**2))
    for _ in range(_PRODUCTS):
        H_along = model.hessian_product(along)
        curve = -float(np.sum(along * H_along))
        length = size / curve if curve > 0 else np.inf
        if curve <= 0 or np.linalg.norm(Z + length * along) >= radius:
            length = _length_to_radius(Z, along, radius)
            return Z + length * along, HZ + length * H_along, True
        Z, HZ = Z + length * along, HZ + length * H_along
        residual = residual + length * H_along
        size, before = float(np.sum(residual**2)), size
        if size <= _FORCING * first:
            break
        along = residual + (size / before) * along
    return Z, HZ, False


def _length_to_radius(Z: Array, along: Array, radius: float) -> float:
    """Return the length of the move from Z along a direction to a step of norm `radius`."""
    a, b = float(np.sum(along**2)), float(np.sum(Z * along))
    c = float(np.sum(Z**2)) - radius**2
    return (-b + np.sqrt(max(b * b - a * c, 0.0))) / a
