"""Uphill on the subspaces by L-BFGS: curvature from the last steps makes the next ones longer.

J rises in every step. Directions are tangents Z (d, k) of W with `W^T Z = 0`; those of earlier
steps are projected onto the tangents of the present W.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation
from ism_dask.linalg.eigen import nearest_orthonormal

# Steps whose curvature is remembered.
_MEMORY = 20
# What a step has to gain of what its slope promises.
_GAIN = 1e-4
# A step that is too long is cut to this share; and the most cuts.
_CUT, _CUTS = 0.4, 12
# The sine by which the first step turns W, and the tangent that no step goes beyond.
_FIRST, _LONGEST = 0.1, 0.5
# Curvature that is a smaller share of what its step and change allow is rounding.
_ROUNDING = 1e-10
_TINY = float(np.finfo(np.float64).tiny)

Precondition = Callable[[Array], Array]


def lbfgs_ascent(
    evaluate: Callable[[Array], Evaluation],
    W: Array,
    now: Evaluation,
    precondition: Precondition | None = None,
) -> Iterator[tuple[Array, Evaluation]]:
    """Yield points (d, k) with orthonormal columns, J growing from one to the next.

    It ends where no step along the slope raises J any more.

    Parameters
    ----------
    evaluate : callable
        Returns J and Phi W (d, k) at a point.
    W : (d, k) array
        Where to begin.
    now : Evaluation
        What `evaluate` returns there.
    precondition : callable, optional
        Multiplies a slope (d, k) by a guess of the inverse curvature, up to a factor: a positive
        definite matrix.
    """
    guess = _identity if precondition is None else precondition
    memory: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)
    uphill = _tangent(W, now.matrix)
    while True:
        direction = _tangent(W, _direction(uphill, memory, guess))
        if not np.sum(direction * uphill) > 0:
            memory.clear()
            direction = _tangent(W, _direction(uphill, memory, guess))
        found = _searched(evaluate, W, now, direction, float(np.sum(direction * uphill)))
        if found is None:
            if not memory:
                return
            memory.clear()  # curvature that is out of date; the slope itself may still lead up
            continue
        step, W, now = found
        before, uphill = _tangent(W, uphill), _tangent(W, now.matrix)
        earlier = [(_tangent(W, each), _tangent(W, change)) for each, change in memory]
        memory.clear()
        memory.extend((each, change) for each, change in earlier if _curved(each, change))
        pair = _tangent(W, step), before - uphill
        if _curved(*pair):
            memory.append(pair)
        yield W, now


def _searched(
    evaluate: Callable[[Array], Evaluation],
    W: Array,
    now: Evaluation,
    direction: Array,
    slope: float,
) -> tuple[Array, Array, Evaluation] | None:
    """Return a step, the point that it leads to and J there, or None where J does not rise."""
    share = min(1.0, _LONGEST / max(float(np.linalg.norm(direction, 2)), _TINY))
    for _ in range(_CUTS):
        point = nearest_orthonormal(W + share * direction)
        there = evaluate(point)
        # Along the direction J rises at first by twice the slope.
        if there.objective > now.objective + _GAIN * share * slope:
            return share * direction, point, there
        share *= _CUT
    return None


def _identity(Z: Array) -> Array:
    return Z


def _direction(uphill: Array, memory: deque[tuple[Array, Array]], guess: Precondition) -> Array:
    """Return the slope times the inverse curvature: a guess that the memory corrects."""
    if not memory:
        direction = guess(uphill)
        return direction * (_FIRST / max(float(np.linalg.norm(direction, 2)), _TINY))
    direction, shares = uphill, []
    for step, change in reversed(memory):
        share = float(np.sum(step * direction) / np.sum(step * change))
        direction = direction - share * change
        shares.append(share)
    step, change = memory[-1]
    direction = guess(direction) * float(np.sum(step * change) / np.sum(change * guess(change)))
    for (step, change), share in zip(memory, reversed(shares), strict=True):
        back = float(np.sum(change * direction) / np.sum(step * change))
        direction = direction + step * (share - back)
    return direction


def _tangent(W: Array, Z: Array) -> Array:
    return Z - W @ (W.T @ Z)


def _curved(step: Array, change: Array) -> bool:
    """Return whether J bends down along a step, so that its curvature can be used."""
    size = float(np.linalg.norm(step) * np.linalg.norm(change))
    return float(np.sum(step * change)) > _ROUNDING * size > 0
