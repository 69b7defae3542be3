"""What a fit measured beside W: how well s is avoided, what each number of features explains."""

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
