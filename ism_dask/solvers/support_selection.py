"""Selection of few features by stability: those that remain in fits to many halves of the rows.

Each half-sample starts at the W of all features and drops the features with the smallest shares in
stages, with a few gradient steps on the others in between. Where features are many for the rows, it
starts with those that explain most by themselves. A feature is stable if most half-samples drop it
late. After Shah and Samworth, "Variable selection with error control: another look at
stability selection" (2013), whose half-samples come in complementary pairs. The other half of a
pair also shows how much of J remains on rows that were not fitted, for each number of features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import norm, rankdata

from ism_dask._types import Array
from ism_dask.engines.operator import relative_residual
from ism_dask.linalg.eigen import whitening_transform
from ism_dask.linalg.subspaces import subspace_shares
from ism_dask.rows.execution import side_by_side
from ism_dask.solvers.lbfgs import Slope, lbfgs_ascent

# The most rows in a `RowSample`.
SAMPLED_ROWS = 2000
# Complementary pairs of half-samples, and the most rows that they halve.
_PAIRS, _ROWS = 15, 1000
# Fewer rows are not halved: a half would not distinguish features.
_LEAST_ROWS = 20
# The share of half-samples that have to choose a feature of an automatic support.
_STABLE = 0.75
# The share of the features that remains after a stage; from this many on, they are dropped singly.
_REMAINS, _SINGLY = 0.8, 16
# Features are many if there is more than one for this number of rows, ...
_MANY_ROWS = 2
# ... and then the best ones remain, one for this number of rows.
_ROWS_PER_FEATURE = 5
# The ridge of the regression on a feature, for columns of variance 1.
_TINY_RIDGE = 1e-9
# The most gradient steps of a stage, and the residual that ends it earlier.
_STEPS, _RESIDUAL = 8, 0.02


class SampledJ(Protocol):
    """J of some rows as a function of W, such as an engine."""

    def product(self, W: Array) -> Slope:
        """Return J and Phi W (d, q)."""

    def value(self, W: Array) -> Any:
        """Return J at W (d, q) as the `objective` of an evaluation."""


@dataclass(frozen=True, eq=False)
class RowSample:
    """A sample of the rows of a fit, in memory, any part of which has a J.

    Attributes
    ----------
    n_rows : int
    q : int
        The number of new features.
    engine : callable
        Returns the J of some rows (k,) of the sample, with the kernel of the fit.
    X : (n, r) array
        The coordinates of the rows.
    Y : (n, m) array
        What X W is to explain.
    """

    n_rows: int
    q: int
    engine: Callable[[Array], SampledJ]
    X: Array
    Y: Array


class Support(NamedTuple):
    """The chosen features (d,), and the share of half-samples that choose each of them (d,)."""

    chosen: Array
    frequencies: Array


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """How the coordinates of the rows depend on the features.

    Attributes
    ----------
    features : (r, d) array
        The matrix that turns rows of coordinates (m, r) into rows of features (m, d).
    varying : (d,) boolean array
        The features that are not constant.
    ridge : float or None
        If the rows are whitened: the ridge of their covariance, as a share of its mean eigenvalue.
    """

    features: Array
    varying: Array
    ridge: float | None = None


def stable_support(
    sample: RowSample, space: FeatureSpace, weights: Array | None, size: int | None, seed: int
) -> Support:
    """Return the support of `size` features that half-samples choose most often.

    Parameters
    ----------
    sample : RowSample
    space : FeatureSpace
    weights : (d, q) array or None
        The weights of the features in the W from which all half-samples start. With None each
        starts with the features that are best alone.
    size : int or None
        None: the fewest features with which J on the other halves is largest, up to one standard
        error; of these, the ones that three quarters of the half-samples choose.
    seed : int
        Seed of the half-samples.
    """
    varying = np.flatnonzero(space.varying)
    if size is not None and size >= len(varying):
        return Support(space.varying, space.varying.astype(float))
    least = sample.q if size is None else size
    pairs = list(_half_samples(sample.n_rows, seed))
    calls = [partial(_path, sample, space, weights, rows, least) for rows in pairs]
    paths = side_by_side(calls, len(pairs[0][0]))
    ranks = np.array([path.ranks for path in paths])
    k = size
    if k is None:
        k = fewest_features(paths[0].sizes, np.array([path.held_out for path in paths]))
    frequencies = (ranks < k).mean(axis=0)
    if size is None:
        k = max(sample.q, int(np.count_nonzero(frequencies >= _STABLE)))
    order = np.lexsort([ranks.mean(axis=0), -frequencies])
    chosen, shares = np.zeros(len(space.varying), dtype=bool), np.zeros(len(space.varying))
    chosen[varying[order[:k]]] = True
    shares[varying] = frequencies
    return Support(chosen, shares)


def are_many(n_features: int, n_rows: int) -> bool:
    """Return whether a fit to all features would find y in any of many directions."""
    return n_features * _MANY_ROWS > n_rows


def best_alone(X: Array, Y: Array, space: FeatureSpace) -> Array:
    """Return the numbers (s,) of the varying features, those that explain most by themselves first.

    `X` (n, r) are the coordinates of rows, and `Y` (n, m) is what they are to explain.
    """
    varying = np.flatnonzero(space.varying)
    shares = marginal_shares(X @ space.features[:, varying], Y)
    return varying[np.argsort(-shares, kind="stable")]


def number_that_remains(n_rows: int, least: int) -> int:
    """Return how many of many features remain in a fit to some rows, those that are best alone."""
    return max(least, n_rows // _ROWS_PER_FEATURE)


def marginal_shares(columns: Array, Y: Array) -> Array:
    """Return the share (d,) of Y (n, m) that a cubic polynomial of each column (n, d) explains.

    Columns count by the normal scores of their ranks, so that no value is far from the others.
    """
    n = len(columns)
    scores = norm.ppf((rankdata(columns, axis=0) - 0.5) / n)
    powers = np.stack([scores, scores**2, scores**3], axis=2)
    powers -= powers.mean(axis=0)
    Y = Y - Y.mean(axis=0)
    gram = np.einsum("nji,njk->jik", powers, powers) + n * _TINY_RIDGE * np.eye(3)
    products = np.einsum("nji,nm->jim", powers, Y)
    explained = np.einsum("jim,jim->j", products, np.linalg.solve(gram, products))
    return explained / max(float(np.sum(Y**2)), np.finfo(float).tiny)


def fewest_features(sizes: Sequence[int], held_out: Array) -> int:
    """Return the smallest of `sizes` (s,) with the largest mean J, up to one standard error.

    `held_out` (m, s) has J on the rows that were not fitted, for each half-sample and size. Two
    half-samples that follow each other are complementary.
    """
    best = held_out.mean(axis=0).argmax()
    losses = held_out[:, [best]] - held_out
    losses = (losses[::2] + losses[1::2]) / 2 if len(losses) > 1 else losses
    errors = losses.std(axis=0, ddof=min(1, len(losses) - 1)) / np.sqrt(len(losses))
    near = losses.mean(axis=0) <= errors
    return min(size for size, is_near in zip(sizes, near, strict=True) if is_near)


def _half_samples(m: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield halves of m rows with the other halves; all rows twice if they are too few to halve."""
    if m < _LEAST_ROWS:
        yield np.arange(m), np.arange(m)
        return
    random = np.random.default_rng([seed, m])
    for _ in range(_PAIRS):
        shuffled = random.permutation(m)[:_ROWS]
        one, other = map(np.sort, np.array_split(shuffled, 2))
        yield one, other
        yield other, one


class _Path(NamedTuple):
    """The numbers of features on the way down, the ranks (d,) and J on other rows at each number.

    Ranks are those of the varying features, 0 for the last one that remains.
    """

    sizes: list[int]
    ranks: Array
    held_out: list[float]


def _path(
    sample: RowSample,
    space: FeatureSpace,
    weights: Array | None,
    halves: tuple[Array, Array],
    least: int,
) -> _Path:
    """Return the path from all varying features to `least` by a fit to the first of two halves.

    Without `weights` (d, q) it begins with the features that are best alone.
    """
    engine, check = map(sample.engine, halves)
    remaining, ranks = np.flatnonzero(space.varying), np.empty(len(space.varying), dtype=int)
    sizes, held_out = [], []
    if weights is None:
        order = best_alone(sample.X[halves[0]], sample.Y[halves[0]], space)
        ranks[order] = np.arange(len(order))
        remaining = order[: number_that_remains(len(halves[0]), least)]
        weights = np.eye(len(remaining), sample.q)
    else:
        weights = weights[remaining]
    while True:
        features = space.features[:, remaining]
        weights = _climb(engine, features, weights, space.ridge)
        order = np.argsort(-subspace_shares(weights.T), kind="stable")
        ranks[remaining[order]] = np.arange(len(order))
        sizes.append(len(order))
        held_out.append(check.value(features @ weights).objective)
        if len(order) <= least:
            return _Path(sizes, ranks[space.varying], held_out)
        fewer = int(_REMAINS * len(order)) if len(order) > _SINGLY else len(order) - 1
        remain = np.sort(order[: max(least, fewer)])
        remaining, weights = remaining[remain], weights[remain]


def _climb(engine: Any, features: Array, weights: Array, ridge: float | None) -> Array:
    """Return the weights (s, q) of features after a few gradient steps.

    `features` (r, s) turns the rows of the engine into features. Columns of the weights are
    orthonormal, or if the features are to be whitened, with a `ridge`, in whitened features.
    """
    if ridge is not None:
        rows = engine.problem.shards.in_double().rows(np.arange(engine.problem.shards.n_rows))
        columns = rows @ features
        whitening = whitening_transform(columns.T @ columns / len(columns), ridge)
        V = _climb(engine, features @ whitening, np.linalg.solve(whitening, weights), None)
        return np.asarray(whitening @ V)

    def evaluate(V: Array) -> Slope:
        evaluation = engine.product(features @ V)
        return replace(evaluation, product=features.T @ evaluation.product)

    V = np.linalg.qr(weights)[0]
    for V, evaluation in islice(lbfgs_ascent(evaluate, V, evaluate(V)), _STEPS):  # noqa: B020
        if relative_residual(V, evaluation.product) < _RESIDUAL:
            break
    return V
