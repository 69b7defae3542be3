"""Judge by brute force whether a W is a local maximum of J, which needs only values of J."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from scipy.optimize import minimize

from ism_dask._types import Array
from ism_dask.linalg.subspaces import nearest_orthonormal, subspace_sine

Objective = Callable[[Array], float]
# The step of second differences of J, and what rounding leaves of them, as a share of J.
_STEP, _NOISE = 1e-3, 1e-8
# Distances at which J is compared, and at which ascents start.
_RADII = (1e-3, 3e-3, 1e-2)
_RANDOM_DIRECTIONS, _ASCENTS = 20, 3
# J may differ by so much of it by rounding.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Surroundings:
    """J around a W (d, q), as a function of the numbers z (m,) that say how far W is turned.

    Attributes
    ----------
    objective : callable
        J of W.
    W : (d, q) array
    outside : (d, d - q) array
        An orthonormal basis outside of W.
    """

    objective: Objective
    W: Array
    outside: Array

    @classmethod
    def of(cls, objective: Objective, W: Array) -> Surroundings:
        """Return the surroundings of W (d, q)."""
        return cls(objective, W, np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :])

    @property
    def size(self) -> int:
        """The number of directions, m."""
        return int(self.outside.shape[1] * self.W.shape[1])

    def turned(self, z: Array) -> Array:
        """Return W turned by z (m,)."""
        return nearest_orthonormal(self.W + self.outside @ z.reshape(-1, self.W.shape[1]))

    def at(self, z: Array) -> float:
        """Return J of W turned by z (m,)."""
        return self.objective(self.turned(z))

    def gradient(self) -> Array:
        """Return the gradient (m,) of J at W, by differences."""
        steps = _STEP * np.eye(self.size)
        return np.array([self.at(step) - self.at(-step) for step in steps]) / (2 * _STEP)

    def hessian(self) -> Array:
        """Return the matrix (m, m) of second derivatives of J at W, by differences."""
        steps = _STEP * np.eye(self.size)
        values = np.zeros((self.size, self.size))
        for i, j in combinations_with_replacement(range(self.size), 2):
            a, b = steps[i], steps[j]
            fourth = self.at(a + b) - self.at(a - b) - self.at(b - a) + self.at(-a - b)
            values[i, j] = values[j, i] = fourth / (4 * _STEP**2)
        return values


def objection(objective: Objective, W: Array, distance: float, *, climb: bool = False) -> str:
    """Return why W (d, q) is no local maximum of J, not even one that is `distance` away, or "".

    All second derivatives have to be negative, and no W nearby may have a larger J: along each
    eigenvector of the second derivatives, in random directions, and with `climb` at the end of
    ascents that start nearby.
    """
    around = Surroundings.of(objective, W)
    J, hessian = objective(W), around.hessian()
    values, vectors = np.linalg.eigh(hessian)
    if values[-1] > _NOISE * abs(J):
        return f"J has the second derivative {values[-1]:.3g} along a direction"
    # What a step to the maximum may gain, because W is stationary only nearly.
    gain = distance * float(np.linalg.norm(around.gradient())) + _ROUNDING * abs(J)
    for z in _nearby(vectors, distance):
        if around.at(z) > J + gain:
            return f"J rises by {around.at(z) - J:.2g} at a distance of {np.linalg.norm(z):.2g}"
    return _climbed(around, J + gain, distance) if climb else ""


def _nearby(vectors: Array, distance: float) -> Iterator[Array]:
    rng = np.random.default_rng(0)
    random = rng.normal(size=(_RANDOM_DIRECTIONS, len(vectors)))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    for radius in (*_RADII, 3 * distance):
        for direction in (*vectors.T, *random):
            yield radius * direction
            yield -radius * direction


def _climbed(around: Surroundings, highest: float, distance: float) -> str:
    """Return where ascents end that start near W, if not at W again."""
    scale, rng = abs(highest), np.random.default_rng(1)
    for _ in range(_ASCENTS):
        start = rng.normal(size=around.size)
        start *= _RADII[-1] / np.linalg.norm(start)
        end = minimize(lambda z: -around.at(z) / scale, start, method="BFGS")
        if -end.fun * scale > highest:
            away = subspace_sine(around.W, around.turned(end.x))
            if away > max(2 * distance, _RADII[0]):
                return f"an ascent ends {away:.2g} away, where J is larger"
    return ""
