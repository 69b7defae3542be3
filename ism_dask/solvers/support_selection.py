"""Selection of few features by stability: those that remain in fits to many halves of the rows.

Each half-sample starts at the W of all features and drops the features with the smallest shares in
stages, with a few gradient steps on the others in between. A feature is stable if most half-samples
drop it late. After Shah and Samworth, "Variable selection with error control: another look at
stability selection" (2013), whose half-samples come in complementary pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from ism_dask._types import Array
from ism_dask.engines import Engine
from ism_dask.engines.operator import ProductEvaluation, relative_residual
from ism_dask.linalg.eigen import subspace_shares, whitening_transform
from ism_dask.rows.execution import side_by_side
from ism_dask.solvers.lbfgs import lbfgs_ascent
from ism_dask.solvers.width_selection import LEAST_ROWS, SelectionProblem

# Complementary pairs of half-samples.
_PAIRS = 15
# The share of the features that remains after a stage, and its most gradient steps and residual.
_REMAINS, _STEPS, _RESIDUAL = 0.8, 8, 0.02
# The excess over chance of the frequency that every feature of an automatic support has to reach.
_STABLE = 0.8


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
    choice: SelectionProblem, space: FeatureSpace, weights: Array, size: int | None, seed: int
) -> Support:
    """Return the support of `size` features that half-samples choose most often.

    Parameters
    ----------
    choice : SelectionProblem
        The sample of rows, with q and the kernel.
    space : FeatureSpace
    weights : (d, q) array
        The weights of the features in the W from which all half-samples start.
    size : int or None
        None: the largest number of features all of which are stable.
    seed : int
        Seed of the half-samples.
    """
    q, varying = choice.q, np.flatnonzero(space.varying)
    if size is not None and size >= len(varying):
        return Support(space.varying, space.varying.astype(float))
    least = q if size is None else size
    halves = list(_half_samples(len(choice.evidence.X), seed))
    calls = [partial(_ranks, choice, space, weights, rows, least) for rows in halves]
    ranks = np.array(side_by_side(calls, len(halves[0])))
    k = most_stable_size(ranks, q) if size is None else size
    frequencies = (ranks < k).mean(axis=0)
    order = np.lexsort([ranks.mean(axis=0), -frequencies])
    chosen, shares = np.zeros(len(space.varying), dtype=bool), np.zeros(len(space.varying))
    chosen[varying[order[:k]]] = True
    shares[varying] = frequencies
    return Support(chosen, shares)


def most_stable_size(ranks: Array, least: int) -> int:
    """Return the largest number of features all of which are stable, and at least `least`.

    A feature is stable among k if its frequency `p` among the first k ranks exceeds chance, k / d,
    by `(p - k / d) / (1 - k / d) >= 0.8`. If no number of features reaches this, the number whose
    least stable feature is the most stable one is returned.

    Parameters
    ----------
    ranks : (m, d) array
        The rank of each feature in each half-sample, 0 for the last one that remains.
    least : int
    """
    d = ranks.shape[1]
    sizes = np.arange(least, d)
    if not len(sizes):
        return d
    excess = np.array([_least_excess(ranks, k) for k in sizes.tolist()])
    stable = sizes[excess >= _STABLE]
    return int(stable[-1] if len(stable) else sizes[np.argmax(excess)])


def _least_excess(ranks: Array, k: int) -> float:
    """Return the excess over chance of the k-th largest frequency among the first k ranks."""
    frequencies = np.sort((ranks < k).mean(axis=0))
    chance = k / len(frequencies)
    return float(frequencies[-k] - chance) / (1.0 - chance)


def _half_samples(m: int, seed: int) -> Iterator[Array]:
    """Yield the rows of complementary halves of a sample; all rows if they are too few to halve."""
    if m < LEAST_ROWS:
        yield np.arange(m)
        return
    random = np.random.default_rng([seed, m])
    for _ in range(_PAIRS):
        shuffled = random.permutation(m)
        yield np.sort(shuffled[: m // 2])
        yield np.sort(shuffled[m // 2 :])


def _ranks(
    choice: SelectionProblem, space: FeatureSpace, weights: Array, rows: Array, least: int
) -> Array:
    """Return the ranks of the varying features by one half-sample, 0 for the last that remains.

    The `least` features that remain are ranked by their shares.
    """
    engine = choice.engine(rows, 1.0)
    remaining = np.flatnonzero(space.varying)
    weights, ranks = weights[remaining], np.empty(len(space.varying), dtype=int)
    while True:
        weights = _climb(engine, space.features[:, remaining], weights, space.ridge)
        order = np.argsort(-subspace_shares(weights.T), kind="stable")
        ranks[remaining[order]] = np.arange(len(order))
        if len(order) <= least:
            return ranks[space.varying]
        count = max(least, min(len(order) - 1, int(_REMAINS * len(order))))
        remain = np.sort(order[:count])
        remaining, weights = remaining[remain], weights[remain]


def _climb(engine: Engine, features: Array, weights: Array, ridge: float | None) -> Array:
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

    def evaluate(V: Array) -> ProductEvaluation:
        evaluation = engine.product(features @ V)
        return replace(evaluation, product=features.T @ evaluation.product)

    V = np.linalg.qr(weights)[0]
    for V, evaluation in islice(lbfgs_ascent(evaluate, V, evaluate(V)), _STEPS):  # noqa: B020
        if relative_residual(V, evaluation.product) < _RESIDUAL:
            break
    return V
