"""Second-order check of a converged W: that neither an ascent nor spectral steps lead further up.

A stationary W need not be the end of the iteration. It may be a saddle point of J, or a maximum
that the spectral step leaves because Phi has larger eigenvalues outside of W than within. The check
tries both ways to leave W.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.operator import Operator, check_finite, space_of
from ism_dask.linalg.eigen import leading_eigenpairs, nearest_orthonormal, subspace_sine
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping_rule import GAIN, HORIZON
from ism_dask.solvers.time_limit import TimeLimited

# Steps of Lanczos, each with one product with the second derivative of J: enough to estimate its
# extreme eigenvalues.
_PRODUCTS = 12
# The step of a finite difference, for exact and for approximate engines, whose error varies with W.
_STEP, _COARSE_STEP = 1e-5, 0.03
# Differences of eigenvalues are taken to be at least this share of the largest difference.
_LEAST_GAP = 1e-3
# An eigenvalue of the derivative of the spectral step may exceed 1 in size by this much: within the
# `HORIZON` of `converged` the growth stays small.
_GROWTH = 0.05
# The angles by which W is moved along a direction in which J rises.
_MOVES = (0.5, 0.2, 0.05)
# The share of the gain that `converged` tolerates from which the search continues.
_CAUTION = 0.3
# The remainder of an orthogonalised vector is rounding if it is a smaller share of the vector.
_NEGLIGIBLE = 1e-6
# The displacement of W if the spectral step would leave it by itself, but in many small steps.
_NUDGE = 0.03
# Subspaces with a smaller sine between them are equal.
_SAME = 1e-3


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


def verify_maximum(operator: TimeLimited, solution: Solution, horizon: int = HORIZON) -> Verdict:
    """Return whether an ascent, or up to `horizon` spectral steps, lead from W to a larger J.

    Raises
    ------
    TimeIsUpError
        When the time limit is reached before the verdict.
    """
    model = _SecondOrderModel.of(operator, solution)
    extremes = model.extremes()
    if extremes.largest > _GROWTH:
        moved = _best_along(operator, solution, extremes.upward)
        if moved is not None:
            return Verdict(moved)
    if model.spectral_step_leaves:
        return _after_spectral_steps(operator, solution, solution.W, horizon)
    if extremes.least > -2.0 - _GROWTH:
        return Verdict()
    # The spectral step overshoots W, further each time: on either side it may converge elsewhere.
    unit = extremes.across / np.linalg.norm(extremes.across, 2)
    sides = (nearest_orthonormal(solution.W + side * unit) for side in (_NUDGE, -_NUDGE))
    verdicts = [_after_spectral_steps(operator, solution, side, horizon) for side in sides]
    best = max(verdicts, key=lambda verdict: verdict.objective)
    return replace(best, certain=all(verdict.certain for verdict in verdicts))


@dataclass(frozen=True)
class _Extremes:
    """The smallest and largest eigenvalue of a scaled second derivative, and their directions."""

    least: float
    largest: float
    across: Array
    upward: Array


@dataclass(frozen=True)
class _SecondOrderModel:
    """J near a stationary W, to second order.

    Directions Z (d, q) with `W^T Z = 0` are written in eigenvectors of Phi, and scaled so that the
    spectral step by itself would return to W at rate 1. The eigenvalues of the derivative of the
    step are then those of the second derivative of J, plus 1.
    """

    operator: Operator
    solution: Solution
    outside: Array
    gaps: Array
    step: float

    @classmethod
    def of(cls, operator: TimeLimited, solution: Solution) -> _SecondOrderModel:
        """Return the model at the W of a solution; this computes Phi once."""
        W = solution.W
        evaluation = operator.phi(W)
        basis = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
        values, rotation = scipy.linalg.eigh(basis.T @ check_finite(evaluation.phi) @ basis)
        gaps = solution.eigenvalues - values[:, None]
        step = _COARSE_STEP if evaluation.approximate else _STEP
        return cls(operator, solution, basis @ rotation, gaps, step)

    @property
    def spectral_step_leaves(self) -> bool:
        """Whether Phi has an eigenvalue outside of W that is larger than one within."""
        return bool(self.gaps.min() < 0)

    @property
    def _scales(self) -> Array:
        sizes = np.abs(self.gaps)
        return np.sqrt(np.maximum(sizes, _LEAST_GAP * sizes.max()))

    def extremes(self) -> _Extremes:
        """Return the extreme eigenpairs of the scaled second derivative of J, by Lanczos."""
        rng = np.random.default_rng(0)
        vectors: list[Array] = []
        images: list[Array] = []
        following = self._random_direction(rng)
        for _ in range(min(_PRODUCTS, self.gaps.size)):
            vectors.append(_orthogonalised(vectors, following))
            images.append(self._product(vectors[-1]))
            following = _orthogonalised(vectors, images[-1])
            if not following.any():
                # The vectors span an invariant subspace: continue from another random direction.
                following = self._random_direction(rng)
        basis, product = np.array(vectors).T, np.array(images).T
        small = basis.T @ product
        values, mix = scipy.linalg.eigh((small + small.T) / 2)
        across, upward = (self._direction(basis @ mix[:, end]) for end in (0, -1))
        return _Extremes(float(values[0]), float(values[-1]), across, upward)

    def _random_direction(self, rng: np.random.Generator) -> Array:
        """Draw a random direction in the coordinates of W, which do not depend on rounding."""
        return (self.outside.T @ rng.normal(size=self.solution.W.shape)).ravel()

    def _product(self, vector: Array) -> Array:
        """Return the scaled second derivative of J along a scaled direction."""
        W, product = self.solution.W, self.solution.product
        Z = self._direction(vector)
        size = float(np.linalg.norm(Z))
        step = self.step / size
        there = self.operator.gradient(nearest_orthonormal(W + step * Z)).product
        # The derivative of Phi(W) W, minus the part that rotates W within its own span.
        change = (there - product) / step - Z @ (W.T @ product)
        return np.asarray((self.outside.T @ change / self._scales).ravel())

    def _direction(self, vector: Array) -> Array:
        scaled = vector.reshape(self.gaps.shape) / self._scales
        return np.asarray(self.outside @ scaled)


def _best_along(operator: TimeLimited, solution: Solution, direction: Array) -> Array | None:
    """Return the W of largest J along a direction and its opposite, or None if no J is larger.

    J has to exceed that of the solution by more than a share, because it may have an error.
    """
    unit = direction / np.linalg.norm(direction, 2)
    best, highest = None, solution.objective + _CAUTION * GAIN * abs(solution.objective)
    # Near a saddle point that is almost flat J may rise in small steps only.
    for angle in (sign * move for move in _MOVES for sign in (1.0, -1.0)):
        W = nearest_orthonormal(solution.W + np.tan(angle) * unit)
        objective = operator.gradient(W).objective
        if objective > highest:
            best, highest = W, objective
    return best


def _after_spectral_steps(
    operator: TimeLimited, solution: Solution, W: Array, horizon: int
) -> Verdict:
    """Return the verdict of spectral steps from W (d, q), the solution's or one near it.

    The steps end if they return to an earlier subspace, because they would repeat from there.
    """
    best, highest = None, solution.objective + _CAUTION * GAIN * abs(solution.objective)
    evaluation, visited = operator.phi(W), [W]
    for _ in range(horizon):
        W = leading_eigenpairs(
            check_finite(evaluation.phi),
            W.shape[1],
            guess=W,
            noise=evaluation.noise,
            space=space_of(operator),
        ).vectors
        evaluation = operator.phi(W)
        if evaluation.objective > highest:
            best, highest = W, evaluation.objective
        if any(subspace_sine(before, W) < _SAME for before in visited[1:]):
            return Verdict(best, objective=highest)
        visited.append(W)
    return Verdict(best, certain=False, objective=highest)


def _orthogonalised(vectors: list[Array], vector: Array) -> Array:
    """Return `vector` made orthogonal to orthonormal vectors, of length 1, or zeros."""
    size, remainder = float(np.linalg.norm(vector)), vector
    for _ in range(2):  # the second time removes the rounding of the first
        for each in vectors:
            remainder = remainder - (each @ remainder) * each
    length = float(np.linalg.norm(remainder))
    return np.asarray(remainder / length) if length > _NEGLIGIBLE * size else np.zeros_like(vector)
