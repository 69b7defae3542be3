"""The variance of Phi W over draws of the rows, from all pairs of about a thousand of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Problem
from ism_dask.engines.row_facts import terms_with_widths
from ism_dask.engines.tile_walk import ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS

# The most rows whose pairs are computed.
_ROWS = 1024


@ignore_overflow
def relative_row_variance(problem: Problem, W: Array) -> float:
    """Return the variance over rows of their mean contributions to Phi W, divided by its square.

    The mean contribution of a row is over its pairs with all other rows, orthogonal to W (d, q).
    """
    n = problem.shards.n_rows
    rows = problem.shards.load_rows(np.linspace(0, n - 1, min(n, _ROWS)).astype(int))
    X = rows.X.astype(np.float64)
    Z = X @ W
    outside, pairs = X - Z @ W.T, len(X) * (len(X) - 1)
    gamma, facts, dtype = problem.gamma, rows.facts[GAMMA_FACTS], np.dtype(np.float64)
    sides = gamma.as_rows(facts, dtype), gamma.as_columns(facts, dtype)
    tile = gamma.tile(*sides, out=np.empty((len(X), len(X))))
    np.fill_diagonal(tile, 0.0)
    slopes = _PairSlopes(np.zeros_like(tile), np.zeros_like(tile))
    for weight, term, widths in terms_with_widths(problem.kernel, rows):
        scale = None if widths is None else np.multiply.outer(widths, widths)
        beta = term.beta(*term.pairing.operands(Z), scale)
        psi = weight * tile * term.slope(beta) * (1.0 if scale is None else scale)
        slopes.across[...] += term.pairing.coupling * psi
        slopes.own[...] += term.pairing.degree * psi
    # Each mean over few partners varies with the choice of these, too.
    by_partners = float(slopes.sizes(outside @ outside.T, Z @ Z.T).sum()) / pairs / len(X)
    variance = slopes.row_variance(outside, Z) - by_partners
    product = X.T @ (slopes.across @ Z + slopes.own.sum(axis=1)[:, None] * Z) / pairs
    return max(variance, 0.0) / float(np.vdot(product, product))


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

    def row_variance(self, outside: Array, Z: Array) -> float:
        """Return the variance, over rows, of the mean contribution of a row with all others."""
        degrees, across_outside = self.own.sum(axis=1), self.across @ outside
        psi_Z, total = self.across @ Z, 0.0
        for z, across_z in zip(Z.T, psi_Z.T, strict=True):
            each = (degrees * z + across_z)[:, None] * outside + z[:, None] * across_outside
            each += self.own @ (z[:, None] * outside)
            total += float(each.var(axis=0).sum())
        return total / (len(outside) - 1) ** 2
