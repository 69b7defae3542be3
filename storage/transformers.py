"""What saved models have in common: they read rows like those of the fit as new features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ism_dask.rows.moments import ColumnMoments
from storage.errors import UnfitRows
from storage.tables.files import check_pyarrow


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Statistics of each new feature over the rows that a model was fitted to.

    Attributes
    ----------
    mean, deviation, minimum, maximum : ndarray of shape (q,)
    """

    mean: NDArray[Any]
    deviation: NDArray[Any]
    minimum: NDArray[Any]
    maximum: NDArray[Any]

    @classmethod
    def of(cls, moments: ColumnMoments) -> FeatureStatistics:
        """Return the statistics of new features from the moments of all their rows."""
        deviation = np.sqrt(moments.squares / moments.weight)
        return cls(moments.mean, deviation, moments.low, moments.high)

    @classmethod
    def of_rows(cls, rows: NDArray[Any]) -> FeatureStatistics:
        """Return the statistics of rows (n, q) of new features."""
        return cls.of(ColumnMoments.of(rows))


class SavedTransformer(ABC):
    """A saved model that gives rows their new features.

    Attributes
    ----------
    feature_names : tuple of str, optional
        Names of the columns.
    table : Mapping, optional
        The schema of the table that the model was fitted to, if it was one.
    statistics : FeatureStatistics, optional
        Of the new features, over the rows that the model was fitted to.
    metrics : Mapping
        Those of its run.
    """

    feature_names: tuple[str, ...] | None
    table: Mapping[str, Any] | None
    statistics: FeatureStatistics | None
    metrics: Mapping[str, Any]

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The number of columns of rows, d."""

    @property
    @abstractmethod
    def n_components(self) -> int:
        """The number of new features, q."""

    @abstractmethod
    def get_feature_names_out(self) -> tuple[str, ...]:
        """Return the names of the new features: those that the estimator gives them."""

    @abstractmethod
    def bare(self) -> Self:
        """Return the model with no more than `transform` needs for arrays, to send elsewhere."""

    @abstractmethod
    def _new_features(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the new features (n, q) of finite rows (n, d)."""

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the new features of rows X.

        Parameters
        ----------
        X : array of shape (n, d), or frame
            An array has the features that the model was fitted to, in the same order. A frame has
            the columns of the table that it was fitted to, in any order, encoded alike.

        Returns
        -------
        ndarray of shape (n, q)
            float32 if X is float32, else float64.

        Raises
        ------
        UnfitRows
            If X has another number of columns, or anything but finite numbers.
        TableError
            If a frame is not like the table: the message lists all columns and levels.
        """
        rows, d = np.asarray(self._encoded(X)), self.n_features
        if rows.ndim != 2 or rows.shape[1] != d or rows.dtype.kind not in "biuf":
            raise UnfitRows(
                f"`X` has shape {rows.shape} of {rows.dtype}; expected (n, {d}) of numbers: the "
                "features that the model was fitted to, in the same order."
            )
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise UnfitRows(
                f"`X` holds NaN or infinity in {len(bad)} rows, the first number {bad[0]}; "
                "expected finite numbers. Fill or drop these rows first."
            )
        return self._new_features(rows)

    def _encoded(self, X: Any) -> Any:
        """Return the rows of a frame as numbers, and anything else as it is."""
        if not hasattr(X, "columns") or (self.table is None and self.feature_names is None):
            return X
        if self.table is None:
            return X[list(self.feature_names or ())]
        check_pyarrow()
        # They import pyarrow, which rows of arrays do not need.
        from storage.tables.new_rows import encode_frame  # noqa: PLC0415
        from storage.tables.schema import TableSchema  # noqa: PLC0415

        return encode_frame(X, TableSchema.from_json(self.table))
