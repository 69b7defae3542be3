"""Measure the remainder of a landmark approximation over all rows, and bound its effect on J."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.lowrank.landmarks import (
    LargestRemainders,
    Nystrom,
    TermRemainder,
    unit_slope_diagonal,
)
from ism_dask.engines.lowrank.row_sums import FactoredSlope, moment_columns, moment_sums
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.rows.raw import LoadedShard

# Up to this many columns, the eigenvalues of the Gram matrix of the error are cheap to compute.
_MOST, _MOST_OF_U = 256, 2048


@dataclass(frozen=True)
class RemainderMeasure:
    """The kernel, its low-rank factor and Gamma: what a task needs to measure remainders."""

    kernel: Kernel
    expansion: FactoredSlope
    gamma: Gamma

    def measure_remainders(
        self, piece: LoadedShard
    ) -> tuple[Array, Array, tuple[TermRemainder, ...]]:
        """Return moment sums (v, m, q + 2), the Gram matrix of the error and each remainder.

        The rows of the shard are projected ones.
        """
        Z, facts = piece.X.astype(np.float64, copy=False), piece.facts[GAMMA_FACTS]
        F = self.expansion.factor(Z)
        terms, first = [], 0
        for (_, term), each in zip(self.kernel.terms, self.expansion.maps, strict=True):
            diagonal = unit_slope_diagonal(term, Z)
            columns = F[:, first : first + each.size]
            rest = np.maximum(diagonal - np.einsum("ij,ij->i", columns, columns), 0.0)
            rows = piece.start + np.arange(len(Z))
            terms.append(
                (float(diagonal.sum()), float(rest.sum()), LargestRemainders(rest, rows, Z))
            )
            first += each.size
        gram = self._gram(self.gamma.factor(facts), moment_columns(Z)[:, : self._width])
        return moment_sums(Z, F, facts, self.gamma), gram, tuple(terms)

    def left_out(self, gram: Array, found: tuple[TermRemainder, ...], n_rows: int) -> float:
        """Return a bound on the part of J that the landmarks omit.

        The part of a term is `sum_ij M_ij E_ij`, with `M = Gamma o (a + b beta)` and a positive
        semi-definite E: it lies between the extreme eigenvalues of M times the trace of E.

        Parameters
        ----------
        gram : array
            The Gram matrix that `measure_remainders` returns, summed over all rows.
        found : tuple of TermRemainder
            The remainders of all rows, one for each term.
        n_rows : int
            The number of all rows.
        """
        low = high = 0.0
        maps = self.expansion.maps
        for (weight, term), (_, rest, _), each in zip(self.kernel.terms, found, maps, strict=True):
            rounding = n_rows * each.rounding if isinstance(each, Nystrom) else 0.0
            ends = weight * term.amplitude * (rest + rounding) * self._ends(term, gram)
            low, high = low + ends.min(), high + ends.max()
        return max(abs(low), abs(high))

    @property
    def _width(self) -> int | None:
        """The number of columns of 1, z and ||z||^2 that the error needs: 1, or None for all."""
        rates = [(term.value_by_slope or (0.0, 0.0))[1] for _, term in self.kernel.terms]
        return None if any(rates) else 1

    def _gram(self, U: Array, sides: Array) -> Array:
        """Return the Gram matrix (rp, rp) of the products of columns of U (b, r) and sides (b, p).

        If it would be large, return its diagonal (rp,) instead.
        """
        if U.shape[1] * sides.shape[1] > (_MOST if sides.shape[1] > 1 else _MOST_OF_U):
            return np.ravel((U**2).T @ sides**2)
        basis = (U[:, :, None] * sides[:, None, :]).reshape(len(U), -1)
        return np.asarray(basis.T @ basis)

    def _ends(self, term: PointwiseKernel, gram: Array) -> Array:
        """Return bounds on the least eigenvalue of M, at most 0, and on the largest, at least 0."""
        constant, rate = term.value_by_slope or (0.0, 0.0)
        inner, outer = rate * term.pairing.coupling, rate * term.pairing.degree
        width = len(gram) // len(self.gamma.signs)
        if gram.ndim == 1:
            # For each column u of U, M is a sum of outer products, bounded by the norms of their
            # factors.
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
