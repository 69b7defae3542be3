"""Choice of the number of new features: one more, as long as it clearly explains more of y.

The choice compares W of q columns with W of q - 1 columns, both fitted anew, by how well the
nearest rows in X W predict y. The gain among the rows of the fit must be two standard errors. W was
fitted to these rows, so held-out rows, with W fitted to the others, must confirm it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.solvers.width_selection import (
    CONFIRMED,
    Fold,
    SelectionProblem,
    Trial,
    held_out_losses,
    standard_error,
)

# The gain among the rows of the fit from which a feature is clearly useful, in standard errors.
_CLEAR = 2.0


@dataclass(frozen=True, eq=False)
class DimensionTrial:
    """What one number of new features explains, on the sample of rows of a selection.

    Attributes
    ----------
    q : int
        The number of new features.
    objective : float
        HSIC of held-out rows under the W that was fitted to all rows, with the kernel of this q.
    heldout_objective : float
        HSIC of the same rows, under W fitted to the other rows. The difference is what W owes to
        the very rows that it was fitted to.
    explained, heldout_explained : float
        The share of y that the nearest other rows in X W explain: of all rows, and of held-out rows
        with W fitted to the others. It may be negative if they predict worse than the mean does.
    heldout_accuracy : float or None
        The share of held-out rows whose class is the most frequent one of the nearest other rows;
        None if y is not of classes.
    gain, heldout_gain : float
        How much more is explained than with one feature fewer, or than by the mean if q is 1.
    gain_error, heldout_gain_error : float
        Their standard errors.
    """

    q: int
    objective: float
    heldout_objective: float
    explained: float
    heldout_explained: float
    heldout_accuracy: float | None
    gain: float
    gain_error: float
    heldout_gain: float
    heldout_gain_error: float

    @property
    def explains_more(self) -> bool:
        """Whether its last feature clearly explains more of y, and held-out rows confirm it."""
        is_clear = self.gain > _CLEAR * self.gain_error
        return is_clear and self.heldout_gain > CONFIRMED * self.heldout_gain_error


@dataclass(frozen=True, eq=False)
class RatedDimension:
    """A `DimensionTrial` with the losses of each row, by which the next one is compared.

    Attributes
    ----------
    trial : DimensionTrial
    losses : (m,) array
        Squared errors of all rows in the sample.
    heldout_losses : (k,) array
        Squared errors of the held-out rows.
    """

    trial: DimensionTrial
    losses: Array = field(repr=False)
    heldout_losses: Array = field(repr=False)


def path_advice(path: Sequence[DimensionTrial], most: int) -> str:
    """Return advice if the trials speak against any number of features, or for more than `most`."""
    explained = max(each.heldout_explained for each in path)
    if explained <= 0.0:
        return (
            f"with up to {len(path)} new features, held-out rows explain nothing of y "
            f"({explained:.2g} of its variance). y may not depend on X: "
            "`ism_dask.dependence_test(X, y)` tests it"
        )
    if path[-1].q == most and path[-1].explains_more and path[-1].heldout_accuracy is None:
        return (
            f"each of {most} new features explains clearly more of y, and no more were tried: "
            f"n_components={most + 1} or more may explain still more"
        )
    return ""


def rate_dimension(
    choice: SelectionProblem, best: Trial, fewer: RatedDimension | None, classes: Array | None
) -> RatedDimension:
    """Return the rating of the best trial of a selection, compared with one feature fewer.

    Parameters
    ----------
    choice : SelectionProblem
    best : Trial
        The best trial of its number of features.
    fewer : RatedDimension or None
        The rating of one feature fewer; None compares with the mean of y.
    classes : (m,) array of int or None
        The class of each row of the sample, if y has classes.
    """
    evidence, folds = choice.evidence, choice.folds
    heldout = held_out_losses(choice, best)
    gain, heldout_gain = (
        (before - after) / evidence.mean_square
        for before, after in zip(
            _losses_of_mean(choice) if fewer is None else (fewer.losses, fewer.heldout_losses),
            (best.losses, heldout),
            strict=True,
        )
    )
    trial = DimensionTrial(
        q=choice.q,
        objective=_mean_objective(choice, best, [best.W] * len(folds)),
        heldout_objective=_mean_objective(choice, best, [fold.W_as_in(best) for fold in folds]),
        explained=best.explained,
        heldout_explained=(evidence.mean_loss - float(heldout.mean())) / evidence.mean_square,
        heldout_accuracy=None if classes is None else _accuracy(choice, best, classes),
        gain=float(gain.mean()),
        gain_error=standard_error(gain),
        heldout_gain=float(heldout_gain.mean()),
        heldout_gain_error=standard_error(heldout_gain),
    )
    return RatedDimension(trial, best.losses, heldout)


def _losses_of_mean(choice: SelectionProblem) -> tuple[Array, Array]:
    """Return the squared errors of all rows, and of held-out rows, if the mean predicts y."""
    evidence = choice.evidence
    heldout = [evidence.losses(fold.test, partial(_mean_of, fold.train)) for fold in choice.folds]
    return evidence.losses(slice(None), partial(_mean_of, slice(None))), np.concatenate(heldout)


def _mean_of(rows: Array | slice, values: Array) -> Array:
    return np.asarray(values[rows].mean(axis=0))


def _mean_objective(choice: SelectionProblem, best: Trial, subspaces: list[Array]) -> float:
    """Return the mean over folds of HSIC of the held-out rows, each fold with its W (d, q)."""
    values = [
        choice.engine(fold.test, best.width).product(W).objective / (len(fold.test) - 1) ** 2
        for fold, W in zip(choice.folds, subspaces, strict=True)
    ]
    return float(np.mean(values))


def _accuracy(choice: SelectionProblem, best: Trial, classes: Array) -> float:
    """Return the share of held-out rows whose class is the most frequent among the neighbours."""
    names, codes = np.unique(classes, return_inverse=True)
    members = np.eye(len(names))[codes]

    def hits(fold: Fold) -> Array:
        votes = fold.nearest_mean(fold.W_as_in(best), members)
        return np.asarray(votes.argmax(axis=1) == codes[fold.test])

    return float(np.concatenate([hits(fold) for fold in choice.folds]).mean())
