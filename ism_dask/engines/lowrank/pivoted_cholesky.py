"""A pivoted Cholesky factor of a kernel on some points, grown until little is left."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.linalg.lapack

from ism_dask._types import Array
from ism_dask.engines.base import DeclinedError
from ism_dask.kernels import PointwiseKernel
from ism_dask.kernels.pairing import DISTANCE, HARMLESS, INNER

# Proposals at a time: long enough for matrix products, short enough that few are refused.
_BLOCK = 24
_UNIT = 0.5 * float(np.finfo(np.float64).eps)
# Pivots this far below the largest diagonal entry are rounding.
_ROUNDING = 1e-13
# Roundings that an entry of the landmarks' matrix may be off by, beside what its beta is off by.
_OF_ENTRY = 64
# By how many times its own share the shape may change as beta changes by a share of `resolution`.
_STEEPNESS = 4
# Where the landmarks' matrix is indefinite all the same, its diagonal is raised by so much more,
# so many times.
_RAISED, _TIMES = 30.0, 5


@dataclass(frozen=True)
class Nystrom:
    """A map to F with `F F^T <= shape`, equal at the landmarks but for rounding.

    Attributes
    ----------
    term : PointwiseKernel
    points : (m, q) array
        The landmarks.
    triangle : (m, m) array
        The upper triangular factor of their matrix.
    raised : float
        What was added to its diagonal.
    """

    term: PointwiseKernel
    points: Array
    triangle: Array
    raised: float = 0.0

    @classmethod
    def at(cls, term: PointwiseKernel, points: Array) -> Nystrom:
        """Return the map of these landmarks (m, q).

        Their matrix is factored afresh: a factor grown step by step has gathered rounding that
        what is left of the diagonal does not tell. It is raised by as much as rounding may have
        taken from it. That makes F a little less, so that the rest stays positive.
        """
        matrix = shape_between(term, points, points)
        size = float(np.diag(matrix).max(initial=0.0))
        raised = len(points) * entry_roundings(term, points) * _UNIT * size
        for _ in range(_TIMES):
            diagonal = raised * np.eye(len(points))
            with suppress(scipy.linalg.LinAlgError):
                return cls(term, points, scipy.linalg.cholesky(matrix + diagonal), raised)
            raised *= _RAISED
        raise DeclinedError(
            f"the matrix of {len(points)} landmarks of {term.title} is not positive semi-definite, "
            "which its class declares it to be; take engine='exact'"
        )

    def weights(self, F: Array) -> Array:
        """Return the (b, m) weights with which landmarks make the shape at rows of F (b, m)."""
        return np.asarray(scipy.linalg.solve_triangular(self.triangle, F.T, check_finite=False).T)

    @property
    def largest_weights(self) -> float:
        """A bound on the length of a row of `weights`."""
        inverse = np.triu(scipy.linalg.lapack.dtrtri(self.triangle)[0])
        return float(np.linalg.norm(inverse)) * self._longest

    def rounding(self, reach: float, weights: float) -> float:
        """Return how far an entry of `F F^T` may be off by rounding.

        It comes of the entries that F is solved from, and of solving.

        Parameters
        ----------
        reach : float
            No projected row is longer.
        weights : float
            No row of `weights` is longer.
        """
        m, size = self.size, self._longest**2
        longest = np.full((1, self.points.shape[1]), reach)
        of_entries = np.sqrt(m) * entry_roundings(self.term, longest) * size
        return 2.0 * weights * _UNIT * (of_entries + m * np.sqrt(m) * size)

    @property
    def _longest(self) -> float:
        """A bound on the length of a row of F."""
        return float(np.linalg.norm(self.triangle, axis=0).max(initial=0.0))

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.points)

    def __call__(self, Z: Array) -> Array:
        """Return F (b, m) of Z (b, q)."""
        if not self.size:
            return np.empty((len(Z), 0))
        shape = shape_between(self.term, Z, self.points)
        return scipy.linalg.solve_triangular(
            self.triangle, shape.T, trans="T", overwrite_b=True, check_finite=False
        ).T


def entry_roundings(term: PointwiseKernel, points: Array) -> float:
    """Return how many roundings the shape of a kernel between points (m, q) may be off by."""
    if term.pairing is not DISTANCE:
        return float(term.roundings + _OF_ENTRY)
    cancelled = 4.0 * (points.shape[1] + 4) * float(INNER.own(points).max(initial=0.0))
    of_beta = 2.0 * min(HARMLESS, cancelled / term.resolution)
    return term.roundings + _OF_ENTRY + _STEEPNESS * of_beta


def shape_between(term: PointwiseKernel, rows: Array, columns: Array) -> Array:
    """Return the shape of a kernel (a, b) between points `rows` (a, q) and `columns` (b, q)."""
    left, right = term.pairing.operands(rows)[0], term.pairing.operands(columns)[1]
    beta = term.beta(left, right)
    return term.unit_slope(beta, out=beta)


def shape_diagonal(term: PointwiseKernel, Z: Array) -> Array:
    """Return the (b,) shape of each row of Z (b, q) with itself."""
    return term.unit_slope(term.pairing.own(Z))


class PivotedCholesky:
    """Landmarks chosen among points at random, each with the odds of what is left at it.

    Proposals come in blocks; one that the others of its block leave little of is refused with
    the odds that it deserves (randomly pivoted Cholesky, accelerated). The choice is a function
    of the points and the seed.

    Parameters
    ----------
    term : PointwiseKernel
        With a positive semi-definite shape.
    Z : (p, q) array
        The points, in float64.
    seed : sequence of int
    """

    def __init__(self, term: PointwiseKernel, Z: Array, seed: list[int]) -> None:
        self.term = term
        self._rng = np.random.default_rng(seed)
        self._Z = Z
        self._factor = np.empty((len(Z), 0))
        self._pivots: list[int] = []
        self.left = shape_diagonal(term, Z)
        self._floor = _ROUNDING * float(self.left.max(initial=0.0))

    @property
    def size(self) -> int:
        """Landmarks so far."""
        return len(self._pivots)

    @property
    def landmarks(self) -> Nystrom:
        """The map that the landmarks make."""
        return Nystrom.at(self.term, self._Z[self._pivots])

    def propose(self) -> bool:
        """Take a block of landmarks; say whether there was anything left to take."""
        total = self.left.sum()
        if not total > 0:
            return False
        return self._take(self._rng.choice(len(self.left), _BLOCK, p=self.left / total))

    def admit(self, Z: Array) -> None:
        """Add points (p', q) to choose among, and take those of them that the others miss."""
        mapped = self.landmarks(Z)
        first = len(self._Z)
        self._Z = np.concatenate([self._Z, Z])
        self._factor = np.concatenate([self._factor, mapped])
        own = shape_diagonal(self.term, Z)
        self._floor = max(self._floor, _ROUNDING * float(own.max(initial=0.0)))
        left = own - (mapped**2).sum(axis=1)
        self.left = np.concatenate([self.left, np.maximum(left, 0.0)])
        self._take(np.arange(first, len(self._Z)))

    def _take(self, block: Array) -> bool:
        """Take landmarks among the points numbered `block`; say whether there was one."""
        kernel = shape_between(self.term, self._Z, self._Z[block])
        columns = kernel - self._factor @ self._factor[block].T
        kept, triangle = self._accepted(columns[block])
        if not kept:
            return False
        new = scipy.linalg.solve_triangular(triangle, columns[:, kept].T, lower=True).T
        self._factor = np.hstack([self._factor, new])
        self._pivots += block[kept].tolist()
        self.left = np.maximum(self.left - (new**2).sum(axis=1), 0.0)
        self.left[self._pivots] = 0.0
        return True

    def _accepted(self, block: Array) -> tuple[list[int], Array]:
        """Return which of a block (b, b) of what is left to take, and their triangle (k, k)."""
        before = np.diag(block).copy()
        block, kept, columns = block.copy(), [], []
        for index, odds in enumerate(self._rng.random(len(block))):
            pivot = block[index, index]
            if pivot > max(self._floor, odds * before[index]):
                column = block[:, index] / np.sqrt(pivot)
                block -= np.multiply.outer(column, column)
                kept.append(index)
                columns.append(column)
        return kept, np.array(columns).T[kept] if kept else np.empty((0, 0))
