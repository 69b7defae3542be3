"""A pilot sample: all pairs of about a thousand rows, computed before the first pass over all rows.

It gives the mean value and slope of the kernel on these rows, and compares the noise that random
pairs add to Phi W with the change of Phi W by a draw of other rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Problem
from ism_dask.engines.row_facts import terms_with_widths
from ism_dask.engines.tile_walk import ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.kernels.base import conic_sum, full_like
from ism_dask.kernels.pairing import Pairing
from ism_dask.rows.shards import Shards

# The number of rows of a pilot sample, and of the shards that they come from, at most.
_ROWS, _SHARDS = 1024, 32


@dataclass(frozen=True)
class Tangent(PointwiseKernel):
    """The kernel `f(beta) = constant + rate * beta`, for which J and Phi have a closed form."""

    pairing: Pairing  # type: ignore[misc]  # that of the kernel
    constant: float
    rate: float

    constant_slope = True

    @property
    def amplitude(self) -> float:
        """The rate."""
        return self.rate

    @property
    def slope_at_zero(self) -> float:
        """The rate."""
        return self.rate

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `constant + rate * beta`."""
        value = np.multiply(beta, self.rate, out=out)
        return np.add(value, self.constant, out=value)

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return ones."""
        return full_like(beta, 1.0, out)


Tangents: TypeAlias = tuple[Tangent, ...]


@dataclass(frozen=True, eq=False)
class _PairSlopes:
    """Psi of all pairs as it enters Phi: the factors of `x_i x_j^T` and of `x_i x_i^T`."""

    across: Array
    own: Array

    def sizes(self, outer: Array, inner: Array) -> Array:
        """Return the squared norm of each pair's part of Phi W, orthogonal to W.

        `outer` and `inner` are the Gram matrices (s, s) of the rows orthogonal to W and within W.
        """
        o, z = outer.diagonal(), inner.diagonal()  # squared norms
        both = 2.0 * outer * inner
        crossed = np.multiply.outer(o, z)
        along = np.add.outer(o * z, o * z)
        mixed = inner * np.add.outer(o, o) + outer * np.add.outer(z, z)
        total = self.across**2 * (crossed + crossed.T + both) + self.own**2 * (along + both)
        return total + 2.0 * self.across * self.own * mixed


@dataclass(frozen=True)
class Noise:
    """Variances of the mean over all pairs that estimates Phi W, orthogonal to W.

    A U-statistic of n rows with B partners each has the variance
    `4 / n * by_rows + 2 / (n B) * by_pairs`.

    Attributes
    ----------
    by_pairs : float
        The variance of the contribution of one pair.
    by_rows : float
        The variance, over rows, of the mean contribution of a row.
    size : float
        The norm of Phi W.
    """

    by_pairs: float
    by_rows: float
    size: float

    @property
    def blur(self) -> float:
        """The variance by one random partner for each row, divided by that of a draw of rows."""
        return self.by_pairs / (2.0 * self.by_rows) if self.by_rows > 0 else np.inf

    def residual(self, n_rows: int, partners: float, *, rows_too: bool) -> float:
        """Return the residual that random pairs alone cause, and random rows if `rows_too`."""
        variance = 2.0 * self.by_pairs / (n_rows * partners)
        if rows_too:
            variance += 4.0 * max(self.by_rows, 0.0) / n_rows
        return min(float(np.sqrt(variance)) / self.size, 1.0) if self.size > 0 else 1.0


class Pilot:
    """A sample of the rows of a problem, with all their pairs."""

    def __init__(self, problem: Problem) -> None:
        self.kernel = problem.kernel
        rows = problem.shards.load_rows(_spaced_rows(problem.shards))
        self._X, self._rows = rows.X.astype(np.float64), rows
        gamma, dtype = problem.gamma, np.dtype(np.float64)
        facts = rows.facts[GAMMA_FACTS]
        sides = gamma.as_rows(facts, dtype), gamma.as_columns(facts, dtype)
        self._gamma = gamma.tile(*sides, out=np.empty((len(self._X), len(self._X))))
        np.fill_diagonal(self._gamma, 0.0)

    @ignore_overflow
    def tangents(self, W: Array) -> Tangents:
        """Return a tangent for each pairing, with the mean slope and value of the kernel at W."""
        off_diagonal = ~np.eye(len(self._X), dtype=bool)
        parts: dict[Pairing, tuple[float, float]] = {}
        for weight, term, beta, scale in self._betas(self.kernel, W):
            rate = weight * float(term.slope(beta, scale)[off_diagonal].mean())
            mean = weight * float(term.value(beta.copy(), scale)[off_diagonal].mean())
            constant, slope = parts.get(term.pairing, (0.0, 0.0))
            constant += mean - rate * float(beta[off_diagonal].mean())
            parts[term.pairing] = constant, slope + rate
        return tuple(Tangent(pairing, *line) for pairing, line in parts.items())

    @ignore_overflow
    def noise(self, W: Array, tangents: Tangents) -> Noise:
        """Return how much Phi W varies with the choice of pairs and with the choice of rows.

        The `tangents` are summed over all pairs in closed form, so they add no noise by pairs.
        """
        slopes = self._psi_of(self.kernel, W)
        Z = self._X @ W
        outside = self._X - Z @ W.T
        outer, inner, pairs = outside @ outside.T, Z @ Z.T, len(outside) * (len(outside) - 1)
        mean = self._row_variance(slopes, outside, Z)
        by_rows = mean - float(slopes.sizes(outer, inner).sum()) / pairs / len(outside)
        psi_Z = slopes.across @ Z + slopes.own.sum(axis=1)[:, None] * Z
        size = float(np.linalg.norm(self._X.T @ psi_Z)) / pairs
        of_tangents = self._psi_of(conic_sum([(1.0, each) for each in tangents]), W)
        slopes = _PairSlopes(slopes.across - of_tangents.across, slopes.own - of_tangents.own)
        by_pairs = float(slopes.sizes(outer, inner).sum()) / pairs
        return Noise(by_pairs, by_rows, size)

    def _row_variance(self, slopes: _PairSlopes, outside: Array, Z: Array) -> float:
        """Return the variance, over rows, of the mean contribution of a row with all others."""
        degrees, across_outside = slopes.own.sum(axis=1), slopes.across @ outside
        psi_Z, total = slopes.across @ Z, 0.0
        for z, across_z in zip(Z.T, psi_Z.T, strict=True):
            each = (degrees * z + across_z)[:, None] * outside + z[:, None] * across_outside
            each += slopes.own @ (z[:, None] * outside)
            total += float(each.var(axis=0).sum())
        return total / (len(outside) - 1) ** 2

    def _psi_of(self, kernel: Kernel, W: Array) -> _PairSlopes:
        across, own = np.zeros_like(self._gamma), np.zeros_like(self._gamma)
        for weight, term, beta, scale in self._betas(kernel, W):
            psi = weight * self._gamma * term.slope(beta, scale)
            across += term.pairing.coupling * psi
            own += term.pairing.degree * psi
        return _PairSlopes(across, own)

    def _betas(
        self, kernel: Kernel, W: Array
    ) -> list[tuple[float, PointwiseKernel, Array, Array | None]]:
        """Return weight, term, and the beta and scale of all pairs, for each term of a kernel."""
        Z, betas = self._X @ W, []
        for weight, term, widths in terms_with_widths(kernel, self._rows):
            scale = None if widths is None else np.multiply.outer(widths, widths)
            betas.append((weight, term, term.beta(*term.pairing.operands(Z), scale), scale))
        return betas


def _spaced_rows(shards: Shards) -> Array:
    """Return the indices of rows that are evenly spaced in evenly spaced shards."""
    count = len(shards.parts)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _SHARDS)).astype(int))
    each = -(-_ROWS // len(chosen))
    pieces = []
    for number in chosen:
        start, end = shards.bounds[number : number + 2]
        pieces.append(np.unique(np.linspace(start, end - 1, min(each, end - start)).astype(int)))
    return np.concatenate(pieces)
