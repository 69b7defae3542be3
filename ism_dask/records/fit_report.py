"""What explains a fit beside its numbers: notes, advice, and what was measured on the way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Avoidance:
    """HSIC correlations with s, the variables to avoid: 0 if independent, at most 1.

    They have no bias, so that they can be slightly negative. A correlation of fitted rows is still
    smaller than that of other rows, since W was fitted to avoid s on them.

    Attributes
    ----------
    features : float
        The correlation of all features with s.
    new_features : float
        The correlation of the new features with s.
    n_rows : int
        The number of rows of the fit that it was measured on.
    """

    features: float
    new_features: float
    n_rows: int


@dataclass(frozen=True)
class DimensionTrial:
    """What one number of new features explains.

    Attributes
    ----------
    q : int
        The number of new features.
    explained : float
        The share of y that a regression on them explains, each row predicted by the others.
    gain : float
        How much the log evidence of the regression, per row, rises over that of one feature fewer;
        0 if q is 1.
    needed_gain : float
        The gain from which on the feature is taken.
    """

    q: int
    explained: float
    gain: float
    needed_gain: float

    @property
    def is_taken(self) -> bool:
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
        The name of the engine that computed the result; "blocks" for a prediction.
    engine_error : float
        Bound on the relative error of `objective_` due to this engine.
    engine_note : str
        What there is to know of the engine, such as the device that computed the steps.
    residual_rows : int
        Number of rows on which the residual was measured, each against all rows: n, or the size of
        a sample if n^2 q is more than some seconds of work.
    target_remainder : float
        Share of the trace of the kernel of y that its low-rank factor leaves out.
    avoided : Avoidance or None
        How strongly all features and the new ones depend on what `fit` was to avoid.
    target : str
        Of a prediction of numbers: "mean" if the numbers themselves are predicted, "law" if
        functions of them are; "mean" for classes.
    other_maximum : float
        Of a prediction: the sine of the angle to the features that another start led to, if rows do
        not tell which are better; else 0. Random halves of such rows may give either.
    full_objective : float or None
        Of a prediction with `max_features`: J of the fit to all features, or, if there are more
        features than half as many rows, to those that explain most by themselves.
    deal_error : float or None
        Of a prediction, after `certify`: the distance by which another random deal of the rows into
        blocks would move W, from 0 to 1. It is 0 if one block has all rows.
    """

    components_advice: str = ""
    weights_advice: str = ""
    solver: str = ""
    engine: str = ""
    engine_error: float = 0.0
    engine_note: str = ""
    residual_rows: int = 0
    target_remainder: float = 0.0
    avoided: Avoidance | None = None
    target: str = "mean"
    other_maximum: float = 0.0
    full_objective: float | None = None
    deal_error: float | None = None
