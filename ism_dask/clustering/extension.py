"""Extensions of a spectral embedding: they map projected rows, also those not in the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from sklearn.utils import gen_batches

from ism_dask._types import Array
from ism_dask.engines.lowrank.row_sums import FactoredSlope
from ism_dask.kernels import Kernel

# Rows that are embedded at a time.
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class FactorExtension:
    """The embedding by a low-rank factor F of the kernel: `U = H D^-1/2 F V S^-1`.

    Attributes
    ----------
    kernel : Kernel
        The affinity.
    expansion : FactoredSlope
        The map from rows to F.
    total : (m,) array
        The sum of F over all rows, by their weights.
    degree_regulariser : float
        The regulariser that is added to every degree.
    mean : (m,) array
        The mean of `D^-1/2 F`.
    projection : (m, k) array
        `V S^-1`.
    """

    kernel: Kernel
    expansion: FactoredSlope
    total: Array
    degree_regulariser: float
    mean: Array
    projection: Array

    def __call__(self, Z: Array) -> Array:
        """Return the rows of U for the rows Z (b, q), and `D^-1/2` beside them: (b, k + 1)."""
        rows, roots = self.normalised(Z.astype(np.float64))
        return np.column_stack([(rows - self.mean) @ self.projection, roots])

    def normalised(self, Z: Array) -> tuple[Array, Array]:
        """Return `D^-1/2 F` (b, m) and `D^-1/2` (b,) of Z (b, q)."""
        F = self.expansion.factor(Z) * np.sqrt(self.expansion.slope)
        largest = self_affinity(self.kernel)
        # The part of a row's affinity with itself that the factor leaves out is known exactly.
        # Added, it keeps the degrees of rows far from all landmarks above 0.
        degrees = F @ self.total + np.maximum(largest - np.einsum("ij,ij->i", F, F), 0.0)
        roots = inverse_roots(degrees + self.degree_regulariser)
        return F * roots[:, None], roots


@dataclass(frozen=True, eq=False)
class KernelExtension:
    """The embedding by the kernel with all rows of the fit.

    Attributes
    ----------
    kernel : Kernel
        The affinity.
    rows : (n, q) array
        All rows of the fit, projected.
    degree_regulariser : float
        The regulariser that is added to every degree.
    weights : (n, k + 1) array
        `w D^-1/2 U L^-1`, and the weights w.
    offset : (k,) array
        The mean that centring subtracts.
    """

    kernel: Kernel
    rows: Array
    degree_regulariser: float
    weights: Array
    offset: Array

    def __call__(self, Z: Array) -> Array:
        """Return the rows of U for the rows Z (b, q), and `D^-1/2` beside them: (b, k + 1)."""
        sums = np.concatenate(
            [
                self.kernel.matrix(Z[batch], self.rows) @ self.weights
                for batch in gen_batches(len(Z), _ROWS_AT_ONCE)
            ]
        )
        roots = inverse_roots(sums[:, -1] + self.degree_regulariser)
        return np.column_stack([sums[:, :-1] * roots[:, None] - self.offset, roots])


# Maps projected rows to their embedding, also rows that were not in the fit.
Extension: TypeAlias = FactorExtension | KernelExtension


def self_affinity(kernel: Kernel) -> float:
    """Return the affinity of a row with itself: an affinity depends on the distance, here 0."""
    row = np.zeros((1, 1))
    return float(kernel.matrix(row, row)[0, 0])


def inverse(values: Array) -> Array:
    """Return the reciprocals of values, and 0 for values of 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def inverse_roots(values: Array) -> Array:
    """Return `values^-1/2`, and 0 for values of 0: an isolated row has no embedding."""
    return np.sqrt(inverse(values))
