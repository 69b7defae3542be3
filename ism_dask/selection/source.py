"""The source: rows of an earlier sample, which help a few new rows to find W.

Both samples share W alone. Each has a regression of its own, with its own width and ridge, so that
y may depend on X W in another way, and be another quantity. J is a weighted mean of both, and its
Gamma is block-diagonal. New rows that W has not seen choose the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Explained
from ism_dask.selection.folds import FOLD_STEPS, JUDGES, Fold, Trial, folds_of, trial_of
from ism_dask.selection.regularisation import Choice
from ism_dask.selection.sample import Sample, Setting
from ism_dask.solvers.ascent import ascend_roughly

# The weights that are tried. A larger one that unseen rows hardly tell from the best leads W away
# from the truth more often than to it, as simulated pairs of samples show.
_WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, eq=False)
class Source:
    """Rows of another sample, with the W that explains their y.

    Attributes
    ----------
    W : (d, q) array
    explained : callable
        Returns their J and Phi W at a W.
    phi : callable
        Returns their Phi (d, d) at a W, that of a sample if they are many.
    weight : float
        That of their J; J of the new rows has the rest of 1.
    """

    W: Array
    explained: Callable[[Array], Explained]
    phi: Callable[[Array], Array]
    weight: float = 0.0

    def beside(self, own: Callable[[Array], Explained], W: Array) -> Explained:
        """Return the mean of J of new rows, which `own` returns, and of J of the source at W."""
        new, source = own(W), self.explained(W)
        objective = (1.0 - self.weight) * new.objective + self.weight * source.objective
        product = (1.0 - self.weight) * new.product + self.weight * source.product
        return Explained(objective, product)

    def climbed(self, sample: Sample, setting: Setting, W: Array) -> Array:
        """Return W (d, q) after some steps on both samples, from that of the source or another."""
        evaluate = partial(self.beside, partial(sample.blocks.explained, sample.at(setting)))
        begin = max([self.W, W], key=lambda each: evaluate(each).objective)
        return ascend_roughly(evaluate, begin, sample.precondition, FOLD_STEPS)[0]

    def weighed(self, sample: Sample, alone: Choice) -> tuple[Source, Choice]:
        """Return the source with the weight that unseen rows choose, and the choice with it.

        `alone` is the choice without a source.
        """
        folds, is_start = folds_of(sample), alone.is_start
        W_alone = {
            fold: fold.train.starts[alone.start] if is_start else fold.fit(alone.setting)
            for fold in folds
        }
        # Few rows are predicted best by a setting that suits a W that fits badly. The W of the
        # source has not seen their y.
        setting = sample.best_setting(self.W)
        factors = JUDGES if sample.width_is_free else JUDGES[:2]

        def losses(source: Source, fold: Fold) -> Array:
            W, judge = W_alone[fold], setting if source.weight else alone.setting
            W = source.climbed(fold.train, setting, W) if source.weight else W
            return fold.losses(W, [judge.times(*each) for each in factors])

        def trial(source: Source) -> Trial:
            name = f"source x {source.weight:g}"
            return trial_of(sample, folds, partial(losses, source), name, setting)

        sources = [replace(self, weight=weight) for weight in _WEIGHTS]
        trials = [trial(each) for each in sources]
        judged = tuple(sorted([*alone.trials, *trials], key=lambda trial: -trial.explained))
        source = sources[int(np.argmax([trial.explained for trial in trials]))]
        if not source.weight:
            return source, replace(alone, trials=judged)
        W = source.climbed(sample, setting, alone.W)
        return source, Choice(W, setting, sample.evidence(W, setting), "source", trials=judged)
