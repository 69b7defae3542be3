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
    objective : float
        J of held-out rows under the W that was fitted to all rows.
    heldout_objective : float
        J of the same rows, under W fitted to the other rows. The difference is what W owes to the
        very rows that it was fitted to.
    explained, heldout_explained : float
        The share of y that is explained: of all rows, and of held-out rows with W fitted to the
        others. It may be negative if they are predicted worse than by the mean.
    heldout_accuracy : float or None
        The share of held-out rows whose class is predicted; None if y is not of classes.
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
