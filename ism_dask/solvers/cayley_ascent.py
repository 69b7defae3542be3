"""Steps along orthonormal columns: Cayley curves, lengths by Barzilai and Borwein.

After Wen and Yin, "A feasible method for optimization with orthogonality constraints" (2013).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation
from ism_dask.linalg.eigen import nearest_orthonormal

# J may fall below the last one, but not below a mean of those before, each of which counts this
# share of the next.
_MEMORY = 0.85
# What a step has to gain of what its slope promises.
_GAIN = 1e-4
# A step too long is cut to this share, so many times at most.
_CUT, _CUTS = 0.2, 8
# The first step turns the columns by about this angle.
_FIRST = 0.1
# Steps are no longer than this over the size of the slope: half a turn and more.
_LONGEST = 1e3
_TINY = float(np.finfo(np.float64).tiny)
# Rounding that columns may gather before they are made orthonormal once more.
_ROUNDING = 1e-13


def cayley_ascent(
    evaluate: Callable[[Array], Evaluation],
    slope: Callable[[Evaluation], Array],
    W: Array,
    now: Evaluation,
) -> Iterator[tuple[Array, Evaluation]]:
    """Yield points (d, k) with orthonormal columns, J growing from one to the next but for some.

    Parameters
    ----------
    evaluate : callable
        Returns J and what belongs to it at a point.
    slope : callable
        Returns half of the gradient of J (d, k) out of that.
    W : (d, k) array
        Where to begin.
    now : Evaluation
        What `evaluate` returns there.
    """
    P = slope(now)
    uphill = _tangent(W, P)
    length = _bounded(_FIRST / max(float(np.linalg.norm(uphill, 2)), _TINY), P)
    level, weight, steps = now.objective, 1.0, 0
    while True:
        curve = _curve(W, P)
        # Along the curve J rises at first by twice this for each unit of length.
        rise = float(np.sum(uphill * P))
        for _ in range(_CUTS):
            following = curve(length)
            found = evaluate(following)
            if found.objective >= level + _GAIN * length * rise:
                break
            length *= _CUT
        W_before, uphill_before = W, uphill
        W, now = following, found
        P = slope(now)
        uphill = _tangent(W, P)
        steps += 1
        longer = steps % 2 == 1
        length = _next_length(W - W_before, uphill - uphill_before, length, longer=longer)
        length = _bounded(length, P)
        weight, before = _MEMORY * weight + 1.0, weight
        level = (_MEMORY * before * level + now.objective) / weight
        yield W, now


def _bounded(length: float, P: Array) -> float:
    """Return a length at which the curve can be told from rounding."""
    return min(length, _LONGEST / max(float(np.linalg.norm(P)), _TINY))


def _tangent(W: Array, P: Array) -> Array:
    """Return the direction (d, k) in which the Cayley curve leaves W: P less what turns W back."""
    return P - W @ (P.T @ W)


def _curve(W: Array, P: Array) -> Callable[[float], Array]:
    """Return the curve of (d, k) points through W that leaves it uphill, for the slope P (d, k)."""
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
    """Return one of the two lengths of Barzilai and Borwein, which take turns."""
    along = abs(float(np.sum(step * change)))
    over, under = (float(np.sum(step**2)), along) if longer else (along, float(np.sum(change**2)))
    return over / under if over > 0 and under > 0 else length
