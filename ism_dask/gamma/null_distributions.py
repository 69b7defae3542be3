"""The distribution of a statistic of two factors over permutations or signs of the rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.utils import gen_batches

from ism_dask._types import Array
from ism_dask.gamma.thin_factors import cross_products
from ism_dask.threads import by_pieces

# Permutations are multiplied in batches with this number of columns.
_BATCH_COLUMNS = 256
# The smallest p-value that moments state. The shifted gamma distribution was compared with random
# permutations down to here, where it is within a factor of four; its tail beyond is a guess.
_LEAST = 1e-5
# Statistics of permutations that differ by less than this share are ties.
_TIE = 1e-10


class Null(NamedTuple):
    """The distribution of a statistic over all permutations, or over all signs, by its moments."""

    mean: float
    deviation: float
    skewness: float

    def pvalue(self, statistic: float) -> float:
        """Return the probability of at least this value under a shifted gamma distribution.

        It is at least `_LEAST`.
        """
        if self.deviation == 0.0:
            return 1.0
        tail = stats.pearson3.sf(statistic, self.skewness, loc=self.mean, scale=self.deviation)
        return max(float(tail), _LEAST)


def permutation_moments(F: Array, U: Array) -> Null:
    """Return the moments of `|F^T U|^2` over all permutations of the rows of U (n, r).

    The mean and the deviation are exact (Kazi-Aoual et al. 1995), the skewness is that of many
    rows.
    """
    n, traces, spreads, diagonals = len(F), [], [], []
    for factor in (F, U):
        # Traces of A = F F^T, A^2 and A^3, and the sum of the squares of the diagonal of A.
        values = np.linalg.eigvalsh(cross_products(factor, factor))
        one, two, three = (float((values**power).sum()) for power in (1, 2, 3))
        lengths = np.einsum("ij,ij->i", factor, factor)
        squares = float(lengths @ lengths)
        traces.append((one, three / two**1.5))
        spreads.append((n - 1) * two - one**2)
        diagonals.append(n * (n + 1) * squares - (n - 1) * (one**2 + 2 * two))
    (first, skew), (second, other_skew) = traces
    spread = 2.0 * math.prod(spreads) / ((n - 1.0) ** 2 * (n + 1) * (n - 2))
    diagonal = math.prod(diagonals) / ((n + 1.0) * n * (n - 1) * (n - 2) * (n - 3))
    deviation = math.sqrt(max(spread + diagonal, 0.0))
    return Null(first * second / (n - 1), deviation, math.sqrt(8.0) * skew * other_skew)


def sign_moments(G: Array) -> Null:
    """Return the moments of `|sum_i e_i g_i|^2` over all signs e of centred rows g_i of G.

    All three are exact, those of a sum over the pairs of different rows.
    """
    G = G - G.mean(axis=0)
    gram, own = cross_products(G, G), np.einsum("ij,ij->i", G, G)

    def weighed_twice(rows: slice) -> Array:
        return np.einsum("ij,ij->i", G[rows] @ gram, G[rows])

    twice = np.concatenate(by_pieces(weighed_twice, len(G)))
    pairs = float((gram**2).sum() - own @ own)
    triples = float(np.vdot(gram @ gram, gram) - 3.0 * twice @ own + 2.0 * (own**3).sum())
    return Null(float(own.sum()), math.sqrt(2.0 * pairs), math.sqrt(8.0) * triples / pairs**1.5)


def permutation_pvalue(
    F: Array, U: Array, statistic: float, count: int, rng: np.random.Generator
) -> float:
    """Return the share of random permutations with at least this statistic, itself among them."""
    r = U.shape[1]
    at_least = 1
    for batch in gen_batches(count, max(1, _BATCH_COLUMNS // r)):
        orders = [rng.permutation(len(U)) for _ in range(batch.start, batch.stop)]
        shuffled = np.concatenate([U[order] for order in orders], axis=1)
        sums = ((F.T @ shuffled) ** 2).sum(axis=0).reshape(-1, r).sum(axis=1)
        at_least += int(np.count_nonzero(sums >= statistic * (1 - _TIE)))
    return at_least / (count + 1)
