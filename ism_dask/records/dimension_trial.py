"""The record of one number of new features that a fit has tried."""

from __future__ import annotations

from dataclasses import dataclass


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
