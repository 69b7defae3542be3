"""What explains a fit beside its numbers: notes, advice, and what was measured on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ism_dask._types import Array

# The names of the trials in which each direction of W has a scale of its own, and in which W has
# few features alone.
SCALES, FEW = "own scales", "few features"


@dataclass(frozen=True)
class Avoidance:
    """HSIC correlations with s, the variables to avoid: 0 if independent, at most 1.

    They are those of all features and of the new ones, on a sample of the rows of the fit. They
    have no bias and can therefore be slightly negative. The correlation of fitted rows is still
    smaller than that of other rows, since W was fitted to avoid s on them.
    """

    features: float
    new_features: float
    n_rows: int


@dataclass(frozen=True)
class Trial:
    """A way to fit W, judged by rows that W has not seen.

    `width` is a multiple of the kernel's own; it and the `ridge` are None if W is the start itself.
    `explained` is the share of y that is explained in unseen rows, `error` its standard error. The
    `losses` (n,) are the squared error of each unseen row, times its weight, and what is predicted
    of it that W is not to predict.
    """

    start: str
    width: float | None
    ridge: float | None
    explained: float
    error: float
    losses: Array = field(repr=False, compare=False)


@dataclass(frozen=True)
class DimensionTrial:
    """What a number q of new features explains.

    `explained` is the share of y that a regression on them explains, each row predicted by the
    others. `gain` is how much the log evidence of the regression, per row, rises over that of one
    feature fewer, 0 if q is 1; from `needed_gain` on, the feature is taken.
    """

    q: int
    explained: float
    gain: float
    needed_gain: float

    @property
    def is_worthwhile(self) -> bool:
        """Whether the gain suffices."""
        return self.q == 1 or self.gain >= self.needed_gain


@dataclass(frozen=True)
class FitReport:
    """What explains a fit beside its numbers.

    Attributes
    ----------
    components_advice : str
        Reason to choose another number of new features; empty if there is none.
    weights_advice : str
        Which columns are so alike that either could have the weight of both; empty if none are.
    solver : str
        The name of the solver.
    engine : str
        The name of the engine that computed the result; of a prediction "exact", or "landmarks" for
        more than some 900 rows.
    engine_error : float
        Bound on the relative error of `objective_` due to this engine, without rounding: 0 if it
        leaves nothing out, infinite if no bound is known.
    engine_note : str
        What there is to know of the engine, such as why others declined.
    tolerance : float
        The limit in force: on `residual_`, for clusters `outer_tol` or more; with a number as `tol`
        of `ISM`, or if `status_` is `Status.TOLERANCE`, on the change of the eigenvalues.
    residual_rows : int
        Number of rows on which the residual was measured, each against all rows: n, or the size of
        a sample if n^2 q is more than some seconds of work.
    avoided : Avoidance or None
        How strongly all features and the new ones depend on what `fit` was to avoid.
    target : str
        Of a prediction of numbers: "mean" if the numbers themselves are predicted, "law" if
        functions of them are: of their ranks or, with target="gaussian" or "multiscale", of the
        numbers; "mean" for classes.
    trials : tuple of Trial
        Of a prediction: the trials that unseen rows have judged, the one that was taken, then the
        others, best first. With `max_features` those of the fit to all features.
    dimensions : tuple of DimensionTrial
        Of a prediction: what 1, 2 and more new features explain, if "auto" tried them; else empty.
    other_maximum : float
        Of a prediction: the sine of the angle to the features that the other of two starts led to,
        if rows do not tell which are better; else 0. It says nothing of starts not followed.
    full_objective : float or None
        Of a prediction with few features: J of the fit to all features, or, with `max_features` and
        more features than half as many rows, to those that explain most by themselves. None if W
        uses all features.
    rows_without_y : int
        Number of rows whose y was missing: they helped means and scales of X and widths alone.
    """

    components_advice: str = ""
    weights_advice: str = ""
    solver: str = ""
    engine: str = ""
    engine_error: float = 0.0
    engine_note: str = ""
    tolerance: float = 0.0
    residual_rows: int = 0
    avoided: Avoidance | None = None
    target: str = "mean"
    trials: tuple[Trial, ...] = ()
    dimensions: tuple[DimensionTrial, ...] = ()
    other_maximum: float = 0.0
    full_objective: float | None = None
    rows_without_y: int = 0

    @property
    def has_few_features(self) -> bool:
        """Whether the rows or the user have chosen few of the features of a prediction."""
        return self.full_objective is not None


@dataclass(frozen=True)
class Certificate:
    """Whether W is a local maximum of J under the true kernel, and the numbers that say so.

    J depends only on the span of W, so its Hessian is that on the Grassmann manifold: along
    directions Z with `W^T Z = 0`. A stationary W is a maximum if all its eigenvalues are negative.

    Attributes
    ----------
    is_certified : bool
        Whether W is a local maximum, but for the `distance`; False also if that is not known.
    reason : str
        What is known and why, in one sentence.
    is_global : bool
        Whether no W at all has a larger J. Known only if Phi does not depend on W.
    residual : float
        The residual of W under the true kernel.
    residual_rows : int
        The number of rows on which the residual was measured.
    largest_eigenvalue : float
        The largest eigenvalue of the Hessian, relative to the largest one in size. NaN if the
        Hessian was not measured.
    distance : float
        The sine of the largest angle between W and the maximum, to second order, or a bound on it:
        infinite if there is none, 0 if `is_global`. NaN if the Hessian was not measured.
    """

    is_certified: bool = False
    reason: str = "not certified: the Hessian was not measured"
    is_global: bool = False
    residual: float = math.nan
    residual_rows: int = 0
    largest_eigenvalue: float = math.nan
    distance: float = math.nan
