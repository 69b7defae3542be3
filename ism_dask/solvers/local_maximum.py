"""Second-order check of a converged W: that neither an ascent nor spectral steps lead further up.

A stationary W need not be the end of the iteration. It may be a saddle point of J, or a maximum
that the spectral step leaves because Phi has larger eigenvalues outside of W than within. The check
tries both ways to leave W.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import check_finite
from ism_dask.linalg.eigen import leading_eigenpairs, nearest_orthonormal
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping_rule import GAIN, HORIZON
from ism_dask.solvers.scaled_hessian import Extremes
from ism_dask.solvers.time_limit import TimeLimited

# An eigenvalue of the derivative of the spectral step may exceed 1 in size by this much: within the
# `HORIZON` of `converged` the growth stays small.
_GROWTH = 0.05
# The angles by which W is moved along a direction in which J rises.
_MOVES = (0.5, 0.2, 0.05, 0.01)
# The least rise of J, as a share of it, that is followed: below it, rounding decides where W goes.
_LEAST_RISE = 1e-6
# The share of the gain that `converged` tolerates from which the search continues.
_CAUTION = 0.3
# The displacement of W if the spectral step would leave it by itself, but in many small steps.
_NUDGE = 0.03
# Subspaces with a smaller sine between them are equal, also by an engine that approximates.
_SAME, _SAME_NEARLY = 1e-3, 0.03


@dataclass(frozen=True)
class Verdict:
    """The result of trying to leave W.

    Attributes
    ----------
    better : (d, q) array or None
        A W with a larger J than the solution, or None.
    certain : bool
        Whether the spectral steps came to an end, so that more of them lead to nothing better.
    objective : float
        J of the better W.
    """

    better: Array | None = None
    certain: bool = True
    objective: float = -np.inf


def verify_maximum(operator: TimeLimited, solution: Solution, extremes: Extremes) -> Verdict:
    """Return whether an ascent, or up to `HORIZON` spectral steps, lead from W to a larger J.

    `extremes` are those of the Hessian at W.

    Raises
    ------
    TimeIsUpError
        When the time limit is reached before the verdict.
    """
    if extremes.rises:
        moved = _best_along(operator, solution, extremes)
        if moved is not None:
            return Verdict(moved)
    if extremes.spectral_step_leaves:
        return _after_spectral_steps(operator, solution, solution.W)
    if extremes.least > -2.0 - _GROWTH:
        return Verdict()
    # The spectral step overshoots W, further each time: on either side it may converge elsewhere.
    unit = extremes.across / np.linalg.norm(extremes.across, 2)
    sides = (nearest_orthonormal(solution.W + side * unit) for side in (_NUDGE, -_NUDGE))
    verdicts = [_after_spectral_steps(operator, solution, side) for side in sides]
    best = max(verdicts, key=lambda verdict: verdict.objective)
    return replace(best, certain=all(verdict.certain for verdict in verdicts))


def _best_along(operator: TimeLimited, solution: Solution, extremes: Extremes) -> Array | None:
    """Return the W of largest J upward and in the opposite direction, or None if no J is larger.

    J has to exceed that of the solution by more than its error, and by a millionth.
    """
    # By symmetry J often rises equally in both directions: take the same one whatever the rounding.
    upward = extremes.upward * np.sign(extremes.upward.flat[np.abs(extremes.upward).argmax()])
    unit = upward / np.linalg.norm(upward, 2)
    share = _CAUTION * GAIN
    if not extremes.approximate:
        share = min(share, max(_LEAST_RISE, 2.0 * solution.error))
    best, least = None, share * abs(solution.objective)
    highest = solution.objective
    # Near a saddle point that is almost flat J may rise in small steps only.
    for angle in (sign * move for move in _MOVES for sign in (1.0, -1.0)):
        W = nearest_orthonormal(solution.W + np.tan(angle) * unit)
        objective = operator.gradient(W).objective
        if objective > highest + least:
            best, highest = W, objective
    return best


def _after_spectral_steps(operator: TimeLimited, solution: Solution, W: Array) -> Verdict:
    """Return the verdict of spectral steps from W (d, q), the solution's or one near it.

    The steps end if they return to an earlier subspace, because they would repeat from there.
    """
    best, highest = None, solution.objective + _CAUTION * GAIN * abs(solution.objective)
    evaluation, visited = operator.phi(W), [W]
    for _ in range(HORIZON):
        W = leading_eigenpairs(
            check_finite(evaluation.phi),
            W.shape[1],
            guess=W,
            noise=evaluation.noise,
            space=operator.space,
        ).vectors
        evaluation = operator.phi(W)
        if evaluation.objective > highest:
            best, highest = W, evaluation.objective
        same = _SAME_NEARLY if evaluation.approximate else _SAME
        if any(subspace_sine(before, W) < same for before in visited[1:]):
            return Verdict(best, objective=highest)
        visited.append(W)
    return Verdict(best, certain=False, objective=highest)
