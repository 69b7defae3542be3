"""SM: gradient ascent on the Stiefel manifold along Cayley curves, with Barzilai-Borwein steps.

After Wen and Yin, "A feasible method for optimization with orthogonality constraints" (2013).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.paper.rival_log import Rival, RivalLog
from ism_dask._types import Array
from ism_dask.engines.base import ProductEvaluation
from ism_dask.linalg.subspaces import nearest_orthonormal
from ism_dask.records.iteration import Solution

# The line search is nonmonotone: J may fall below its last value, but not below a weighted mean of
# all values so far, in which each value has this share of the weight of the next.
_MEMORY = 0.85
# The share of the gain predicted by the gradient that a step has to reach.
_GAIN = 1e-4
# The line search multiplies a step length by _CUT, at most _CUTS times.
_CUT, _CUTS = 0.2, 8
# The first step turns the columns by about this angle.
_FIRST = 0.1
# The largest step length times the norm of the gradient: half a turn and more.
_LONGEST = 1e3
_TINY = float(np.finfo(np.float64).tiny)
# The deviation from orthonormality, by rounding, above which columns are made orthonormal again.
_ROUNDING = 1e-13


@dataclass(frozen=True, kw_only=True)
class Stiefel(Rival):
    """SM; `max_iter` is the largest number of steps, `max_seconds` the time limit."""

    max_iter: int = 2000

    def search(self, log: RivalLog) -> Solution:
        """Return the solution of the curvilinear search."""
        steps = cayley_ascent(log.evaluate, lambda each: each.product, log.start, log.evaluation)
        return log.ended(log.follow(steps))


def cayley_ascent(
    evaluate: Callable[[Array], ProductEvaluation],
    slope: Callable[[ProductEvaluation], Array],
    W: Array,
    now: ProductEvaluation,
) -> Iterator[tuple[Array, ProductEvaluation]]:
    """Yield points (d, k) with orthonormal columns, at which J grows apart from few exceptions.

    Parameters
    ----------
    evaluate : callable
        Returns J at a point, with the matrix that `slope` needs.
    slope : callable
        Returns half of the gradient of J (d, k) from an evaluation.
    W : (d, k) array
        The first point, which is not yielded.
    now : ProductEvaluation
        The evaluation at W.
    """
    P = slope(now)
    direction = _tangent(W, P)
    length = _bounded(_FIRST / max(float(np.linalg.norm(direction, 2)), _TINY), P)
    reference, weight, steps = now.objective, 1.0, 0
    while True:
        curve = _cayley_curve(W, P)
        # Along the curve J rises at first by twice this for each unit of length.
        rise = float(np.sum(direction * P))
        for _ in range(_CUTS):
            point = curve(length)
            evaluation = evaluate(point)
            if evaluation.objective >= reference + _GAIN * length * rise:
                break
            length *= _CUT
        previous_W, previous_direction = W, direction
        W, now = point, evaluation
        P = slope(now)
        direction = _tangent(W, P)
        steps += 1
        longer = steps % 2 == 1
        length = _next_length(W - previous_W, direction - previous_direction, length, longer=longer)
        length = _bounded(length, P)
        weight, previous_weight = _MEMORY * weight + 1.0, weight
        reference = (_MEMORY * previous_weight * reference + now.objective) / weight
        yield W, now


def _bounded(length: float, P: Array) -> float:
    """Return `length`, limited so that rounding does not dominate the point on the curve."""
    return min(length, _LONGEST / max(float(np.linalg.norm(P)), _TINY))


def _tangent(W: Array, P: Array) -> Array:
    """Return the tangent (d, k) of the Cayley curve at W, for half of the gradient P (d, k)."""
    return P - W @ (P.T @ W)


def _cayley_curve(W: Array, P: Array) -> Callable[[float], Array]:
    """Return the curve of (d, k) points that leaves W uphill, for half of the gradient P (d, k)."""
    U, V = np.hstack([P, W]), np.hstack([W, -P])
    inner, across = V.T @ U, V.T @ W

    def at(length: float) -> Array:
        mix = np.linalg.solve(np.eye(len(inner)) - 0.5 * length * inner, across)
        point = W + length * (U @ mix)
        if np.abs(point.T @ point - np.eye(point.shape[1])).max() > _ROUNDING:
            point = nearest_orthonormal(point)
        return point

    return at


def _next_length(step: Array, change: Array, length: float, *, longer: bool) -> float:
    """Return the longer or the shorter Barzilai-Borwein step length, or `length` if undefined."""
    along = abs(float(np.sum(step * change)))
    over, under = (float(np.sum(step**2)), along) if longer else (along, float(np.sum(change**2)))
    return over / under if over > 0 and under > 0 else length
