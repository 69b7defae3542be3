"""A look over all rows at what landmarks leave out, and what that can do to J."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.lowrank.pivoted_cholesky import shape_diagonal
from ism_dask.engines.lowrank.row_sums import FactoredSlope, moment_columns, moment_sums
from ism_dask.gamma.base import Gamma
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.rows import LoadedShard

# Up to so many sides the eigenvalues of what the error is made of cost next to nothing.
_WIDE, _WIDE_ALONE = 256, 2048
# Rows told of each look: those where most is left.
_WORST = 64


class LargestRemainders:
    """The points with most left, of some rows; the sum of two is that of all their rows.

    Attributes
    ----------
    left : (t,) array
        Falling.
    rows : (t,) array
        Their numbers.
    points : (t, q) array
    """

    def __init__(self, left: Array, rows: Array, points: Array) -> None:
        # The number decides between equals: the answer must not hang on how rows were cut.
        order = np.lexsort((rows, -left))[:_WORST]
        self.left, self.rows, self.points = left[order], rows[order], points[order]

    def __add__(self, other: LargestRemainders) -> LargestRemainders:
        return LargestRemainders(
            np.concatenate([self.left, other.left]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.points, other.points]),
        )


@dataclass(frozen=True)
class RemainderRounding:
    """How far what a term leaves out may be off by rounding: its trace, and what that does to J."""

    trace: float = 0.0
    objective: float = 0.0


# Of a term: the trace of its shape, what is left of that, and where.
TermRemainder: TypeAlias = tuple[float, float, LargestRemainders]


@dataclass(frozen=True)
class RemainderMeasure:
    """What a task needs to look at some rows.

    Attributes
    ----------
    kernel : Kernel
    expansion : Expansion
    gamma : Gamma
    """

    kernel: Kernel
    expansion: FactoredSlope
    gamma: Gamma

    def look(self, piece: LoadedShard) -> tuple[Array, Array, tuple[TermRemainder, ...]]:
        """Return moment sums (v, m, q + 2), the Gram matrix of the error, and each term's find.

        The rows of the piece are projected ones.
        """
        Z, facts = piece.X.astype(np.float64, copy=False), piece.facts[0]
        F = self.expansion.factor(Z)
        found, first = [], 0
        for (_, term), each in zip(self.kernel.terms, self.expansion.maps, strict=True):
            own = shape_diagonal(term, Z)
            columns = F[:, first : first + each.size]
            left = np.maximum(own - np.einsum("ij,ij->i", columns, columns), 0.0)
            rows = piece.start + np.arange(len(Z))
            found.append((float(own.sum()), float(left.sum()), LargestRemainders(left, rows, Z)))
            first += each.size
        gram = self._gram(self.gamma.factor(facts), moment_columns(Z)[:, : self._width])
        return moment_sums(Z, F, facts, self.gamma), gram, tuple(found)

    def left_out(
        self, gram: Array, found: tuple[TermRemainder, ...], rounding: tuple[RemainderRounding, ...]
    ) -> float:
        """Return a bound on what the landmarks leave out of J.

        A term leaves `sum_ij M_ij E_ij` of J out, with `M = Gamma o (a + b beta)` and E positive
        semi-definite: that is between the extreme eigenvalues of M, times the trace of E.

        Parameters
        ----------
        gram : array
            As `look` returns it.
        found : tuple
            The finds of all rows.
        rounding : tuple of Rounding
            What rounding does to each term.
        """
        low = high = blur = 0.0
        for (weight, term), (_, left, _), off in zip(
            self.kernel.terms, found, rounding, strict=True
        ):
            ends = weight * term.amplitude * (left + off.trace) * self._range(term, gram)
            low, high, blur = low + ends.min(), high + ends.max(), blur + off.objective
        return max(abs(low), abs(high)) + blur

    @property
    def _width(self) -> int | None:
        """How many of 1, z and z^2 the error needs beside U: one, or all."""
        rates = [(term.value_by_slope or (0.0, 0.0))[1] for _, term in self.kernel.terms]
        return None if any(rates) else 1

    def _gram(self, U: Array, sides: Array) -> Array:
        """Return what the error needs of U (b, r) times each of the sides (b, p).

        That is their Gram matrix (rp, rp), or where it would be large its diagonal (rp,).
        """
        if U.shape[1] * sides.shape[1] > (_WIDE if sides.shape[1] > 1 else _WIDE_ALONE):
            return np.ravel((U**2).T @ sides**2)
        basis = (U[:, :, None] * sides[:, None, :]).reshape(len(U), -1)
        return np.asarray(basis.T @ basis)

    def _range(self, term: PointwiseKernel, gram: Array) -> Array:
        """Return bounds on the least eigenvalue of M, at most 0, and the largest, at least 0."""
        constant, rate = term.value_by_slope or (0.0, 0.0)
        inner, outer = rate * term.pairing.coupling, rate * term.pairing.degree
        width = len(gram) // len(self.gamma.signs)
        if gram.ndim == 1:
            # Of each u M is a sum of products, no larger than the lengths of their sides allow.
            ones, *z, squares = gram.reshape(-1, width).T if width > 1 else (gram, 0.0 * gram)
            each = abs(constant) * ones + abs(outer) * np.sqrt(ones * squares)
            each += abs(inner) * np.sum(z, axis=0)
            return float(np.abs(self.gamma.signs) @ each) * np.array([-1.0, 1.0])
        form = np.zeros((width, width))
        form[0, 0] = constant
        if width > 1:
            middle = np.arange(1, width - 1)
            form[middle, middle] = inner
            form[0, -1] = form[-1, 0] = outer / 2
        values, vectors = scipy.linalg.eigh(gram)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        M = root.T @ np.kron(np.diag(self.gamma.signs), form) @ root
        ends = scipy.linalg.eigvalsh(M)[[0, -1]]
        return np.array([min(ends[0], 0.0), max(ends[1], 0.0)])


def measure_remainder(
    piece: LoadedShard, audit: RemainderMeasure
) -> tuple[Array, Array, tuple[TermRemainder, ...]]:
    """Call `audit.look`: a function that a worker can import."""
    return audit.look(piece)
