"""Selection of few features: those whose weights cannot be noise, or a given number of them.

The weakest features go in stages. In between, W climbs on the others to the maximum of J. The
curvature of J there tells how far noise may turn W, and so whether weights that are truly 0 would
be as large (Wald's test). Where features are many for the rows, the search starts with those that
explain most by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents, turn_covariance, wald_pvalue
from ism_dask.criteria.prediction import RidgeRegression
from ism_dask.engines.blocks import BlocksInMemory
from ism_dask.linalg.subspaces import subspace_shares
from ism_dask.selection.rules import RULES
from ism_dask.solvers.ascent import ascend


class Support(NamedTuple):
    """The chosen features (d,), and a W of them alone as weights (d, q) of all features."""

    chosen: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """How the coordinates of the rows depend on the features.

    Attributes
    ----------
    features : (r, d) array
        The matrix that turns rows of coordinates (m, r) into rows of features (m, d).
    varying : (d,) boolean array
        The features that are not constant.
    """

    features: Array
    varying: Array


@dataclass(frozen=True, eq=False)
class SupportSearch:
    """The search for few features on a sample of rows.

    Attributes
    ----------
    blocks : BlocksInMemory
        The sample, in coordinates (m, r).
    regression : RidgeRegression
    space : FeatureSpace
    n_features : int
        The number of features that the chance of a false one is about.
    """

    blocks: BlocksInMemory
    regression: RidgeRegression
    space: FeatureSpace
    n_features: int

    def support(self, weights: Array, size: int | None) -> Support:
        """Return `size` features, or with None all whose weights cannot be noise.

        The search starts at the weights (d, q) of all features, and leaves at least q features.
        """
        remaining, q = np.flatnonzero(self.space.varying), weights.shape[1]
        V, least = weights[remaining], q if size is None else size
        while len(remaining) > least:
            blocks = self._blocks(remaining)
            V = self._climbed(blocks, V)
            if size is not None or (len(V) - q) * q > RULES.most_weights:
                dropped = _smallest(V, least)
            else:
                dropped = self._insignificant(blocks, V)[: len(remaining) - least]
            if not len(dropped):
                break
            remaining, V = np.delete(remaining, dropped), np.delete(V, dropped, axis=0)
        chosen = np.zeros(len(self.space.varying), dtype=bool)
        chosen[remaining] = True
        few = np.zeros_like(weights)
        few[remaining] = np.linalg.qr(V)[0]
        return Support(chosen, few)

    def _blocks(self, features: Array) -> BlocksInMemory:
        """Return the blocks with rows of some features (s,)."""
        matrix = self.space.features[:, features]
        return BlocksInMemory(
            tuple(replace(each, X=each.X @ matrix) for each in self.blocks.blocks)
        )

    def _climbed(self, blocks: BlocksInMemory, weights: Array) -> Array:
        """Return the W (s, q) of the maximum that is nearest to some weights (s, q)."""
        evaluate = partial(blocks.explained, self.regression)
        return ascend(evaluate, np.linalg.qr(weights)[0], max_iter=RULES.support_steps).W

    def _insignificant(self, blocks: BlocksInMemory, W: Array) -> Array:
        """Return features (k,) that may go at once: the weaker half of those that noise explains.

        Features that stand for each other, such as copies, may each be noise beside the others.
        So fewer of them go unless noise explains them all at once as well.
        """
        tangents, limit = Tangents.at_weights(W), RULES.chance / self.n_features
        hessian, slopes = blocks.curvature(self.regression, tangents)
        inner = W.T @ blocks.explained(self.regression, W).product
        # Without what keeps the columns of W orthonormal: it decides how copies share a weight.
        hessian -= np.kron(np.eye(tangents.basis.shape[1]), inner + inner.T)
        covariance = turn_covariance(hessian, slopes)
        pvalue = partial(wald_pvalue, tangents, covariance)
        pvalues = np.array([pvalue(np.array([feature])) for feature in range(len(W))])
        order = np.argsort(-pvalues, kind="stable")
        count = -(-int(np.count_nonzero(pvalues > limit)) // 2)
        while count > 1 and pvalue(order[:count]) <= limit:
            count //= 2
        return order[:count]


def _smallest(W: Array, least: int) -> Array:
    """Return the features with the smallest shares of W (s, q), so that `least` remain at last."""
    order = np.argsort(subspace_shares(W.T), kind="stable")
    fewer = int(RULES.remains * len(order)) if len(order) > RULES.singly else len(order) - 1
    return order[: len(order) - max(least, fewer)]


def are_many(n_features: int, n_rows: int) -> bool:
    """Return whether a fit to all features would find y in any of many directions."""
    return n_features * RULES.many_features_rows > n_rows


def best_alone(X: Array, Y: Array, space: FeatureSpace, weights: Array | None = None) -> Array:
    """Return the numbers (s,) of the varying features, those that explain most by themselves first.

    `X` (n, r) are the coordinates of rows with weights (n,), and `Y` (n, m) is what they are to
    explain.
    """
    varying = np.flatnonzero(space.varying)
    shares = marginal_shares(X @ space.features[:, varying], Y, weights)
    return varying[np.argsort(-shares, kind="stable")]


def number_that_remains(n_rows: int, least: int) -> int:
    """Return how many of many features remain in a fit to some rows, those that are best alone."""
    return max(least, n_rows // RULES.rows_per_feature)


def marginal_shares(columns: Array, Y: Array, weights: Array | None = None) -> Array:
    """Return the share (d,) of Y (n, m) that a cubic polynomial of each column (n, d) explains.

    Columns count by the normal scores of their ranks, so that no value is far from the others. Rows
    count by their weights (n,), if there are some.
    """
    weights = np.ones(len(columns)) if weights is None else weights
    shares, root = weights / weights.sum(), np.sqrt(weights)
    ranks = np.column_stack([_ranks(column, shares) for column in columns.T])
    scores = stats.norm.ppf(ranks)
    powers = np.stack([scores, scores**2, scores**3], axis=2)
    powers = root[:, None, None] * (powers - np.tensordot(shares, powers, axes=1))
    Y = root[:, None] * (Y - shares @ Y)
    gram = np.einsum("nji,njk->jik", powers, powers) + weights.sum() * RULES.tiny_ridge * np.eye(3)
    products = np.einsum("nji,nm->jim", powers, Y)
    explained = np.einsum("jim,jim->j", products, np.linalg.solve(gram, products))
    return explained / max(float(np.sum(Y**2)), np.finfo(float).tiny)


def _ranks(column: Array, shares: Array) -> Array:
    """Return for each number (n,) the share of rows below it, with half of those equal to it."""
    _, codes = np.unique(column, return_inverse=True)
    equal = np.bincount(codes, shares)
    return np.asarray((np.cumsum(equal) - equal / 2)[codes])
