"""A few steps of the second order, from where the spectral iteration has come to.

A trust region on the subspaces: near a maximum each step squares the error, where the iteration
divides it. One derivative of Phi(W) W is a pass over all pairs of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation, Operator, relative_residual
from ism_dask.linalg.eigen import nearest_orthonormal
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping import Stopping
from ism_dask.solvers.ism import meets_solver_tolerance
from ism_dask.solvers.rayleigh_ritz import RitzPairs
from ism_dask.solvers.time_limit import TimeIsUpError, TimeLimited
from ism_dask.status import Status

# Steps at most, and the products with the second derivative that each may take.
_STEPS, _PRODUCTS = 12, 40
# There is nothing left to gain below this residual, and this share of J.
_RESIDUAL, _GAIN = 1e-8, 1e-12
# Conjugate gradients end when this share of the (squared) slope is left.
_FORCING = 1e-4
# Angles: what a step may turn W by at first, and at most.
_FIRST_RADIUS, _LAST_RADIUS = 0.3, 1.5
# Of what the model promises: a step that brings less is not taken, and a shorter one tried; one
# that brings nearly all lets the next be longer.
_LEAST, _MOST = 0.1, 0.75


@dataclass(frozen=True)
class _QuadraticModel:
    """J near W, to the second order, along Z (d, q) with `W^T Z = 0`."""

    operator: TimeLimited
    W: Array
    product: Array

    @property
    def slope(self) -> Array:
        """Half of the gradient of J along the subspaces."""
        return self._across(self.product)

    def bent(self, Z: Array) -> Array:
        """Return half of the second derivative of J along Z."""
        inner = self.W.T @ self.product
        return self._across(self.operator.curvature(self.W, Z)) - Z @ (inner + inner.T) / 2

    def gain(self, Z: Array, bent: Array) -> float:
        """Return by how much J grows along Z."""
        return float(np.sum((2 * self.slope + bent) * Z))

    def _across(self, Z: Array) -> Array:
        return Z - self.W @ (self.W.T @ Z)


def refine_by_newton(
    operator: Operator, solution: Solution, stopping: Stopping | None = None
) -> Solution:
    """Return a solution with the W that the steps come to, at no lower J.

    The history stays that of the iteration. Where that has not settled, these steps may have.

    Parameters
    ----------
    operator : Operator
    solution : Solution
    stopping : Stopping, optional
        Whose `max_seconds` are left for the steps; the best W by then is what is returned.
    """
    W, over = solution.W, False
    try:
        for better in _climb(TimeLimited(operator, stopping or Stopping()), solution):
            W = better
    except TimeIsUpError:
        over = True
    if W is solution.W:
        return replace(solution, status=Status.OVER_CAP) if over else solution
    ritz = RitzPairs.of(operator, W)
    status = Status.OVER_CAP if over else solution.status
    if meets_solver_tolerance(ritz.W, ritz.product):
        status = Status.CONVERGED
    return replace(solution, **vars(ritz), status=status)


def _climb(operator: TimeLimited, solution: Solution) -> Iterator[Array]:
    """Yield W (d, q) after each step that is taken."""
    W, evaluation = solution.W, Evaluation(solution.objective, solution.product)
    radius = _FIRST_RADIUS
    for _ in range(_STEPS):
        if relative_residual(W, evaluation.matrix) <= _RESIDUAL:
            return
        model = _QuadraticModel(operator, W, evaluation.matrix)
        Z, bent, at_edge = _step(model, radius)
        promised = model.gain(Z, bent)
        if not promised > _GAIN * abs(evaluation.objective):
            return
        there = nearest_orthonormal(W + Z)
        found = operator.gradient(there)
        share = (found.objective - evaluation.objective) / promised
        if not share >= _LEAST:  # so that no number is none
            radius = 0.25 * float(np.linalg.norm(Z))
            continue
        W, evaluation = there, found
        yield W
        if share > _MOST and at_edge:
            radius = min(2 * radius, _LAST_RADIUS)


def _step(model: _QuadraticModel, radius: float) -> tuple[Array, Array, bool]:
    """Return the step that the model likes best, its bend, and whether the radius cut it short.

    Conjugate gradients after Steihaug and Toint.
    """
    residual = model.slope
    Z, bent = np.zeros_like(residual), np.zeros_like(residual)
    along = residual
    size = first = float(np.sum(residual**2))
    for _ in range(_PRODUCTS):
        bend = model.bent(along)
        curve = -float(np.sum(along * bend))
        length = size / curve if curve > 0 else np.inf
        if curve <= 0 or np.linalg.norm(Z + length * along) >= radius:
            length = _to_edge(Z, along, radius)
            return Z + length * along, bent + length * bend, True
        Z, bent = Z + length * along, bent + length * bend
        residual = residual + length * bend
        size, before = float(np.sum(residual**2)), size
        if size <= _FORCING * first:
            break
        along = residual + (size / before) * along
    return Z, bent, False


def _to_edge(Z: Array, along: Array, radius: float) -> float:
    """Return how far it is from Z along a direction to where steps are `radius` long."""
    a, b = float(np.sum(along**2)), float(np.sum(Z * along))
    c = float(np.sum(Z**2)) - radius**2
    return (-b + np.sqrt(max(b * b - a * c, 0.0))) / a
