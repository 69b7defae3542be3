"""How two projected rows become beta, and what that makes of Phi."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from ism_dask._types import Array

# A squared distance from squared lengths is off by some roundings of the lengths. As long as these
# are no more than so many roundings of what the kernel can resolve, nothing is lost.
HARMLESS = 512.0
# Otherwise pairs that are nearer than this share of their squared lengths are computed again, from
# the differences of their rows.
SHORT = 0.05


class Moving(NamedTuple):
    """Projected rows P (n, k), and Q (n, k), by which they move as W does along a direction."""

    P: Array
    Q: Array


class Pairing(ABC):
    """How beta is made of two rows, and what that makes of Phi.

    `Phi = X^T (coupling * Psi + degree * diag(Psi 1)) X` for `Psi = Gamma o f'(beta)`.
    """

    coupling: ClassVar[float]
    degree: ClassVar[float]

    @abstractmethod
    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return (n, k) arrays L and R with `beta_ij = L_i . R_j`, up to rounding."""

    @abstractmethod
    def own(self, Z: Array) -> Array:
        """Return the (n,) betas of each row of Z (n, k) with itself."""

    @abstractmethod
    def change(self, left: Moving, right: Moving) -> Array:
        """Return the (a, b) tile of what beta changes by, to first order, as the rows move."""

    def beta(
        self,
        left: Array,
        right: Array,
        out: Array | None = None,
        resolution: float = np.inf,
    ) -> Array:
        """Return the (a, b) tile of beta of operands `left` (a, k) and `right` (b, k).

        `resolution` is the beta at which the kernel begins to differ from its value at 0.
        """
        return np.matmul(left, right.T, out=out)


class Inner(Pairing):
    """`beta_ij = x_i^T W W^T x_j`, hence `A_ij = x_j x_i^T + x_i x_j^T`."""

    coupling = 1.0
    degree = 0.0

    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return Z twice."""
        return Z, Z

    def own(self, Z: Array) -> Array:
        """Return squared lengths."""
        return np.einsum("ij,ij->i", Z, Z)

    def change(self, left: Moving, right: Moving) -> Array:
        """Return `P_i . Q_j + Q_i . P_j`."""
        return np.asarray(left.P @ right.Q.T + left.Q @ right.P.T)


class Distance(Pairing):
    """`beta_ij = ||W^T (x_i - x_j)||^2`, hence `A_ij = 2 (x_i - x_j) (x_i - x_j)^T`."""

    coupling = -2.0
    degree = 2.0

    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return Z with the squared lengths beside it, so that one product gives distances.

        Cancellation may leave beta a little below zero; kernels take it as zero.
        """
        lengths = INNER.own(Z)[:, None]
        ones = np.ones_like(lengths)
        return np.hstack([-2.0 * Z, lengths, ones]), np.hstack([Z, ones, lengths])

    def beta(
        self,
        left: Array,
        right: Array,
        out: Array | None = None,
        resolution: float = np.inf,
    ) -> Array:
        """Return squared distances (a, b), from differences where lengths would cancel."""
        beta = np.matmul(left, right.T, out=out)
        lengths, others = left[:, -2], right[:, -1]
        reach = lengths.max(initial=0.0) + others.max(initial=0.0)
        if left.shape[1] * reach > HARMLESS * resolution:
            # Of a flat array the few that are True are found several times as fast.
            short = np.flatnonzero(beta < SHORT * np.add.outer(lengths, others))
            rows, columns = np.divmod(short, beta.shape[1])
            beta[rows, columns] = _squared_differences(left, right, rows, columns)
        return beta

    def own(self, Z: Array) -> Array:
        """Return zeros."""
        return np.zeros(len(Z))

    def change(self, left: Moving, right: Moving) -> Array:
        """Return `2 (P_i - P_j) . (Q_i - Q_j)`."""
        own = np.add.outer(*(np.einsum("ij,ij->i", *each) for each in (left, right)))
        return np.asarray(2.0 * (own - INNER.change(left, right)))


def _squared_differences(left: Array, right: Array, rows: Array, columns: Array) -> Array:
    """Return the squared distances (p,) of p pairs of `Distance.operands`."""
    squared = np.zeros(len(rows), left.dtype)
    for z, other in zip(left.T[:-2], right.T, strict=False):
        # The left operand is -2 Z: halving is exact.
        difference = -0.5 * z[rows] - other[columns]
        squared += difference * difference
    return squared


INNER = Inner()
DISTANCE = Distance()
