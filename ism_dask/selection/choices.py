"""Selection of the start, the kernel width and the ridge of a prediction.

The evidence of the regression (its marginal likelihood) chooses among starts, widths, ridges and
numbers of new features, since it needs no refits. But a flexible regression can fit W to the noise
of its own rows, which the evidence does not see. So W is fitted to parts of the rows as well, and
judged on the others. The width and the ridge grow as long as unseen rows are predicted better by a
standard error. A start that no step has changed is taken if it predicts them better by as much than
each fitted W or, where the signal is weak, if no trial predicts them so much better.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import RidgeRegression
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.fit_report import FEW, SCALES, DimensionTrial, Trial
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.starts import LINEAR, START_NAMES
from ism_dask.selection.trials import (
    explained_share,
    folds_of,
    is_clearly_better,
    own_scales,
    setting_of,
    taken_first,
    trial_of,
)
from ism_dask.threads import in_threads


@dataclass(frozen=True, eq=False)
class Choice:
    """What a selection chose on a sample: W (d, q), fitted to it, the setting and its evidence.

    Attributes
    ----------
    start : str
        The name of the start.
    is_start : bool
        Whether W is a start that no step has changed, and none should.
    is_few : bool
        Whether W should have few features alone: unseen rows are then predicted better.
    trials : tuple of Trial
        The one that was taken, then the others, best first; empty before unseen rows have judged.
    other_maximum : float
        The sine of the angle to the W of another start that is as good; 0 if none is.
    scales : (q, q) array or None
        The own scales of the directions of W; None if one width does for all.
    dimensions : tuple of DimensionTrial
        The trials of numbers of new features, from 1 up; empty if the number was not chosen.
    """

    sample: Sample
    W: Array
    setting: Setting
    evidence: float
    start: str
    is_start: bool = False
    is_few: bool = False
    trials: tuple[Trial, ...] = ()
    other_maximum: float = 0.0
    scales: Array | None = None
    dimensions: tuple[DimensionTrial, ...] = ()

    @property
    def regression(self) -> RidgeRegression:
        """The regression with the width, the ridge and the scales."""
        return replace(self.sample.regression(self.setting), scales=self.scales)


# By evidence.


def choose_by_evidence(sample: Sample) -> Choice:
    """Return the start, the width, the ridge and W of the largest evidence."""
    names = list(sample.start_settings)[: RULES.climbed_starts]
    starts = [_start_choice(sample, name) for name in names]
    calls = [partial(_improved, start, RULES.few_steps) for start in starts]
    climbed = in_threads(calls, sample.rows.n_rows)
    best = _exchanged(max(climbed, key=lambda each: each.evidence))
    other = max(other_maximum(best, each) for each in climbed)
    return replace(_improved(best, RULES.steps), other_maximum=other)


def other_maximum(best: Choice, other: Choice) -> float:
    """Return the sine of the angle between two W if they are different but as good; else 0."""
    sine = subspace_sine(best.W, other.W)
    if sine < RULES.other_sine:
        return 0.0
    losses = [each.sample.leave_one_out(each.W, each.setting) for each in (best, other)]
    lost = losses[1] - losses[0]
    return 0.0 if lost.mean() > RULES.as_good * lost.std() / np.sqrt(len(lost)) else sine


def _start_choice(sample: Sample, name: str) -> Choice:
    """Return a start with the setting of its largest evidence."""
    return Choice(sample, sample.starts[name], *sample.start_settings[name], name)


def _exchanged(choice: Choice) -> Choice:
    """Return the choice with directions exchanged for others as long as this finds more evidence.

    The steps do not find a direction that says nothing of y without another one, as one side of
    the squares of a chessboard. A single column or a direction of another start may show it.
    """
    sample, (d, q) = choice.sample, choice.W.shape
    if q == 1 or q * (d + q * len(START_NAMES)) > RULES.most_exchanges:
        return choice
    others = np.hstack([np.eye(d), *(sample.starts[name] for name in START_NAMES)]).T
    for _ in range(q):
        if sample.time_limit.is_over:
            break
        rest = [np.delete(choice.W, direction, axis=1) for direction in range(q)]
        tried = [np.linalg.qr(np.c_[each, other])[0] for each in rest for other in others]
        calls = [partial(sample.evidence, each, choice.setting) for each in tried]
        W = tried[int(np.argmax(in_threads(calls, sample.rows.n_rows)))]
        exchanged = _improved(replace(choice, W=W), RULES.few_steps)
        is_another = subspace_sine(choice.W, exchanged.W) >= RULES.other_sine
        if not is_another or exchanged.evidence <= choice.evidence:
            break
        choice = exchanged
    return choice


def _improved(choice: Choice, steps: int) -> Choice:
    """Return the choice after some steps of W, with the nearby setting of largest evidence.

    After the time limit the choice stays as it is.
    """
    sample = choice.sample
    if sample.time_limit.is_over:
        return choice
    W, _ = sample.climbed(choice.W, sample.regression(choice.setting), steps)
    return Choice(sample, W, *sample.best_setting(W, choice.setting), choice.start)


# By unseen rows.


def choose(choice: Choice, few_of: Array | None, *, tries_scales: bool) -> Choice:
    """Return the choice by evidence, made more cautious as far as unseen rows ask for it.

    With a matrix `few_of` (r, d), which turns coordinates into features, few features are tried;
    own scales are where W has all features.
    """
    sample = choice.sample
    if sample.time_limit.is_over:
        return choice
    folds = folds_of(sample)
    # A start knows nothing of what X W is not to predict.
    names = () if sample.avoids else folds[0].start_names
    now = trial_of(sample, folds, choice.start, choice.setting)
    trials = [*(trial_of(sample, folds, name) for name in names), now]
    if not _folds_find_as_much(folds, choice):
        return replace(choice, trials=taken_first(now, trials))
    now = _best_trial(trials, _more_cautious(sample, folds, now, trials))
    choice, start = _refitted(choice, now), now.start
    if few_of is not None and not sample.time_limit.is_over:
        few = trial_of(sample, folds, start, setting_of(now), few_of=few_of, name=FEW)
        trials.append(few)
        if few.explained > now.explained:
            now, choice = few, replace(choice, is_few=True)
    if tries_scales and not (choice.is_few or choice.is_start or sample.time_limit.is_over):
        scaled = trial_of(sample, folds, start, setting_of(now), is_scaled=True, name=SCALES)
        trials.append(scaled)
        if scaled.explained > now.explained:
            A = own_scales(sample.rows, sample.regression(choice.setting), choice.W)
            now, choice = scaled, replace(choice, scales=A)
    return replace(choice, trials=taken_first(now, trials))


def _more_cautious(sample: Sample, folds: list[Sample], now: Trial, trials: list[Trial]) -> Trial:
    """Return the trial of a larger width or ridge, as long as unseen rows ask for it.

    What was tried joins the `trials`.
    """
    while True:
        setting = setting_of(now)
        assert setting is not None
        # A larger ridge, at the same and at a larger width.
        widths = RULES.cautious_widths if sample.width_is_free else (1.0,)
        larger = dict.fromkeys(setting.times(width, RULES.cautious_ridge) for width in widths)
        larger.pop(setting, None)
        tried = [
            trial_of(sample, folds, now.start, each)
            for each in larger
            if not sample.time_limit.is_over
        ]
        trials += tried
        best = max(tried, key=explained_share, default=now)
        if not is_clearly_better(best, now):
            return now
        now = best


def _folds_find_as_much(folds: list[Sample], choice: Choice) -> bool:
    """Return whether the steps raise the evidence of training rows as they raise that of all rows.

    If they do not, though on many rows they gain more than the weights of W cost, the training rows
    were too few to find what all rows show, and held-out rows say nothing of it.
    """
    sample, settings = choice.sample, choice.sample.start_settings
    gain = choice.evidence - next(iter(settings.values()))[1]
    (n, d), q = sample.rows.X.shape, sample.q
    if gain < d * q * sample.weight_cost or n < RULES.rows_per_weight * d * q:
        return True
    gains = []
    for fold in folds:
        starts = fold.starts.items()
        of_starts = max(fold.evidence(W, settings[name][0]) for name, W in starts)
        gain_of_fold = fold.evidence(fold.fitted[-1], choice.setting) - of_starts
        gains.append(gain_of_fold / fold.rows.n_rows)
    return float(np.mean(gains)) >= RULES.least_gain * gain / n


def _best_trial(trials: list[Trial], now: Trial) -> Trial:
    """Return the trial to take: `now`, to which larger ridges and widths led, or another.

    A start is taken if it is clearly better than each fitted W.
    """
    starts = [each for each in trials if each.width is None]
    start = max(starts, key=explained_share, default=now)
    if is_clearly_better(start, now):
        now = max((each for each in trials if each.width is not None), key=explained_share)
    best = start if is_clearly_better(start, now) else now
    if best.explained > RULES.weak * best.error:
        return best
    # Where the signal is weak, the linear start is taken, unless a trial is clearly better.
    best = max(trials, key=explained_share)
    linear = (each for each in starts if each.start == LINEAR and not is_clearly_better(best, each))
    return next(linear, best)


def _refitted(choice: Choice, best: Trial) -> Choice:
    """Return the choice of the best trial, with W fitted to all rows of the sample."""
    sample, W, setting = choice.sample, choice.W, setting_of(best)
    if setting is None:
        unchanged = _start_choice(sample, best.start)
        return replace(unchanged, is_start=True, dimensions=choice.dimensions)
    if setting != choice.setting:
        starts = [sample.starts[name] for name in START_NAMES]
        start = max(starts, key=partial(sample.objective, setting=setting))
        climbed = partial(sample.climbed, regression=sample.regression(setting), steps=RULES.steps)
        W = max(map(climbed, (W, start)), key=lambda end: end[1])[0]
    return replace(choice, W=W, setting=setting, evidence=sample.evidence(W, setting))


# The target and the number of new features.


def law_is_better(of_mean: Choice, of_law: Choice) -> bool:
    """Return whether W of the law predicts the functions of y better than W of the mean does.

    W of the law is fitted to them, so its gain has to exceed what its entries gain from noise.
    """
    sample, (d, q) = of_law.sample, of_mean.W.shape
    setting = sample.best_setting(of_mean.W)[0]
    lost = sample.leave_one_out(of_mean.W, setting).mean()
    gain = lost - sample.leave_one_out(of_law.W, of_law.setting).mean()
    return float(gain) > RULES.gain_of_law * d * q / sample.rows.n_rows


def choose_dimension(choices: Iterable[Choice]) -> tuple[int, tuple[DimensionTrial, ...]]:
    """Return the number of new features, and the trials from 1 up.

    A feature is taken if the log evidence rises by more than its weights cost. `choices` are those
    of the largest evidence for 1, 2 and more features; it stops at the first that is not taken.
    """
    trials: list[DimensionTrial] = []
    before: Choice | None = None
    for choice in choices:
        sample = choice.sample
        n, d = sample.rows.X.shape
        gain = 0.0 if before is None else choice.evidence - before.evidence
        losses = sample.leave_one_out(choice.W, choice.setting)
        total = float((sample.rows.Y**2).sum(axis=1).mean())
        # A subspace of dimension q has (d - q) q free weights, this many more than one of q - 1.
        more = max(d - 2 * sample.q + 1, 1)
        explained, cost = 1.0 - float(losses.mean()) / total, more * sample.weight_cost
        trials.append(DimensionTrial(sample.q, explained, gain / n, cost / n))
        if not trials[-1].is_worthwhile or sample.time_limit.is_over:
            break
        before = choice
    return sum(trial.is_worthwhile for trial in trials), tuple(trials)
