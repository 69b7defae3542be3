"""Riemannian L-BFGS on the Grassmann manifold: J rises in every step.

Directions are tangents Z (d, k) at W, with `W^T Z = 0`. The steps and changes of the slope in
memory are projected onto the tangent space of the current W. The slope is half of the gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.subspaces import nearest_orthonormal, tangent

# Steps whose curvature is in memory.
_MEMORY = 20
# The share of the gain predicted by the slope that a step has to reach.
_GAIN = 1e-4
# The line search shortens a step to the maximum of the parabola through J and its slope, but to
# these shares of it at least and at most, and at most _CUTS times.
_SHORTEST_CUT, _LONGEST_CUT, _CUTS = 0.02, 0.4, 12
# The spectral norms of the first step and of the longest one. The norm of a step is the tangent of
# the angle by which it turns W.
_FIRST, _LONGEST = 0.1, 0.5
# The curvature along a step is rounding if it is a smaller share of |step| |change of slope|.
_ROUNDING = 1e-10
_TINY = float(np.finfo(np.float64).tiny)

Precondition = Callable[[Array], Array]
# Steps (d, k) and the changes of the slope along them.
Curvature = deque[tuple[Array, Array]]


class Slope(Protocol):
    """J at some W, and half of its gradient."""

    @property
    def objective(self) -> float:
        """J."""

    @property
    def product(self) -> Array:
        """Half of the gradient of J (d, k)."""


_Value = TypeVar("_Value", bound=Slope)


def lbfgs_ascent(
    evaluate: Callable[[Array], _Value],
    W: Array,
    now: _Value,
    precondition: Precondition | None = None,
    curvature: Curvature | None = None,
) -> Iterator[tuple[Array, _Value]]:
    """Yield points (d, k) with orthonormal columns, J growing from one to the next.

    The first point W, where the evaluation is `now`, is not yielded. The iterator ends when no step
    along the slope raises J any more. `precondition` multiplies a slope (d, k) by an estimate of
    the inverse curvature, which may be off by a factor but must be positive definite. `curvature`
    is that of an ascent of a similar J that ended at W, and holds that of this ascent afterwards.
    """
    guess = precondition or (lambda Z: Z)
    memory = no_curvature() if curvature is None else curvature
    uphill = tangent(W, now.product)
    while True:
        direction = tangent(W, _direction(uphill, memory, guess))
        if not np.sum(direction * uphill) > 0:
            memory.clear()
            direction = tangent(W, _direction(uphill, memory, guess))
        move = _line_search(evaluate, W, now, direction, float(np.sum(direction * uphill)))
        if move is None:
            if not memory:
                return
            memory.clear()  # its curvature may be out of date: try the slope itself
            continue
        step, W, now = move
        before, uphill = tangent(W, uphill), tangent(W, now.product)
        pairs = [(tangent(W, each), tangent(W, change)) for each, change in memory]
        memory.clear()
        memory.extend((each, change) for each, change in pairs if _is_concave(each, change))
        pair = tangent(W, step), before - uphill
        if _is_concave(*pair):
            memory.append(pair)
        yield W, now


def no_curvature() -> Curvature:
    """Return an empty memory of curvature."""
    return deque(maxlen=_MEMORY)


def _line_search(
    evaluate: Callable[[Array], _Value], W: Array, now: _Value, direction: Array, slope: float
) -> tuple[Array, Array, _Value] | None:
    """Return a step, its end point and the evaluation there, or None if no length raises J."""
    share = min(1.0, _LONGEST / max(float(np.linalg.norm(direction, 2)), _TINY))
    for _ in range(_CUTS):
        point = nearest_orthonormal(W + share * direction)
        evaluation = evaluate(point)
        # The slope is half of the gradient, so J rises at first by twice this.
        if evaluation.objective > now.objective + _GAIN * share * slope:
            return share * direction, point, evaluation
        # J along the step is near `J + 2 slope share + bend share^2`, whose maximum is here:
        bend = (evaluation.objective - now.objective) / share - 2.0 * slope
        best = -slope / bend if bend < 0 else _LONGEST_CUT
        share *= float(np.clip(best, _SHORTEST_CUT, _LONGEST_CUT))
    return None


def _direction(uphill: Array, memory: Curvature, guess: Precondition) -> Array:
    """Return the slope times the inverse curvature, by the two-loop recursion of L-BFGS."""
    if not memory:
        direction = guess(uphill)
        return direction * (_FIRST / max(float(np.linalg.norm(direction, 2)), _TINY))
    direction, coefficients = uphill, []
    for step, change in reversed(memory):
        coefficient = float(np.sum(step * direction) / np.sum(step * change))
        direction = direction - coefficient * change
        coefficients.append(coefficient)
    step, change = memory[-1]
    direction = guess(direction) * float(np.sum(step * change) / np.sum(change * guess(change)))
    for (step, change), coefficient in zip(memory, reversed(coefficients), strict=True):
        correction = float(np.sum(change * direction) / np.sum(step * change))
        direction = direction + step * (coefficient - correction)
    return direction


def _is_concave(step: Array, change: Array) -> bool:
    """Return whether J is concave along a step, so that L-BFGS can use its curvature."""
    size = float(np.linalg.norm(step) * np.linalg.norm(change))
    return float(np.sum(step * change)) > _ROUNDING * size > 0
