"""The criterion of dependence on blocks of rows: Gamma of a block, so that J is that of all pairs.

J is the sum of `Gamma_ij f(beta_ij)` over all pairs of n rows. The pairs within random blocks are a
sample of all pairs, and Gamma of a block weighs them such that the sum over blocks has J, Phi and
Phi W of all pairs as its expectation, not only up to 1/m as the plain HSIC of blocks of m rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array

# A matrix of fewer rows cannot be centred without its diagonal.
_FEWEST = 4


@dataclass(frozen=True, eq=False)
class BlockGamma:
    """Gamma of the rows of a block: `U diag(signs) U^T` off the diagonal.

    Attributes
    ----------
    U : (m, s) array
    signs : (s,) array
    missing : (m,) array
        The diagonal of Gamma minus that of `U diag(signs) U^T`.
    """

    U: Array
    signs: Array
    missing: Array


@dataclass(frozen=True, eq=False)
class AllPairs:
    """The numbers about `Gamma = U diag(signs) U^T` of all n rows that Gamma of a block needs.

    Attributes
    ----------
    n : int
    total : (r,) array
        The sums of the columns of U.
    signs : (r,) array
    trace : float
        The trace of Gamma.
    """

    n: int
    total: Array
    signs: Array
    trace: float

    def in_block(self, U: Array) -> BlockGamma:
        """Return Gamma of a block, given its rows of U (m, r).

        Off the diagonal Gamma is a matrix whose rows have the sum 0, plus `rest_i + rest_j`
        (U-centring; Szekely and Rizzo, Annals of Statistics 42, 2014). With the first part centred
        again within the block, its sum over pairs has the expectation m (m - 3) / n (n - 3) of that
        over all pairs, and does not depend on the mean of the kernel. Other matrices have
        m (m - 1) / n (n - 1). A block of all n rows has Gamma itself.
        """
        m, n = len(U), self.n
        diagonal = (U * U) @ self.signs
        sampled = (n - 1) / max(m - 1, 1)
        if m < _FEWEST:
            return BlockGamma(U, sampled * self.signs, (1 - sampled) * diagonal)
        within = _additive_part(U @ (self.signs * U.sum(axis=0)) - diagonal)
        rest = _additive_part(U @ (self.signs * self.total) - diagonal, n, self._off_diagonal_sum)
        share = (n - 3) / (m - 3)
        shift = sampled * rest - share * within
        # shift_i + shift_j as a difference of two squares, of numbers that are alike in size.
        size = float(np.abs(shift).max()) or 1.0
        columns = np.column_stack([U, shift / size + 1.0, shift / size - 1.0])
        signs = np.array([*(share * self.signs), size / 2, -size / 2])
        return BlockGamma(columns, signs, diagonal - (columns * columns) @ signs)

    @property
    def _off_diagonal_sum(self) -> float:
        return float(self.total @ (self.signs * self.total)) - self.trace


def _additive_part(sums: Array, n: int | None = None, total: float | None = None) -> Array:
    """Return a (m,) such that a matrix less `a_i + a_j` off its diagonal has rows of the sum 0.

    `sums` (m,) are those of its rows off the diagonal, `total` their sum over all n rows; the m
    rows are all of them unless these are given.
    """
    n = len(sums) if n is None else n
    total = float(sums.sum()) if total is None else total
    return np.asarray(sums / (n - 2) - total / (2 * (n - 1) * (n - 2)))
