"""What a claim of convergence asks beside a small residual: that no way up leads on from W.

A W can be stationary and yet not stay: at a saddle of J, or at a maximum that the spectral step
leaves because Phi has larger eigenvalues outside of W than within. Both are found out by trying.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.operator import Operator, check_finite, space_of
from ism_dask.linalg.eigen import leading_eigenpairs, nearest_orthonormal, subspace_sine
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping import GAIN, HORIZON
from ism_dask.solvers.time_limit import TimeLimited

# Products with the second derivative of J: extreme eigenvalues show within so many.
_PRODUCTS = 12
# The step of a finite difference, for exact engines and for those whose answers vary a little.
_STEP, _COARSE_STEP = 1e-5, 0.03
# Differences of eigenvalues below this share of the largest are taken to be that large.
_LEAST_GAP = 1e-3
# An eigenvalue of the step's derivative beyond 1 by no more than this grows by little in so many
# steps as the claim looks ahead.
_GROWTH = 0.05
# How far W is moved along a direction in which J rises, as angles.
_MOVES = (0.5, 0.2, 0.05)
# The share of what the claim allows that is worth going on for.
_CAUTION = 0.3
# What is left of a vector is rounding where it is a smaller share.
_NOTHING = 1e-6
# How far W is moved where the spectral step would leave it by itself, in many small steps.
_NUDGE = 0.03
# Subspaces nearer than this are the same one again.
_SAME = 1e-3


@dataclass(frozen=True)
class Verdict:
    """What trying to leave W came to.

    Attributes
    ----------
    better : (d, q) array or None
        A W from which J rises above that of the solution, if one was found.
    certain : bool
        Whether what was tried came to an end, so that nothing better lies further on.
    objective : float
        J of the better W.
    """

    better: Array | None = None
    certain: bool = True
    objective: float = -np.inf


def verify_maximum(operator: TimeLimited, solution: Solution, horizon: int = HORIZON) -> Verdict:
    """Try to leave the W of a solution uphill, and by up to `horizon` spectral steps.

    Raises
    ------
    TimeIsUpError
        When the time is up before the verdict is known.
    """
    local = _SecondOrderModel.of(operator, solution)
    ends = local.extremes()
    if ends.largest > _GROWTH:
        moved = _highest(operator, solution, ends.upward)
        if moved is not None:
            return Verdict(moved)
    if local.leaves:
        return _looked_ahead(operator, solution, solution.W, horizon)
    if ends.least > -2.0 - _GROWTH:
        return Verdict()
    # The step turns W over, further each time: to either side it may come to another end.
    unit = ends.across / np.linalg.norm(ends.across, 2)
    sides = (nearest_orthonormal(solution.W + side * unit) for side in (_NUDGE, -_NUDGE))
    verdicts = [_looked_ahead(operator, solution, side, horizon) for side in sides]
    best = max(verdicts, key=lambda verdict: verdict.objective)
    return replace(best, certain=all(verdict.certain for verdict in verdicts))


@dataclass(frozen=True)
class _Extremes:
    """The least and the largest eigenvalue of a scaled second derivative, and their directions."""

    least: float
    largest: float
    across: Array
    upward: Array


@dataclass(frozen=True)
class _SecondOrderModel:
    """J near a stationary W, to the second order.

    Directions Z (d, q) with `W^T Z = 0` are told in eigenvectors of Phi, and scaled so that the
    spectral step's own pull back to W is 1: the derivative of that step then has the eigenvalues
    of the second derivative of J, plus 1.
    """

    operator: Operator
    solution: Solution
    outside: Array
    gaps: Array
    step: float

    @classmethod
    def of(cls, operator: TimeLimited, solution: Solution) -> _SecondOrderModel:
        """Look at Phi at W."""
        W = solution.W
        evaluation = operator.phi(W)
        basis = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
        inner, turn = scipy.linalg.eigh(basis.T @ check_finite(evaluation.matrix) @ basis)
        gaps = solution.eigenvalues - inner[:, None]
        step = _COARSE_STEP if evaluation.approximate else _STEP
        return cls(operator, solution, basis @ turn, gaps, step)

    @property
    def leaves(self) -> bool:
        """Whether Phi has an eigenvalue outside of W that is larger than one within."""
        return bool(self.gaps.min() < 0)

    @property
    def _scales(self) -> Array:
        sizes = np.abs(self.gaps)
        return np.sqrt(np.maximum(sizes, _LEAST_GAP * sizes.max()))

    def extremes(self) -> _Extremes:
        """Return the ends of the scaled second derivative of J, by a few steps of Lanczos."""
        rng = np.random.default_rng(0)
        vectors: list[Array] = []
        images: list[Array] = []
        following = self._drawn(rng)
        for _ in range(min(_PRODUCTS, self.gaps.size)):
            vectors.append(_outside_of(vectors, following))
            images.append(self._product(vectors[-1]))
            following = _outside_of(vectors, images[-1])
            if not following.any():
                # These are all that can be reached from there: go on from elsewhere.
                following = self._drawn(rng)
        basis, product = np.array(vectors).T, np.array(images).T
        small = basis.T @ product
        values, mix = scipy.linalg.eigh((small + small.T) / 2)
        across, upward = (self._direction(basis @ mix[:, end]) for end in (0, -1))
        return _Extremes(float(values[0]), float(values[-1]), across, upward)

    def _drawn(self, rng: np.random.Generator) -> Array:
        """Return a random direction, drawn in coordinates of W: others hang on rounding."""
        return (self.outside.T @ rng.normal(size=self.solution.W.shape)).ravel()

    def _product(self, vector: Array) -> Array:
        """Return the scaled second derivative of J along a scaled direction."""
        W, product = self.solution.W, self.solution.product
        Z = self._direction(vector)
        size = float(np.linalg.norm(Z))
        step = self.step / size
        there = self.operator.gradient(nearest_orthonormal(W + step * Z)).matrix
        # Half of the derivative of the slope, less what turns W within its own span.
        change = (there - product) / step - Z @ (W.T @ product)
        return np.asarray((self.outside.T @ change / self._scales).ravel())

    def _direction(self, vector: Array) -> Array:
        scaled = vector.reshape(self.gaps.shape) / self._scales
        return np.asarray(self.outside @ scaled)


def _highest(operator: TimeLimited, solution: Solution, direction: Array) -> Array | None:
    """Return the W of largest J along a direction and against it, if that is above the solution's.

    Where J is known but for an error, it has to be above by more than that.
    """
    unit = direction / np.linalg.norm(direction, 2)
    best, highest = None, solution.objective + _CAUTION * GAIN * abs(solution.objective)
    # A saddle that is all but flat may show its rise in small steps only.
    for angle in (sign * move for move in _MOVES for sign in (1.0, -1.0)):
        W = nearest_orthonormal(solution.W + np.tan(angle) * unit)
        objective = operator.gradient(W).objective
        if objective > highest:
            best, highest = W, objective
    return best


def _looked_ahead(operator: TimeLimited, solution: Solution, W: Array, horizon: int) -> Verdict:
    """Return what spectral steps from W (d, q), the solution's or near it, come to.

    They come to an end where they come to a subspace again: what follows is the same again.
    """
    best, highest = None, solution.objective + _CAUTION * GAIN * abs(solution.objective)
    evaluation, passed = operator.phi(W), [W]
    for _ in range(horizon):
        W = leading_eigenpairs(
            check_finite(evaluation.matrix),
            W.shape[1],
            guess=W,
            noise=evaluation.noise,
            space=space_of(operator),
        ).vectors
        evaluation = operator.phi(W)
        if evaluation.objective > highest:
            best, highest = W, evaluation.objective
        if any(subspace_sine(before, W) < _SAME for before in passed[1:]):
            return Verdict(best, objective=highest)
        passed.append(W)
    return Verdict(best, certain=False, objective=highest)


def _outside_of(vectors: list[Array], vector: Array) -> Array:
    """Return what `vector` has outside of orthonormal vectors, of length 1; zeros for nothing."""
    size, left = float(np.linalg.norm(vector)), vector
    for _ in range(2):  # once more, for the rounding of the first time
        for each in vectors:
            left = left - (each @ left) * each
    length = float(np.linalg.norm(left))
    return np.asarray(left / length) if length > _NOTHING * size else np.zeros_like(vector)
