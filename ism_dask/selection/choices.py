"""Selection of the start, the kernel width and the ridge of a prediction.

The evidence of the regression (its marginal likelihood) chooses among starts, widths and ridges,
since it needs no refits. But a flexible regression can fit W to the noise of its own rows, which
the evidence does not see. So W is fitted to parts of the rows as well, and judged on the others:
the width and the ridge grow as long as unseen rows are predicted better, and a start that no step
has changed is taken if it predicts unseen rows as well as any W.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.fit_report import DimensionTrial
from ism_dask.selection.folds import Fold, Trial, folds_of, judged, start_trials
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.starts import LINEAR, START_NAMES
from ism_dask.selection.target import LAW, MEAN


@dataclass(frozen=True, eq=False)
class Choice:
    """What a selection chose.

    Attributes
    ----------
    W : (d, q) array
        Fitted to the sample.
    setting : Setting
    evidence : float
        The log marginal likelihood of a column of y at the best setting.
    start : str
        The name of the start.
    is_start : bool
        Whether W is a start that no step has changed, and none should.
    trials : tuple of Trial
        The best first; empty before unseen rows have judged.
    other_maximum : float
        The sine of the angle to the W of another start that is as good; 0 if none is.
    """

    W: Array
    setting: Setting
    evidence: float
    start: str
    is_start: bool = False
    trials: tuple[Trial, ...] = ()
    other_maximum: float = 0.0


def choose_by_evidence(sample: Sample) -> Choice:
    """Return the start, the width, the ridge and W of the largest evidence."""
    ranked = [_start_choice(sample, name) for name in sample.best_starts]
    climbed = [_improved(sample, each, RULES.few_steps) for each in ranked[: RULES.climbed_starts]]
    best = _exchanged(sample, max(climbed, key=lambda each: each.evidence))
    other = max(other_maximum(sample, best, each) for each in climbed)
    return replace(_improved(sample, best, RULES.steps), other_maximum=other)


def other_maximum(sample: Sample, best: Choice, other: Choice) -> float:
    """Return the sine of the angle between two W if they are different but as good; else 0."""
    sine = subspace_sine(best.W, other.W)
    if sine < RULES.other_sine:
        return 0.0
    losses = [
        sample.blocks.leave_one_out(sample.at(each.setting), each.W) for each in (best, other)
    ]
    lost = losses[1] - losses[0]
    return 0.0 if lost.mean() > RULES.as_good * lost.std() / np.sqrt(len(lost)) else sine


def choose(sample: Sample, choice: Choice | None = None) -> Choice:
    """Return the choice by evidence, made more cautious as far as unseen rows ask for it."""
    choice = choose_by_evidence(sample) if choice is None else choice
    if sample.time_limit.is_over:
        return choice
    folds = folds_of(sample)
    # A start knows nothing of what X W is not to predict.
    trials = [] if sample.avoids else start_trials(sample, folds)
    now = judged(sample, folds, choice.start, choice.setting)
    trials.append(now)
    if not _folds_find_as_much(sample, folds, choice):
        return replace(choice, trials=tuple(sorted(trials, key=_explained, reverse=True)))
    while True:
        setting = Setting(now.width or 1.0, now.ridge or 1.0)
        tried = [
            judged(sample, folds, choice.start, each)
            for each in _more_cautious(sample, setting)
            if not sample.time_limit.is_over
        ]
        trials += tried
        best = max(tried, key=_explained, default=now)
        if not best.is_clearly_better(now):
            break
        now = best
    best = _start_or_fitted(trials, now) if trials[0].is_start else now
    best = _simplest(trials) if best.is_weak else best
    trials.sort(key=lambda each: -each.explained)
    return _with_trials(sample, choice, best, trials)


def _folds_find_as_much(sample: Sample, folds: list[Fold], choice: Choice) -> bool:
    """Return whether the steps raise the evidence of training rows as they raise that of all rows.

    If they do not, though on many rows they gain more than the weights of W cost, the training rows
    were too few to find what all rows show, and held-out rows say nothing of it.
    """
    name = sample.best_starts[0]
    gain = choice.evidence - sample.evidence(sample.starts[name], sample.start_settings[name])
    (n, d), q = sample.rows.X.shape, sample.q
    if gain < d * q * sample.weight_cost or n < RULES.rows_per_weight * d * q:
        return True
    gains = [fold.gain(choice.setting, sample.start_settings) for fold in folds]
    return float(np.mean(gains)) >= RULES.least_gain * gain / sample.rows.n_rows


def _start_or_fitted(trials: list[Trial], now: Trial) -> Trial:
    """Return the best start if it is clearly better than each fitted W, else the fitted one."""
    best_start = max((each for each in trials if each.is_start), key=_explained)
    if best_start.is_clearly_better(now):
        now = max((each for each in trials if not each.is_start), key=_explained)
    return best_start if best_start.is_clearly_better(now) else now


def _simplest(trials: list[Trial]) -> Trial:
    """Return the simplest trial that none is clearly better than: the linear start if possible."""
    best = max(trials, key=_explained)
    near = [each for each in trials if not best.is_clearly_better(each)]
    linear = [each for each in near if each.is_start and each.start == LINEAR]
    return (linear or [best])[0]


def _with_trials(sample: Sample, choice: Choice, best: Trial, trials: list[Trial]) -> Choice:
    """Return the choice of the best of the trials, with W fitted to all rows of the sample."""
    if best.is_start:
        chosen = _start_choice(sample, best.start)
        return replace(chosen, is_start=True, trials=tuple(trials))
    setting = Setting(best.width or 1.0, best.ridge or 1.0)
    W = choice.W
    if setting != choice.setting:
        begins = [choice.W, *(sample.starts[name] for name in START_NAMES)]
        objectives = [sample.objective(begin, setting) for begin in begins]
        second = begins[1 + int(np.argmax(objectives[1:]))]
        ends = [sample.climbed(begin, setting, RULES.steps) for begin in (choice.W, second)]
        W = max(ends, key=lambda end: end[1])[0]
    evidence = sample.evidence(W, setting)
    return replace(choice, W=W, setting=setting, evidence=evidence, trials=tuple(trials))


def _start_choice(sample: Sample, name: str) -> Choice:
    """Return a start with the setting of its largest evidence."""
    W, setting = sample.starts[name], sample.start_settings[name]
    return Choice(W, setting, sample.evidence(W, setting), name)


def _exchanged(sample: Sample, choice: Choice) -> Choice:
    """Return the choice with directions exchanged for others as long as this finds more evidence.

    The steps do not find a direction that says nothing of y without another one, as one side of
    the squares of a chessboard. A single column or a direction of another start may show it.
    """
    (d, q), blocks = choice.W.shape, sample.blocks.first(RULES.exchange_rows)
    if q == 1 or q * (d + q * len(START_NAMES)) > RULES.most_exchanges:
        return choice
    others = np.hstack([np.eye(d), *(sample.starts[name] for name in START_NAMES)]).T
    for _ in range(q):
        if sample.time_limit.is_over:
            break
        rest = [np.delete(choice.W, direction, axis=1) for direction in range(q)]
        tried = [np.linalg.qr(np.c_[each, other])[0] for each in rest for other in others]
        regression = sample.at(choice.setting)
        W = max(tried, key=lambda each: blocks.evidence(regression, each))
        exchanged = _improved(sample, replace(choice, W=W), RULES.few_steps)
        is_another = subspace_sine(choice.W, exchanged.W) >= RULES.other_sine
        if not is_another or exchanged.evidence <= choice.evidence:
            break
        choice = exchanged
    return choice


def _improved(sample: Sample, choice: Choice, steps: int) -> Choice:
    """Return the choice after some steps of W, with the nearby setting of largest evidence."""
    W, _ = sample.climbed(choice.W, choice.setting, steps)
    widths = RULES.near_widths if sample.width_is_free else (1.0,)
    near = [[choice.setting.times(width, ridge) for ridge in RULES.near_ridges] for width in widths]
    here = widths.index(1.0), RULES.near_ridges.index(1.0)
    setting, evidence = sample.most_evident(W, near, here)
    return Choice(W, setting, evidence, choice.start)


def _more_cautious(sample: Sample, setting: Setting) -> list[Setting]:
    """Return settings with a larger ridge, at the same and at a larger width."""
    factors = (1.0, 2.0) if sample.width_is_free else (1.0,)
    larger = [setting.times(width, 10.0) for width in factors]
    return [each for each in dict.fromkeys(larger) if each != setting]


def _explained(trial: Trial) -> float:
    return trial.explained


def law_is_better(law: Sample, choices: dict[str, Choice]) -> bool:
    """Return whether W of the law predicts the functions of y better than W of the mean does.

    W of the law is fitted to them, so its gain has to exceed what its entries gain from noise.
    """
    mean_W = choices[MEAN].W
    losses = [
        float(law.blocks.leave_one_out(law.at(setting), W).mean())
        for W, setting in (
            (mean_W, law.best_setting(mean_W)),
            (choices[LAW].W, choices[LAW].setting),
        )
    ]
    d, q = mean_W.shape
    return losses[0] - losses[1] > 2 * d * q / law.rows.n_rows


def choose_dimension(
    trial: Callable[[int], tuple[Sample, Choice]], most: int
) -> tuple[int, tuple[DimensionTrial, ...]]:
    """Return the number of new features, at most `most`, and the trials from 1 up.

    A feature is taken if the log evidence rises by more than its weights cost. `trial` returns the
    sample and the choice of the largest evidence for a number of features.
    """
    trials: list[DimensionTrial] = []
    before: Choice | None = None
    for q in range(1, min(most, RULES.most_features) + 1):
        sample, choice = trial(q)
        n, d = sample.rows.X.shape
        gain = 0.0 if before is None else choice.evidence - before.evidence
        losses = sample.blocks.leave_one_out(sample.at(choice.setting), choice.W)
        total = float((sample.rows.Y**2).sum(axis=1).mean())
        # A subspace of dimension q has (d - q) q free weights, this many more than one of q - 1.
        more = max(d - 2 * sample.q + 1, 1)
        explained, cost = 1.0 - float(losses.mean()) / total, more * sample.weight_cost
        trials.append(DimensionTrial(sample.q, explained, gain / n, cost / n))
        if not trials[-1].is_taken:
            return q - 1, tuple(trials)
        if sample.time_limit.is_over:
            break
        before = choice
    return trials[-1].q, tuple(trials)
