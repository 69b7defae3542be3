"""Folds: training rows that W is fitted to, and unseen rows that judge it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.rows.blocks import deal
from ism_dask.rows.execution import in_threads
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting


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
        The squared error of each unseen row, times its weight, and what is predicted of it that W
        is not to predict.
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
        return self.explained <= RULES.weak * self.error

    @property
    def is_start(self) -> bool:
        """Whether W is a start that no step has changed."""
        return self.width is None

    def is_clearly_better(self, other: Trial) -> bool:
        """Return whether unseen rows are predicted better, by more than a standard error."""
        gains = other.losses - self.losses
        return float(gains.mean()) > RULES.clearly_better * float(gains.std()) / np.sqrt(len(gains))


@dataclass(frozen=True, eq=False)
class Fold:
    """Training rows with the W fitted to them, and held-out rows.

    `start_names` are those of the starts that the rows are worth.
    """

    train: Sample
    test: Block
    start_names: Sequence[str]
    fitted: list[Array] = field(default_factory=list)

    @classmethod
    def of(cls, sample: Sample, train: Array, test: Array) -> Fold:
        """Return the fold of some rows (k,) and (m,) of a sample."""
        names = dict.fromkeys([*sample.best_starts[: RULES.best_starts], *RULES.cheap_starts])
        return cls(sample.part(train), sample.rows.part(test), tuple(names))

    def fit(self, setting: Setting) -> Array:
        """Return W (d, q) of the training rows, from the start or the last W of largest J."""
        if not self.fitted:
            begins = [self.train.starts[name] for name in self.start_names]
            self.fitted.append(max(begins, key=lambda W: self.train.objective(W, setting)))
        # The first entry is the best start, the last one the W of the setting before.
        begins = [self.fitted[0], *self.fitted[1:][-1:]]
        W = max(begins, key=lambda W: self.train.objective(W, setting))
        W, _ = self.train.climbed(W, setting, RULES.fold_steps)
        self.fitted.append(W)
        return W

    @property
    def squares(self) -> Array:
        """The losses (2, m) of the held-out rows if each is predicted by the mean."""
        return self.test.weighted(self.train.regression.sums(self.test.Y**2))

    def gain(self, setting: Setting, start_settings: dict[str, Setting]) -> float:
        """Return how far the evidence of the last W, for a row, is above that of the best start."""
        train = self.train
        starts = (
            train.evidence(train.starts[name], start_settings[name]) for name in self.start_names
        )
        return (train.evidence(self.fitted[-1], setting) - max(starts)) / train.rows.n_rows

    def losses(self, W: Array, settings: Sequence[Setting]) -> Array:
        """Return the losses (2, k, m) of the held-out rows in k settings.

        The second ones are those of what X W is not to predict.
        """
        blocks = self.train.blocks.blocks

        def losses(regression: RidgeRegression) -> Array:
            # The mean prediction of the blocks is nearly as good as that of all their rows.
            predicted = sum(regression.predicted(each, W, self.test.X) for each in blocks)
            errors = regression.sums((self.test.Y - predicted / len(blocks)) ** 2)
            return self.test.weighted(errors)

        return np.stack([losses(self.train.at(each)) for each in settings], axis=1)


def folds_of(sample: Sample) -> list[Fold]:
    """Return the folds of a sample: four of few rows, two of many."""
    n = sample.rows.n_rows
    hands = deal(
        sample.keys, RULES.folds if n <= RULES.many_fold_rows else RULES.halves, sample.seed + 1
    )
    return [Fold.of(sample, np.setdiff1d(np.arange(n), hand), hand) for hand in hands]


def judged(sample: Sample, folds: list[Fold], start: str, setting: Setting) -> Trial:
    """Return a trial of a setting: each fold fits W, and its held-out rows judge it."""
    judges = [setting.times(*factors) for factors in RULES.judges]
    judges = judges if sample.width_is_free else judges[:2]

    def losses(fold: Fold) -> Array:
        return fold.losses(fold.fit(setting), judges)

    return trial_of(sample, folds, losses, start, setting)


def start_trials(sample: Sample, folds: list[Fold]) -> list[Trial]:
    """Return a trial of each start by itself."""
    factors = RULES.start_judges if sample.width_is_free else RULES.start_judges[:2]

    def losses_of(name: str) -> Callable[[Fold], Array]:
        own = sample.start_settings[name]
        judges = [own.times(*each) for each in factors]
        return lambda fold: fold.losses(fold.train.starts[name], judges)

    return [trial_of(sample, folds, losses_of(name), name) for name in folds[0].start_names]


def trial_of(
    sample: Sample,
    folds: list[Fold],
    losses_of: Callable[[Fold], Array],
    start: str,
    setting: Setting | None = None,
) -> Trial:
    """Return a trial of the W whose losses (k, m) in k settings the rows of each fold have."""
    calls = [partial(losses_of, fold) for fold in folds]
    by_judge = np.concatenate(in_threads(calls, sample.rows.n_rows), axis=2)
    losses, avoided = (each[int(np.argmin(each.mean(axis=1)))] for each in by_judge)
    squares, most = np.concatenate([fold.squares for fold in folds], axis=1)
    if avoided.mean() < most.mean():  # a prediction that is worse than the mean tells nothing
        losses = losses + most - avoided
    gains = (squares - losses) / sample.rows.weighted(sample.lengths).mean()
    error = float(gains.std()) / float(np.sqrt(len(gains)))
    width, ridge = (None, None) if setting is None else (setting.width, setting.ridge)
    return Trial(start, width, ridge, float(gains.mean()), error, losses)
