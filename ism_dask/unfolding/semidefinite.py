"""Solves the small semi-definite program of an unfolding, with a bound on what is missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.unfolding.normal_equations import QuadraticProgram

# The gap, relative to the value, that certifies a solution.
GAP = 1e-8
# The most steps, and the steps from one measurement of the gap to the next.
_MOST_STEPS, _STEPS_PER_CHECK = 50_000, 20


@dataclass(frozen=True, eq=False)
class ProgramSolution:
    """A positive semi-definite B near the maximum of a `QuadraticProgram`.

    Attributes
    ----------
    B : (m, m) array
    value : float
        F at B, which is 0 at B = 0.
    gap : float
        A bound on how much larger the maximum of F is, as a share of the value.
    n_steps : int
    """

    B: Array
    value: float
    gap: float
    n_steps: int


def solve(program: QuadraticProgram, gap: float = GAP) -> ProgramSolution:
    """Maximise F by projected accelerated gradient steps, until the duality gap is small enough.

    The momentum starts anew when it leads against the gradient (O'Donoghue and Candes), so that
    the steps converge linearly without an estimate of the least curvature of F.
    """
    B = ahead = np.zeros((program.m, program.m))
    momentum = 1.0
    for step in range(1, _MOST_STEPS + 1):
        last, B = B, _projected(ahead + program.slope(ahead) / program.curvature)
        if np.vdot(ahead - B, B - last) > 0:
            momentum, ahead = 1.0, B
        else:
            following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            ahead = B + (momentum - 1.0) / following * (B - last)
            momentum = following
        if step % _STEPS_PER_CHECK == 0 and (solution := _measured(program, B, step)).gap <= gap:
            return solution
    return _measured(program, B, _MOST_STEPS)


def _measured(program: QuadraticProgram, B: Array, n_steps: int) -> ProgramSolution:
    """Return B with its duality gap.

    F is concave: from B to any B' it rises by at most `<S, B' - B>` with S the gradient at B, and
    `<S, B'>` is at most the largest eigenvalue of S, if it is positive, times the trace of B'.
    """
    slope = program.slope(B)
    value = 0.5 * float(np.vdot(program.gradient + slope, B))
    rise = max(float(scipy.linalg.eigvalsh(slope)[-1]), 0.0)
    missing = rise * program.largest_trace(value) - float(np.vdot(slope, B))
    return ProgramSolution(B, value, max(missing, 0.0) / value if value > 0 else np.inf, n_steps)


def _projected(B: Array) -> Array:
    """Return the positive semi-definite matrix that is nearest to B (m, m)."""
    values, vectors = scipy.linalg.eigh((B + B.T) / 2)
    positive = values > 0
    return (vectors[:, positive] * values[positive]) @ vectors[:, positive].T
