"""How beta comes from two projected rows: their inner product or their squared distance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from ism_dask._types import Array

# A squared distance computed from squared lengths has an error of some roundings of the lengths.
# It does no harm up to this many roundings of the smallest beta that the kernel can resolve.
TOLERATED_ROUNDINGS = 512.0
# Beyond that, squared distances below this share of the squared lengths are computed again, from
# the differences of the rows.
CANCELLED_SHARE = 0.05


class Pairing(ABC):
    """A rule that computes beta from two rows, with the two constants that it brings to Phi.

    `Phi = X^T (coupling * Psi + degree * diag(Psi 1)) X` for `Psi = Gamma o f'(beta)`.
    """

    coupling: ClassVar[float]
    degree: ClassVar[float]

    @abstractmethod
    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return (n, k) arrays L and R with `beta_ij = L_i . R_j`, up to rounding."""

    @abstractmethod
    def own(self, Z: Array) -> Array:
        """Return the (n,) beta of each row of Z (n, k) with itself."""

    def beta(
        self, left: Array, right: Array, out: Array | None = None, resolution: float = np.inf
    ) -> Array:
        """Return the (a, b) tile of beta from operands `left` (a, k) and `right` (b, k).

        `resolution` is the beta at which the kernel begins to differ from its value at 0.
        """
        return np.matmul(left, right.T, out=out)

    def between(
        self, Z: Array, others: Array, out: Array | None = None, resolution: float = np.inf
    ) -> Array:
        """Return beta (a, b) of rows (a, q) and others (b, q), as `beta` does."""
        return self.beta(self.operands(Z)[0], self.operands(others)[1], out, resolution)


class Inner(Pairing):
    """`beta_ij = x_i^T W W^T x_j`, hence `A_ij = x_j x_i^T + x_i x_j^T`."""

    coupling = 1.0
    degree = 0.0

    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return Z twice."""
        return Z, Z

    def own(self, Z: Array) -> Array:
        """Return the squared lengths of the rows."""
        return np.einsum("ij,ij->i", Z, Z)


class Distance(Pairing):
    """`beta_ij = ||W^T (x_i - x_j)||^2`, hence `A_ij = 2 (x_i - x_j) (x_i - x_j)^T`."""

    coupling = -2.0
    degree = 2.0

    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return Z with its squared lengths as columns, so that one product gives distances.

        Cancellation can make beta slightly negative; kernels treat such a beta as zero.
        """
        lengths = INNER.own(Z)[..., None]
        ones = np.ones_like(lengths)
        left, right = [-2.0 * Z, lengths, ones], [Z, ones, lengths]
        return np.concat(left, axis=-1), np.concat(right, axis=-1)

    def beta(
        self, left: Array, right: Array, out: Array | None = None, resolution: float = np.inf
    ) -> Array:
        """Return squared distances (a, b), by differences of rows if lengths would cancel."""
        beta = super().beta(left, right, out)
        if resolution == np.inf:
            return beta
        lengths, others = left[:, -2], right[:, -1]
        reach = lengths.max(initial=0.0) + others.max(initial=0.0)
        if left.shape[1] * reach > TOLERATED_ROUNDINGS * resolution:
            # On a flat array `flatnonzero` is several times faster than `nonzero` on two axes.
            short = np.flatnonzero(beta < CANCELLED_SHARE * np.add.outer(lengths, others))
            rows, columns = np.divmod(short, beta.shape[1])
            squared = np.zeros(len(short), left.dtype)
            for z, other in zip(left.T[:-2], right.T, strict=False):
                # The left operand is -2 Z: halving is exact.
                difference = -0.5 * z[rows] - other[columns]
                squared += difference * difference
            beta[rows, columns] = squared
        return beta

    def own(self, Z: Array) -> Array:
        """Return zeros: a row has no distance from itself."""
        return np.zeros(len(Z))


INNER = Inner()
DISTANCE = Distance()
