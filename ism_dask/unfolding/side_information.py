"""The kernel L of side information in tr(K L), as products that need no n x n matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.thin_factors import kernel_correlation

# Sums of rows of a factor that cancel out are below this share of its largest entry.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class FactorKernel:
    """`L = F F^T`, the centred kernel of side information.

    Attributes
    ----------
    factor : (n, r) array
        F, whose columns add up to 0.
    """

    factor: Array

    @property
    def n_columns(self) -> int:
        """The number of columns of F."""
        return self.factor.shape[1]

    @property
    def trace(self) -> float:
        """The sum of squares of F."""
        return float(np.vdot(self.factor, self.factor))

    def times(self, Y: Array) -> Array:
        """Return `F (F^T Y)`."""
        return self.factor @ (self.factor.T @ Y)

    def correlation(self, Y: Array) -> float:
        """Return HSIC of the kernels `Y Y^T` and L as a share of the most it could be, its root.

        It is 0 if all rows of Y (n, q) are 0.
        """
        if not Y.any():
            return 0.0
        # Fourth powers of extreme numbers overflow.
        return kernel_correlation(Y / np.abs(Y).max(), self.factor / np.abs(self.factor).max())

    def summed(self, node: Array, n_nodes: int) -> FactorKernel:
        """Return the kernel of nodes, each of which stands for the rows of its number (n,).

        Raise a ValueError if the sums of these rows of F are 0.
        """
        total = np.zeros((n_nodes, self.factor.shape[1]))
        np.add.at(total, node, self.factor)
        if np.abs(total).max() <= _ROUNDING * np.abs(self.factor).max():
            raise ValueError(
                "`y` differs only between equal rows of X, and averages to the same for all rows, "
                "so that it says nothing of where rows are; expected another y, or y=None"
            )
        return FactorKernel(total)


@dataclass(frozen=True, eq=False)
class NoSideKernel:
    """`L = H`, the centred identity: plain maximum variance unfolding.

    Attributes
    ----------
    counts : (n,) array
        The number of rows that each row stands for.
    """

    counts: Array
    n_columns: ClassVar[int] = 0

    @property
    def trace(self) -> float:
        """The trace of L: the number of rows less one, if each stands for itself."""
        return float(self.counts.sum() - self.counts @ self.counts / self.counts.sum())

    def times(self, Y: Array) -> Array:
        """Return each row minus the mean, as often as it counts."""
        return self.counts[:, None] * (Y - np.average(Y, axis=0, weights=self.counts))

    def correlation(self, Y: Array) -> float:
        """Return the correlation: 1 if all directions of Y (n, q) vary alike and q is n - 1."""
        product = Y.T @ self.times(Y)
        norm = float(np.linalg.norm(product)) * np.sqrt(self.counts.sum() - 1)
        return float(np.sqrt(np.trace(product) / norm)) if norm else 0.0

    def summed(self, node: Array, n_nodes: int) -> NoSideKernel:
        """Return the kernel with the sums of the counts."""
        return NoSideKernel(np.bincount(node, self.counts, n_nodes))


SideKernel: TypeAlias = FactorKernel | NoSideKernel
