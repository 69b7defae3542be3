"""A pivoted Cholesky factor of a kernel on some points, grown until little is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask.kernels import PointwiseKernel
from ism_dask.typing import Array

# Proposals at a time: long enough for matrix products, short enough that few are refused.
_BLOCK = 24
# Pivots this far below the largest diagonal entry are rounding.
_ROUNDING = 1e-13
# What the diagonal of the landmarks' matrix is raised by where rounding made that indefinite.
_RIDGE = 1e-12


@dataclass(frozen=True)
class Nystrom:
    """A map to F with `F F^T <= shape`, equal at the landmarks.

    Attributes
    ----------
    term : PointwiseKernel
    points : (m, q) array
        The landmarks.
    triangle : (m, m) array
        The upper triangular factor of their matrix.
    """

    term: PointwiseKernel
    points: Array
    triangle: Array

    @classmethod
    def at(cls, term: PointwiseKernel, points: Array) -> Nystrom:
        """Return the map of these landmarks (m, q).

        Their matrix is factored afresh: a factor grown step by step has gathered rounding that
        what is left of the diagonal does not tell.
        """
        matrix = shape_between(term, points, points)
        ridge = _RIDGE * np.diag(matrix).max(initial=0.0)
        try:
            return cls(term, points, scipy.linalg.cholesky(matrix))
        except scipy.linalg.LinAlgError:
            # A little more of the landmarks' own makes F a little less: the rest stays positive.
            return cls(term, points, scipy.linalg.cholesky(matrix + ridge * np.eye(len(points))))

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


def shape_between(term: PointwiseKernel, rows: Array, columns: Array) -> Array:
    """Return the shape of a kernel (a, b) between points `rows` (a, q) and `columns` (b, q)."""
    left, right = term.pairing.operands(rows)[0], term.pairing.operands(columns)[1]
    beta = term.pairing.beta(left, right)
    return term.shape(beta, out=beta)


def shape_diagonal(term: PointwiseKernel, Z: Array) -> Array:
    """Return the (b,) shape of each row of Z (b, q) with itself."""
    return term.shape(term.pairing.own(Z))


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
