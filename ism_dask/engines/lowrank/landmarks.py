"""Landmarks of a kernel, drawn at random by pivoted Cholesky, and the map to F that they give."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.base import DeclinedError
from ism_dask.kernels import PointwiseKernel
from ism_dask.kernels.pairing import DISTANCE, INNER, TOLERATED_ROUNDINGS
from ism_dask.linalg.pivoted_cholesky import PivotedCholesky

# Proposals in a block: enough for matrix products, and few enough that most are accepted.
_BLOCK = 24
_UNIT = 0.5 * float(np.finfo(np.float64).eps)
# Bound on the error of an entry of the landmarks' matrix beside that of its beta, in roundings.
_ENTRY_ROUNDINGS = 128.0
# Bound on the relative change of the unit slope per change of beta by `resolution`.
_STEEPNESS = 4
# The most by which the remainder of a row grows, in units of the raise of the diagonal.
_GROWTH = 4.0
# If the landmarks' matrix is still indefinite, the raise of its diagonal is multiplied by this
# factor, up to this many times.
_RAISE_FACTOR, _MOST_RAISES = 30.0, 5


@dataclass(frozen=True)
class Nystrom:
    """A map to F with `F F^T <= unit_slope`, with equality at the landmarks up to rounding.

    Attributes
    ----------
    term : PointwiseKernel
    points : (m, q) array
        The landmarks.
    triangle : (m, m) array
        The upper triangular Cholesky factor of the landmarks' matrix.
    raised : float
        The number that was added to its diagonal.
    """

    term: PointwiseKernel
    points: Array
    triangle: Array
    raised: float = 0.0

    @classmethod
    def from_landmarks(cls, term: PointwiseKernel, points: Array) -> Nystrom:
        """Return the Nystrom map of these landmarks (m, q).

        Their matrix is factored anew: a factor that grew step by step has accumulated rounding
        errors, which the remainders on the diagonal do not show. Its diagonal is raised by as
        much as rounding may have removed. That makes F slightly smaller, so that the remainder
        stays positive semi-definite.
        """
        matrix = unit_slope_between(term, points, points)
        size = float(np.diag(matrix).max(initial=0.0))
        raised = len(points) * entry_roundings(term, points) * _UNIT * size
        for _ in range(_MOST_RAISES):
            diagonal = raised * np.eye(len(points))
            with suppress(scipy.linalg.LinAlgError):
                return cls(term, points, scipy.linalg.cholesky(matrix + diagonal), raised)
            raised *= _RAISE_FACTOR
        raise DeclinedError(
            f"the matrix of {len(points)} landmarks of {term.title} is not positive semi-definite, "
            "which its class declares it to be; take engine='exact'"
        )

    @property
    def rounding(self) -> float:
        """The most by which rounding, and the raise against it, enlarge the remainder of a row."""
        return _GROWTH * self.raised

    @property
    def size(self) -> int:
        """The number of landmarks."""
        return len(self.points)

    def __call__(self, Z: Array) -> Array:
        """Return F (b, m) for Z (b, q)."""
        if not self.size:
            return np.empty((len(Z), 0))
        slopes = unit_slope_between(self.term, Z, self.points)
        return scipy.linalg.solve_triangular(
            self.triangle, slopes.T, trans="T", overwrite_b=True, check_finite=False
        ).T


def entry_roundings(term: PointwiseKernel, points: Array) -> float:
    """Return a bound, in roundings, on the error of unit slopes between points (m, q)."""
    if term.pairing is not DISTANCE:
        return _ENTRY_ROUNDINGS
    cancelled = 4.0 * (points.shape[1] + 4) * float(INNER.own(points).max(initial=0.0))
    of_beta = 2.0 * min(TOLERATED_ROUNDINGS, cancelled / term.resolution)
    return _ENTRY_ROUNDINGS + _STEEPNESS * of_beta


def unit_slope_between(term: PointwiseKernel, rows: Array, columns: Array) -> Array:
    """Return the unit slopes (a, b) between points `rows` (a, q) and `columns` (b, q)."""
    left, right = term.pairing.operands(rows)[0], term.pairing.operands(columns)[1]
    beta = term.beta(left, right)
    return term.unit_slope(beta, out=beta)


def unit_slope_diagonal(term: PointwiseKernel, Z: Array) -> Array:
    """Return the (b,) unit slopes of each row of Z (b, q) with itself."""
    return term.unit_slope(term.pairing.own(Z))


class RandomLandmarks:
    """Landmarks drawn at random from points, with probabilities proportional to their remainders.

    This is randomly pivoted Cholesky, accelerated: proposals come in blocks, and a proposal is
    accepted with the share of its remainder that the accepted ones of its block leave. The choice
    is a function of the points and the seed.

    Parameters
    ----------
    term : PointwiseKernel
        A kernel with a positive semi-definite `unit_slope`.
    Z : (p, q) array
        The points, in float64.
    seed : sequence of int
    """

    def __init__(self, term: PointwiseKernel, Z: Array, seed: list[int]) -> None:
        self.term = term
        self._rng, self._Z = np.random.default_rng(seed), Z
        self._cholesky = PivotedCholesky(
            lambda rows: unit_slope_between(self.term, self._Z, self._Z[rows]),
            unit_slope_diagonal(term, Z),
        )

    @property
    def chosen(self) -> list[int]:
        """The indices of the landmarks among the points."""
        return self._cholesky.pivots

    @property
    def left(self) -> Array:
        """The remainders (p,) of the points."""
        return self._cholesky.left

    @property
    def size(self) -> int:
        """The number of landmarks so far."""
        return self._cholesky.size

    @property
    def landmarks(self) -> Nystrom:
        """The Nystrom map of the landmarks."""
        return Nystrom.from_landmarks(self.term, self._Z[self.chosen])

    def propose(self) -> bool:
        """Add a block of landmarks; return False if no remainder was left to add any."""
        total = self.left.sum()
        if not total > 0:
            return False
        block = self._rng.choice(len(self.left), _BLOCK, p=self.left / total)
        return self._cholesky.add(block, self._rng.random(_BLOCK))

    def admit(self, Z: Array) -> None:
        """Add candidate points (p', q), and accept as landmarks those with a remainder."""
        mapped = self.landmarks(Z)
        self._Z = np.concatenate([self._Z, Z])
        rows = self._cholesky.append(mapped, unit_slope_diagonal(self.term, Z))
        self._cholesky.add(rows, self._rng.random(len(rows)))
