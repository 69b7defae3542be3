"""Selection of few features: those whose weights cannot be noise, or a given number of them.

The weakest features go in stages. In between, W climbs on the others to the maximum of J. The
curvature of J there tells how far noise may turn W, and so whether weights that are truly 0 would
be as large (Wald's test). Where features are many for the rows, the search starts with those that
explain most by themselves.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents, curvature, turn_covariance, wald_pvalue
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.gamma.targets import normal_scores
from ism_dask.linalg.eigen import inverse_covariance
from ism_dask.linalg.subspaces import subspace_shares
from ism_dask.selection.rules import RULES
from ism_dask.solvers.ascent import ascend_roughly


def few_features(
    rows: RowsInMemory,
    regression: RidgeRegression,
    features: Array,
    weights: Array,
    size: int | None = None,
    *,
    steps: int = RULES.support_steps,
) -> tuple[Array, Array]:
    """Return which features (d,) to take, and a W of them alone as weights (d, q) of all.

    These are `size` features, or with None all whose weights cannot be noise. The search starts at
    the weights (d, q) of all features, leaves at least q features, and climbs for some steps on
    each stage. The rows are a sample in
    coordinates (m, r), which the matrix `features` (r, d) turns into rows of features.
    """
    remaining, q = np.flatnonzero(features.any(axis=0)), weights.shape[1]
    V, least = weights[remaining], q if size is None else size
    limit = RULES.chance / len(weights)
    while len(remaining) > least:
        matrix = features[:, remaining]
        some = replace(rows, X=rows.X @ matrix)
        begin = np.linalg.qr(V)[0]
        precondition = inverse_covariance(some.X.T @ some.X / len(some.X))
        evaluate = partial(regression.explained, some)
        V, _ = ascend_roughly(evaluate, begin, precondition, steps)
        if size is not None or (len(V) - q) * q > RULES.most_weights:
            n = len(V)
            fewer = int(RULES.remains * n) if n > RULES.singly else n - 1
            order = np.argsort(subspace_shares(V.T), kind="stable")
            dropped = order[: n - max(least, fewer)]
        else:
            dropped = _insignificant(some, regression, V, limit)[: len(remaining) - least]
        if not len(dropped):
            break
        remaining, V = np.delete(remaining, dropped), np.delete(V, dropped, axis=0)
    chosen, few = np.zeros(len(weights), dtype=bool), np.zeros_like(weights)
    chosen[remaining], few[remaining] = True, np.linalg.qr(V)[0]
    return chosen, few


def _insignificant(
    rows: RowsInMemory, regression: RidgeRegression, W: Array, limit: float
) -> Array:
    """Return features (k,) that may go at once: the weakest of those that noise explains.

    Features that stand for each other, such as copies, may each be noise beside the others.
    So fewer of them go unless noise explains them all at once as well.
    """
    tangents = Tangents.at_weights(W)
    hessian, influences = curvature(regression, tangents, [rows])
    inner = W.T @ regression.explained(rows, W).product
    # Without what keeps the columns of W orthonormal: it decides how copies share a weight.
    hessian -= np.kron(np.eye(tangents.basis.shape[1]), inner + inner.T)
    pvalue = partial(wald_pvalue, tangents, turn_covariance(hessian, influences.T @ influences))
    pvalues = np.array([pvalue(np.array([feature])) for feature in range(len(W))])
    order = np.argsort(-pvalues, kind="stable")
    # As many as W has columns stay: their weights cannot all be 0.
    count = min(int(np.count_nonzero(pvalues > limit)), len(W) - W.shape[1])
    while count > 1 and pvalue(order[:count]) <= limit:
        count //= 2
    return order[:count]


def marginal_shares(columns: Array, Y: Array, weights: Array | None = None) -> Array:
    """Return the share (d,) of Y (n, m) that a cubic polynomial of each column (n, d) explains.

    Columns count by the normal scores of their ranks, so that no value is far from the others. Rows
    count by their weights (n,), if there are some.
    """
    weights = np.ones(len(columns)) if weights is None else weights
    shares, root = weights / weights.sum(), np.sqrt(weights)
    scores = normal_scores(columns, weights)
    powers = np.stack([scores, scores**2, scores**3], axis=2)
    powers = root[:, None, None] * (powers - np.tensordot(shares, powers, axes=1))
    Y = root[:, None] * (Y - shares @ Y)
    gram = np.einsum("nji,njk->jik", powers, powers) + weights.sum() * RULES.tiny_ridge * np.eye(3)
    products = np.einsum("nji,nm->jim", powers, Y)
    explained = np.einsum("jim,jim->j", products, np.linalg.solve(gram, products))
    return explained / max(float(np.sum(Y**2)), np.finfo(float).tiny)
