"""Trials: ways to fit W, judged in folds by rows that W has not seen; own scales, few features.

To find few features, the weakest ones go in stages. In between, W climbs on the others to the
maximum of J. The curvature of J there tells how far noise may turn W, and so whether weights that
are truly 0 would be as large (Wald's test). Where features are many for the rows, the search starts
with those that explain most by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg
import scipy.optimize

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents, curvature, turn_covariance, wald_pvalue
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.gamma.targets import normal_scores
from ism_dask.linalg.eigen import inverse_covariance
from ism_dask.linalg.subspaces import subspace_shares
from ism_dask.records.fit_report import Trial
from ism_dask.rows.raw import deal
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.solvers.ascent import ascend_roughly
from ism_dask.threads import in_threads


def setting_of(trial: Trial) -> Setting | None:
    """Return the width and the ridge of a trial; None if W is the start itself."""
    return None if trial.width is None or trial.ridge is None else Setting(trial.width, trial.ridge)


def is_clearly_better(one: Trial, other: Trial) -> bool:
    """Return whether a trial predicts unseen rows better, by more than a standard error."""
    gains = other.losses - one.losses
    return float(gains.mean()) > RULES.clearly_better * float(gains.std()) / np.sqrt(len(gains))


def folds_of(sample: Sample) -> list[Sample]:
    """Return the folds of a sample: four of few rows, two of many."""
    names = (*list(sample.start_settings)[: RULES.best_starts], *RULES.cheap_starts)
    count = RULES.folds if sample.rows.n_rows <= RULES.many_fold_rows else RULES.halves
    hands = deal(sample.keys, count, sample.seed + 1, sample.rows.groups)
    return [sample.without(hand, tuple(dict.fromkeys(names))) for hand in hands]


def _fitted_to_fold(fold: Sample, setting: Setting) -> Array:
    """Return W (d, q) of the training rows, from the start or the last W of largest J."""
    objective = partial(fold.objective, setting=setting)
    if not fold.fitted:
        fold.fitted.append(max(fold.starts.values(), key=objective))
    # The first one is the best start, the last one the W of the setting before.
    W = max([fold.fitted[0], *fold.fitted[1:][-1:]], key=objective)
    W, _ = fold.climbed(W, fold.regression(setting), RULES.fold_steps)
    fold.fitted.append(W)
    return W


def own_scales(rows: RowsInMemory, regression: RidgeRegression, W: Array) -> Array:
    """Return the scales A (q, q) of the largest evidence for a regression on X W A.

    A is symmetric and positive semi-definite; W (d, q) and the ridge are held fixed. Only A is
    free: evidence over all weights of W would overfit. The regression has no scales yet.
    """
    projected = replace(rows, X=rows.X.astype(np.float64, copy=False) @ W)
    q = W.shape[1]

    def loss(entries: Array) -> tuple[float, Array]:
        value = regression.evident(projected, entries.reshape(q, q))
        return -value.objective, -2.0 * value.product.ravel()

    found = scipy.optimize.minimize(
        loss,
        np.eye(q).ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-RULES.largest_scale, RULES.largest_scale)] * q**2,
        options={"maxiter": RULES.scale_steps},
    )
    # A rotation of X W A changes nothing.
    return np.asarray(scipy.linalg.polar(found.x.reshape(q, q), side="left")[1])


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
    each stage. The rows are a sample in coordinates (m, r), which the matrix `features` (r, d)
    turns into rows of features.
    """
    remaining, q = np.flatnonzero(features.any(axis=0)), weights.shape[1]
    V, least = weights[remaining], q if size is None else size
    limit = RULES.chance / len(weights)
    while len(remaining) > least:
        matrix = features[:, remaining]
        some = replace(rows, X=rows.X @ matrix)
        begin = np.linalg.qr(V)[0]
        evaluate = partial(regression.explained, some)
        V, _ = ascend_roughly(evaluate, begin, inverse_covariance(some.X), steps)
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


def marginal_shares(columns: Array, Y: Array, weights: Array | None) -> Array:
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


def trial_of(
    sample: Sample,
    folds: list[Sample],
    start: str,
    setting: Setting | None = None,
    *,
    is_scaled: bool = False,
    few_of: Array | None = None,
    name: str = "",
) -> Trial:
    """Return a trial of a setting, in which each fold fits W, or of a start by itself.

    Each fold finds own scales if W `is_scaled`. With a matrix `few_of` (r, d), which turns
    coordinates into features, it takes few of them. `name` is that of the trial if it is not the
    start's.
    """
    is_start = setting is None
    near = sample.start_settings[start][0] if setting is None else setting
    factors = RULES.start_judges if is_start else RULES.judges
    judges = [near.times(*each) for each in factors if sample.width_is_free or each[0] == 1.0]

    def losses_of(fold: Sample) -> Array:
        """Return the losses (2, k, m) of the held-out rows under each of the k judges."""
        assert fold.unseen is not None
        W = fold.starts[start] if is_start else _fitted_to_fold(fold, near)
        regression = fold.regression(near)
        if is_scaled:
            regression = replace(regression, scales=own_scales(fold.rows, regression, W))
            W, _ = fold.climbed(W, regression, RULES.fold_steps)
        if few_of is not None:
            weights, steps = few_of.T @ W, RULES.fold_steps
            W = few_of @ few_features(fold.rows, regression, few_of, weights, steps=steps)[1]
        X, scales = fold.unseen.X, regression.scales
        regressions = (replace(fold.regression(each), scales=scales) for each in judges)
        predicted = (each.predicted(fold.rows, W, X) for each in regressions)
        return np.stack([fold.losses(each) for each in predicted], axis=1)

    calls = [partial(losses_of, fold) for fold in folds]
    by_judge = np.concatenate(in_threads(calls, sample.rows.n_rows), axis=2)
    losses, avoided = (each[int(np.argmin(each.mean(axis=1)))] for each in by_judge)
    # The losses (2, m) if each held-out row is predicted by the mean.
    squares, most = np.concatenate([fold.losses(0.0) for fold in folds], axis=1)
    if avoided.mean() < most.mean():  # a prediction that is worse than the mean tells nothing
        losses = losses + most - avoided
    lengths = np.asarray((sample.explained_columns**2).sum(axis=1))
    gains = (squares - losses) / sample.rows.weighted(lengths).mean()
    error = float(gains.std()) / float(np.sqrt(len(gains)))
    width, ridge = (None, None) if setting is None else (setting.width, setting.ridge)
    return Trial(name or start, width, ridge, float(gains.mean()), error, losses)


def taken_first(taken: Trial, trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trial that was taken, then the others, best first."""
    others = (each for each in trials if each is not taken)
    return (taken, *sorted(others, key=explained_share, reverse=True))


def explained_share(trial: Trial) -> float:
    """Return the share of y that a trial explains in unseen rows."""
    return trial.explained
