"""How far new rows are from those that a model was fitted to, in its new features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ism_dask.rows.moments import ColumnMoments
from storage.models import SavedTransformer

# Rows of float32 and the same rows of float64 differ by less than this share of the range.
_ROUNDING = 1e-5


class Drift:
    """Counts and means of new rows, beside the statistics of the rows that a model was fitted to.

    Parameters
    ----------
    model : SavedTransformer
        Nothing is reported of one that was saved without statistics.
    """

    def __init__(self, model: SavedTransformer) -> None:
        self._learned = model.statistics
        self._names = model.get_feature_names_out()
        self._outside = np.zeros(model.n_components, dtype=np.int64)
        self._new: ColumnMoments | None = None

    def add(self, new: NDArray[Any]) -> None:
        """Add the new features of some rows (m, q)."""
        if self._learned is None or not len(new):
            return
        learned = self._learned
        slack = _ROUNDING * (learned.high - learned.low)
        outside = (new < learned.low - slack) | (new > learned.high + slack)
        self._outside += np.count_nonzero(outside, axis=0)
        # The squares of numbers that are barely floats are not.
        with np.errstate(over="ignore", invalid="ignore"):
            moments = ColumnMoments.of(new)
            self._new = moments if self._new is None else self._new + moments

    def merge(self, other: Drift) -> None:
        """Add the rows of a later part of the table."""
        self._outside += other._outside
        if self._new is None or other._new is None:
            self._new = self._new or other._new
            return
        with np.errstate(over="ignore", invalid="ignore"):
            self._new += other._new

    def report(self) -> list[dict[str, Any]]:
        """Return for each new feature the share of rows out of range, and the shift of the mean.

        `mean_shift` is in units of the deviation among the rows that the model was fitted to.
        """
        if self._learned is None or self._new is None:
            return []
        shift = self._new.mean - self._learned.mean
        deviation = np.maximum(self._learned.deviation, np.finfo(np.float64).tiny)
        shares = self._outside / self._new.n_rows
        return [
            {
                "feature": number,
                "name": name,
                "share_outside": float(share),
                "mean_shift": float(each),
            }
            for number, (name, share, each) in enumerate(
                zip(self._names, shares, shift / deviation, strict=True)
            )
        ]
