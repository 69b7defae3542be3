"""The source: rows of an earlier sample, which help a few new rows to find W.

Both samples share W alone. Each has a regression of its own, with its own width and ridge, so that
y may depend on X W in another way, and be another quantity. J is the mean of the two, the source
counting with a weight: its Gamma is block-diagonal, without pairs of rows of two samples. New rows
that W has not seen choose the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.engines.blocks import RegressionBlocks
from ism_dask.selection.folds import FOLD_STEPS, JUDGES, Fold, folds_of, trial_of
from ism_dask.selection.regularisation import Choice
from ism_dask.selection.sample import Sample, Setting
from ism_dask.solvers.ascent import ascend_roughly

# The weights that are tried beside none; J of the new rows has the weight one.
_WEIGHTS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, eq=False)
class Source:
    """Rows of another sample, with the W that explains their y.

    Attributes
    ----------
    W : (d, q) array
    regression : RidgeRegression
    blocks : RegressionBlocks
        The rows, or a sample of them.
    block : Block
        Rows whose Phi stands for that of all.
    weight : float
        How much their J counts.
    """

    W: Array
    regression: RidgeRegression
    blocks: RegressionBlocks
    block: Block
    weight: float = 0.0

    def beside(self, own: Callable[[Array], Explained], W: Array) -> Explained:
        """Return the mean of J of new rows, which `own` returns, and of J of the source at W."""
        new, source = own(W), self.blocks.explained(self.regression, W)
        objective = self._share * source.objective + (1.0 - self._share) * new.objective
        return Explained(
            objective, self._share * source.product + (1.0 - self._share) * new.product
        )

    def phi_beside(self, own: Array, W: Array) -> Array:
        """Return the mean of Phi (d, d) of new rows, `own`, and of Phi of the source at W."""
        return self._share * self.regression.phi(self.block, W) + (1.0 - self._share) * own

    @property
    def _share(self) -> float:
        return self.weight / (1.0 + self.weight)

    def climbed(self, sample: Sample, setting: Setting, begins: Sequence[Array]) -> Array:
        """Return W (d, q) after some steps on both samples, from the best of some W."""
        own = partial(sample.blocks.explained, sample.at(setting))
        evaluate = partial(self.beside, own)
        begin = max(begins, key=lambda W: evaluate(W).objective)
        return ascend_roughly(evaluate, begin, sample.precondition, FOLD_STEPS)[0]

    def weighed(self, sample: Sample, alone: Choice) -> tuple[Source, Choice]:
        """Return the source with the weight that unseen rows choose, and the choice with it.

        `alone` is the choice without a source.
        """
        folds = folds_of(sample)
        W_alone = {
            fold: fold.train.starts[alone.start] if alone.is_start else fold.fit(alone.setting)
            for fold in folds
        }
        factors = JUDGES if sample.width_is_free else JUDGES[:2]

        def losses(source: Source, setting: Setting, fold: Fold) -> Array:
            W = W_alone[fold]
            if source.weight:
                W = source.climbed(fold.train, setting, [self.W, W])
            return fold.losses(W, [setting.times(*each) for each in factors])

        # The setting without a source suits a W that fits badly, if the new rows are few.
        settings = dict.fromkeys([alone.setting, sample.best_setting(self.W)])
        ways = [(self, alone.setting)]
        ways += [(replace(self, weight=weight), each) for weight in _WEIGHTS for each in settings]
        trials = [
            trial_of(
                sample, folds, partial(losses, *way), f"source, weight {way[0].weight:g}", way[1]
            )
            for way in ways
        ]
        best = max(range(len(ways)), key=lambda number: trials[number].explained)
        source, setting = ways[best]
        judged = tuple(sorted([*alone.trials, *trials], key=lambda trial: -trial.explained))
        if not source.weight:
            return source, replace(alone, trials=judged)
        W = source.climbed(sample, setting, [self.W, alone.W])
        return source, Choice(W, setting, sample.evidence(W, setting), "source", trials=judged)
