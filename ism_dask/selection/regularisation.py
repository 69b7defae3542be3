"""Selection of the start, the kernel width and the ridge of the prediction criterion.

The evidence of the regression (its marginal likelihood) chooses among starts, widths and ridges,
since it needs no refits. But a flexible regression can fit W to the noise of its own rows, which
the evidence does not see. So W is fitted to parts of the rows as well, and judged on the others:
the width and the ridge grow as long as unseen rows are predicted better, and a start that no step
has changed is taken if it predicts unseen rows as well as any W.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.selection.folds import Fold, Trial, folds_of, judged, start_trials
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.starts import LINEAR, START_NAMES

# Factors by which it tries to improve a width and a ridge after some steps.
_WIDTH_FACTORS, _RIDGE_FACTORS = (0.5**0.5, 1.0, 2.0**0.5), (0.1, 0.3, 1.0, 3.0, 10.0)
# Steps of the first ascents, and of the one that is chosen.
_FEW_STEPS, _STEPS = 10, 25
# How many of the starts are climbed from.
_CLIMBED = 2
# With more ways to exchange a direction of W, none is tried; this many rows judge each.
_MOST_EXCHANGES, _EXCHANGE_ROWS = 250, 500
# Two W are different maxima if the sine of the angle between them is at least this, ...
_ANOTHER = 0.5
# ... and as good if the rows predict each other from both alike, up to this many standard errors.
_AS_GOOD = 1.0
# The share of the gain of evidence by the steps on all rows that steps on training rows have to
# come to.
_FOUND = 0.5
# With fewer rows for each weight of W, evidence alone is no proof.
_ROWS_PER_WEIGHT = 10


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
    climbed = [_improved(sample, each, _FEW_STEPS) for each in ranked[:_CLIMBED]]
    best = _exchanged(sample, max(climbed, key=lambda each: each.evidence))
    other = max(other_maximum(sample, best, each) for each in climbed)
    return replace(_improved(sample, best, _STEPS), other_maximum=other)


def other_maximum(sample: Sample, best: Choice, other: Choice) -> float:
    """Return the sine of the angle between two W if they are different but as good; else 0."""
    sine = subspace_sine(best.W, other.W)
    if sine < _ANOTHER:
        return 0.0
    losses = [
        sample.blocks.leave_one_out(sample.at(each.setting), each.W) for each in (best, other)
    ]
    lost = losses[1] - losses[0]
    return 0.0 if lost.mean() > _AS_GOOD * lost.std() / np.sqrt(len(lost)) else sine


def choose(sample: Sample, choice: Choice | None = None) -> Choice:
    """Return the choice by evidence, made more cautious as far as unseen rows ask for it."""
    choice = choose_by_evidence(sample) if choice is None else choice
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
            judged(sample, folds, choice.start, each) for each in _more_cautious(sample, setting)
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
    if gain < d * q * sample.weight_cost or n < _ROWS_PER_WEIGHT * d * q:
        return True
    gains = [fold.gain(choice.setting, sample.start_settings) for fold in folds]
    return float(np.mean(gains)) >= _FOUND * gain / sample.rows.n_rows


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
        ends = [sample.climbed(begin, setting, _STEPS) for begin in (choice.W, second)]
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
    (d, q), blocks = choice.W.shape, sample.blocks.first(_EXCHANGE_ROWS)
    if q == 1 or q * (d + q * len(START_NAMES)) > _MOST_EXCHANGES:
        return choice
    others = np.hstack([np.eye(d), *(sample.starts[name] for name in START_NAMES)]).T
    for _ in range(q):
        rest = [np.delete(choice.W, direction, axis=1) for direction in range(q)]
        tried = [np.linalg.qr(np.c_[each, other])[0] for each in rest for other in others]
        regression = sample.at(choice.setting)
        W = max(tried, key=lambda each: blocks.evidence(regression, each))
        exchanged = _improved(sample, replace(choice, W=W), _FEW_STEPS)
        is_another = subspace_sine(choice.W, exchanged.W) >= _ANOTHER
        if not is_another or exchanged.evidence <= choice.evidence:
            break
        choice = exchanged
    return choice


def _improved(sample: Sample, choice: Choice, steps: int) -> Choice:
    """Return the choice after some steps of W, with the nearby setting of largest evidence."""
    W, _ = sample.climbed(choice.W, choice.setting, steps)
    widths = _WIDTH_FACTORS if sample.width_is_free else (1.0,)
    near = [[choice.setting.times(width, ridge) for ridge in _RIDGE_FACTORS] for width in widths]
    here = widths.index(1.0), _RIDGE_FACTORS.index(1.0)
    setting, evidence = sample.most_evident(W, near, here)
    return Choice(W, setting, evidence, choice.start)


def _more_cautious(sample: Sample, setting: Setting) -> list[Setting]:
    """Return settings with a larger ridge, at the same and at a larger width."""
    factors = (1.0, 2.0) if sample.width_is_free else (1.0,)
    larger = [setting.times(width, 10.0) for width in factors]
    return [each for each in dict.fromkeys(larger) if each != setting]


def _explained(trial: Trial) -> float:
    return trial.explained
