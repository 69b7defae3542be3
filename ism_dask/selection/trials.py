"""Trials: ways to fit W, judged in folds by rows that W has not seen; own scales of W."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg
import scipy.optimize

from ism_dask._types import Array
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.records.fit_report import Trial
from ism_dask.rows.raw import deal
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.support import few_features
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
    free: evidence over all weights of W would overfit.
    """
    projected = replace(rows, X=rows.X.astype(np.float64, copy=False) @ W)
    usual, q = replace(regression, scales=None), W.shape[1]
    begin = np.eye(q) if regression.scales is None else regression.scales

    def loss(entries: Array) -> tuple[float, Array]:
        value = usual.evident(projected, entries.reshape(q, q))
        return -value.objective, -2.0 * value.product.ravel()

    found = scipy.optimize.minimize(
        loss,
        begin.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-RULES.largest_scale, RULES.largest_scale)] * q**2,
        options={"maxiter": RULES.scale_steps},
    )
    # A rotation of X W A changes nothing.
    return np.asarray(scipy.linalg.polar(found.x.reshape(q, q), side="left")[1])


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
