"""Selection of the start, the kernel width and the ridge of the prediction criterion.

The evidence of the regression (its marginal likelihood) chooses among starts, widths and ridges,
since it needs no refits. But a flexible regression can fit W to the noise of its own rows, which
the evidence does not see. So W is fitted to parts of the rows as well, and judged on the others:
the width and the ridge grow as long as unseen rows are predicted better, and a start that no step
has changed is taken if it predicts unseen rows as well as any W.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines.blocks import BlocksInMemory
from ism_dask.linalg.eigen import inverse_covariance
from ism_dask.rows.blocks import deal
from ism_dask.rows.execution import side_by_side
from ism_dask.selection.starts import LINEAR, START_NAMES, Starts
from ism_dask.solvers.ascent import ascend_roughly
from ism_dask.solvers.lbfgs import Precondition

# Multiples of the width, and ridges, that the evidence tries at each start.
WIDTHS = (2.0, 1.0, 0.5, 0.25)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
# Factors by which it tries to improve a width and a ridge after some steps.
_WIDTH_FACTORS, _RIDGE_FACTORS = (0.5**0.5, 1.0, 2.0**0.5), (0.1, 0.3, 1.0, 3.0, 10.0)
# The range of widths and ridges.
_NARROWEST, _WIDEST, _LEAST_RIDGE, _MOST_RIDGE = 0.1, 16.0, 1e-5, 1.0
# Steps of the first ascents, and of the one that is chosen.
_FEW_STEPS, _STEPS = 10, 25
# How many of the starts are climbed from.
_CLIMBED = 2
# The number of folds: each holds out its share of the rows. With many rows, two of them will do.
_FOLDS, _ENOUGH_ROWS = 4, 600
# Starts that each fold tries, beside those of the largest evidence, because they cost nothing.
_CHEAP_STARTS = (LINEAR, "partial least squares")
# Steps of W on the training rows of a fold.
_FOLD_STEPS = 10
# Factors of width and ridge with which held-out rows judge a W: those that it was fitted with may
# be too wide to predict with.
_JUDGES = ((1.0, 1.0), (1.0, 0.1), (0.5, 1.0), (0.5, 0.1), (2.0, 1.0))
# A more cautious setting, or a start as it is, is taken if it predicts unseen rows better by this
# many standard errors.
_CLEARLY_BETTER = 1.0
# The share of the gain of evidence by the steps on all rows that steps on training rows have to
# come to.
_FOUND = 0.5
# With fewer rows for each weight of W, evidence alone is no proof.
_ROWS_PER_WEIGHT = 10
# With a weak signal, whose share is at most this many standard errors, the simplest W is taken.
_WEAK = 4.0
# Factors of width and ridge with which they judge a start, beside those of its own evidence.
_START_JUDGES = ((1.0, 1.0), (1.0, 10.0), (2.0, 1.0), (2.0, 10.0))


@dataclass(frozen=True)
class Setting:
    """A kernel width, as a multiple of the kernel's own, and a ridge."""

    width: float
    ridge: float

    def times(self, width: float, ridge: float) -> Setting:
        """Return the setting with a width and a ridge that are these factors larger."""
        return Setting(
            float(np.clip(self.width * width, _NARROWEST, _WIDEST)) if width != 1.0 else self.width,
            float(np.clip(self.ridge * ridge, _LEAST_RIDGE, _MOST_RIDGE)),
        )


@dataclass(frozen=True, eq=False)
class Trial:
    """A way to fit W, judged by rows that W has not seen.

    Attributes
    ----------
    start : str
        The name of the start.
    width : float or None
        As a multiple of the kernel's own; None if W is the start itself.
    ridge : float or None
    explained, error : float
        The share of y that is explained in unseen rows, and its standard error.
    losses : (n,) array
        The squared error of each unseen row.
    """

    start: str
    width: float | None
    ridge: float | None
    explained: float
    error: float
    losses: Array = field(repr=False)

    @property
    def is_weak(self) -> bool:
        """Whether what is explained is hardly above its noise."""
        return self.explained <= _WEAK * self.error

    @property
    def is_start(self) -> bool:
        """Whether W is a start that no step has changed."""
        return self.width is None


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory, on which a fit makes its choices.

    Attributes
    ----------
    rows : Block
        Standardised rows in double precision, with their target.
    keys : (m,) array
        Numbers or classes by which rows of similar y are similar.
    regression : RidgeRegression
        With the kernel's own width; its ridge does not matter.
    width_is_free : bool
        Whether the width may be chosen.
    q : int
    seed : int
    """

    rows: Block
    keys: Array
    regression: RidgeRegression
    width_is_free: bool
    q: int
    seed: int

    def part(self, numbers: Array) -> Sample:
        """Return the sample of some of the rows (k,), with starts of its own."""
        return Sample(
            self.rows.part(numbers),
            self.keys[numbers],
            self.regression,
            self.width_is_free,
            self.q,
            self.seed,
        )

    def at(self, setting: Setting) -> RidgeRegression:
        """Return the regression with a width and a ridge."""
        return self.regression.with_width(setting.width, setting.ridge * self.kernel_size)

    @cached_property
    def kernel_size(self) -> float:
        """The mean kernel of a row with itself, which ridges are shares of."""
        X = self.rows.X
        Z = X * np.sqrt(self.q / X.shape[1])  # as long as the rows of X W are on average
        sizes = (
            weight * term.value(term.pairing.own(Z)).mean()
            for weight, term in self.regression.kernel.terms
        )
        return float(sum(sizes))

    @cached_property
    def blocks(self) -> BlocksInMemory:
        """The rows dealt into blocks."""
        return BlocksInMemory.dealt(self.rows, self.keys, self.seed)

    @cached_property
    def explained_columns(self) -> Array:
        """The columns of Y (m, r) that X W is to predict."""
        signs = self.regression.signs
        return self.rows.Y if signs is None else self.rows.Y[:, signs > 0]

    @cached_property
    def starts(self) -> Starts:
        """The candidate starts (d, q) by name."""
        return Starts(self.rows.X, self.explained_columns, self.keys, self.q)

    @cached_property
    def start_settings(self) -> dict[str, Setting]:
        """The setting of the largest evidence for each start."""
        return {name: best_setting(self, self.starts[name]) for name in START_NAMES}

    @cached_property
    def best_starts(self) -> list[str]:
        """The names of the starts, that of the largest evidence first."""

        def evidence(name: str) -> float:
            return self.evidence(self.starts[name], self.start_settings[name])

        return sorted(START_NAMES, key=evidence, reverse=True)

    @cached_property
    def precondition(self) -> Precondition:
        """The function that multiplies a slope by the inverse covariance, with a ridge."""
        return inverse_covariance(self.rows.X.T @ self.rows.X / self.rows.n_rows)

    def climbed(self, W: Array, setting: Setting, steps: int) -> tuple[Array, float]:
        """Return W (d, q) and J after up to a number of steps."""
        evaluate = partial(self.blocks.explained, self.at(setting))
        return ascend_roughly(evaluate, W, self.precondition, steps)

    @cached_property
    def evidence_cost(self) -> float:
        """By how much the log evidence rises by chance if W has one column more.

        It is Schwarz's `d log(n) / 2`, divided by the independent columns of y.
        """
        n, d = self.rows.X.shape
        return float(d * np.log(n) / (2 * np.linalg.matrix_rank(self.explained_columns)))

    def evidence(self, W: Array, setting: Setting) -> float:
        """Return the log marginal likelihood of a column of y at W (d, q)."""
        return self.blocks.evidence(self.at(setting), W)


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
    """

    W: Array
    setting: Setting
    evidence: float
    start: str
    is_start: bool = False
    trials: tuple[Trial, ...] = ()


def choose_by_evidence(sample: Sample) -> Choice:
    """Return the start, the width, the ridge and W of the largest evidence."""
    ranked = [_start_choice(sample, name) for name in sample.best_starts]
    climbed = [_improved(sample, each, _FEW_STEPS) for each in ranked[:_CLIMBED]]
    best = max(climbed, key=lambda each: each.evidence)
    return _improved(sample, best, _STEPS)


def choose(sample: Sample, choice: Choice | None = None) -> Choice:
    """Return the choice by evidence, made more cautious as far as unseen rows ask for it."""
    choice = choose_by_evidence(sample) if choice is None else choice
    folds = _folds(sample)
    trials = _start_trials(sample, folds)
    now = _judged(sample, folds, choice.start, choice.setting)
    trials.append(now)
    if not _folds_find_as_much(sample, folds, choice):
        return replace(choice, trials=tuple(sorted(trials, key=_explained, reverse=True)))
    while True:
        setting = Setting(now.width or 1.0, now.ridge or 1.0)
        tried = [
            _judged(sample, folds, choice.start, each) for each in _more_cautious(sample, setting)
        ]
        trials += tried
        best = max(tried, key=_explained, default=now)
        if not _is_clearly_better(best, now):
            break
        now = best
    best_start = max((each for each in trials if each.is_start), key=_explained)
    best = best_start if _is_clearly_better(best_start, now) else now
    best = _simplest(trials) if best.is_weak else best
    trials.sort(key=lambda each: -each.explained)
    return _with_trials(sample, choice, best, trials)


def _folds_find_as_much(sample: Sample, folds: list[_Fold], choice: Choice) -> bool:
    """Return whether the steps raise the evidence of training rows as they raise that of all rows.

    If they do not, though on many rows they gain more than the weights of W cost, the training rows
    were too few to find what all rows show, and held-out rows say nothing of it.
    """
    name = sample.best_starts[0]
    gain = choice.evidence - sample.evidence(sample.starts[name], sample.start_settings[name])
    n, d = sample.rows.X.shape
    if gain < sample.q * sample.evidence_cost or n < _ROWS_PER_WEIGHT * d * sample.q:
        return True
    gains = [fold.gain(choice.setting, sample.start_settings) for fold in folds]
    return float(np.mean(gains)) >= _FOUND * gain / sample.rows.n_rows


def _simplest(trials: list[Trial]) -> Trial:
    """Return the simplest trial that none is clearly better than: the linear start if possible."""
    best = max(trials, key=_explained)
    near = [each for each in trials if not _is_clearly_better(best, each)]
    linear = [each for each in near if each.is_start and each.start == LINEAR]
    return (linear or [best])[0]


def _is_clearly_better(trial: Trial, other: Trial) -> bool:
    """Return whether unseen rows are predicted better, by a standard error."""
    gains = other.losses - trial.losses
    return float(gains.mean()) > _CLEARLY_BETTER * float(gains.std()) / np.sqrt(len(gains))


def _with_trials(sample: Sample, choice: Choice, best: Trial, trials: list[Trial]) -> Choice:
    """Return the choice of the best of the trials, with W fitted to all rows of the sample."""
    if best.is_start:
        chosen = _start_choice(sample, best.start)
        return replace(chosen, is_start=True, trials=tuple(trials))
    setting = Setting(best.width or 1.0, best.ridge or 1.0)
    W = choice.W
    if setting != choice.setting:
        begins = [choice.W, *(sample.starts[name] for name in START_NAMES)]
        objectives = [_objective(sample, begin, setting) for begin in begins]
        second = begins[1 + int(np.argmax(objectives[1:]))]
        ends = [sample.climbed(begin, setting, _STEPS) for begin in (choice.W, second)]
        W = max(ends, key=lambda end: end[1])[0]
    return Choice(W, setting, sample.evidence(W, setting), choice.start, False, tuple(trials))


def _start_choice(sample: Sample, name: str) -> Choice:
    """Return a start with the setting of its largest evidence."""
    W, setting = sample.starts[name], sample.start_settings[name]
    return Choice(W, setting, sample.evidence(W, setting), name)


def _objective(sample: Sample, W: Array, setting: Setting) -> float:
    return sample.blocks.explained(sample.at(setting), W).objective


def best_setting(sample: Sample, W: Array) -> Setting:
    """Return the setting of the grid with the largest evidence at W (d, q)."""
    widths = WIDTHS if sample.width_is_free else (1.0,)
    grid = [Setting(width, ridge) for width in widths for ridge in RIDGES]
    return max(grid, key=partial(sample.evidence, W))


def _improved(sample: Sample, choice: Choice, steps: int) -> Choice:
    """Return the choice after some steps of W, with the nearby setting of largest evidence."""
    W, _ = sample.climbed(choice.W, choice.setting, steps)
    factors = _WIDTH_FACTORS if sample.width_is_free else (1.0,)
    near = {choice.setting.times(width, ridge) for width in factors for ridge in _RIDGE_FACTORS}
    rated = {each: sample.evidence(W, each) for each in sorted(near, key=_size)}
    setting = max(rated, key=lambda each: rated[each])
    return Choice(W, setting, rated[setting], choice.start)


def _size(setting: Setting) -> tuple[float, float]:
    return setting.width, setting.ridge


def _more_cautious(sample: Sample, setting: Setting) -> list[Setting]:
    """Return settings with a larger ridge, at the same and at a larger width."""
    factors = (1.0, 2.0) if sample.width_is_free else (1.0,)
    larger = [setting.times(width, 10.0) for width in factors]
    return [each for each in dict.fromkeys(larger) if each != setting]


def _explained(trial: Trial) -> float:
    return trial.explained


@dataclass(frozen=True, eq=False)
class _Fold:
    """Training rows with the W fitted to them, and held-out rows.

    `start_names` are those of the starts that the rows are worth.
    """

    train: Sample
    test: Block
    start_names: Sequence[str]
    fitted: list[Array] = field(default_factory=list)

    @classmethod
    def of(cls, sample: Sample, train: Array, test: Array) -> _Fold:
        names = dict.fromkeys([*sample.best_starts[:_CLIMBED], *_CHEAP_STARTS])
        return cls(sample.part(train), sample.rows.part(test), tuple(names))

    def fit(self, setting: Setting) -> Array:
        """Return W (d, q) of the training rows, from the start or the last W of largest J."""
        if not self.fitted:
            begins = [self.train.starts[name] for name in self.start_names]
            self.fitted.append(max(begins, key=lambda W: _objective(self.train, W, setting)))
        # The first entry is the best start, the last one the W of the setting before.
        begins = [self.fitted[0], *self.fitted[1:][-1:]]
        W = max(begins, key=lambda W: _objective(self.train, W, setting))
        W, _ = self.train.climbed(W, setting, _FOLD_STEPS)
        self.fitted.append(W)
        return W

    def gain(self, setting: Setting, start_settings: dict[str, Setting]) -> float:
        """Return how far the evidence of the last W, for a row, is above that of the best start."""
        train = self.train
        starts = (
            train.evidence(train.starts[name], start_settings[name]) for name in self.start_names
        )
        return (train.evidence(self.fitted[-1], setting) - max(starts)) / train.rows.n_rows

    def losses(self, W: Array, settings: Sequence[Setting]) -> Array:
        """Return the losses (k, m) of the held-out rows in k settings."""
        return np.array(
            [
                self.train.at(each).prediction_losses(self.train.rows, W, self.test)
                for each in settings
            ]
        )


def _folds(sample: Sample) -> list[_Fold]:
    hands = deal(sample.keys, _FOLDS, sample.seed + 1)
    everything = np.arange(sample.rows.n_rows)
    used = hands if sample.rows.n_rows <= _ENOUGH_ROWS else hands[:2]
    return [_Fold.of(sample, np.setdiff1d(everything, hand), hand) for hand in used]


def _judged(sample: Sample, folds: list[_Fold], start: str, setting: Setting) -> Trial:
    """Return a trial of a setting: each fold fits W, and its held-out rows judge it."""
    judges = [setting.times(*factors) for factors in _JUDGES]
    judges = judges if sample.width_is_free else judges[:2]

    def losses(fold: _Fold) -> Array:
        return fold.losses(fold.fit(setting), judges)

    return _trial(sample, folds, losses, start, setting)


def _start_trials(sample: Sample, folds: list[_Fold]) -> list[Trial]:
    """Return a trial of each start by itself."""
    factors = _START_JUDGES if sample.width_is_free else _START_JUDGES[:2]

    def losses_of(name: str) -> Callable[[_Fold], Array]:
        own = sample.start_settings[name]
        judges = [own.times(*each) for each in factors]
        return lambda fold: fold.losses(fold.train.starts[name], judges)

    return [_trial(sample, folds, losses_of(name), name, None) for name in folds[0].start_names]


def _trial(
    sample: Sample,
    folds: list[_Fold],
    losses_of: Callable[[_Fold], Array],
    start: str,
    setting: Setting | None,
) -> Trial:
    calls = [partial(losses_of, fold) for fold in folds]
    by_judge = np.hstack(side_by_side(calls, sample.rows.n_rows))
    losses = by_judge[int(np.argmin(by_judge.mean(axis=1)))]
    squares = np.concatenate([(fold.test.Y**2).sum(axis=1) for fold in folds])
    gains = (squares - losses) / squares.mean()
    error = float(gains.std()) / float(np.sqrt(len(gains)))
    width, ridge = (None, None) if setting is None else (setting.width, setting.ridge)
    return Trial(start, width, ridge, float(gains.mean()), error, losses)
