"""Saved unfoldings: the rows of a fit with their coordinates, beside which they place new rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ism_dask.rows.raw import ColumnMoments
from storage.dataset import folder_name, open_dataset
from storage.errors import DatasetNotFound, StorageError, UnfitRows, misfit
from storage.models import SavedTransformer, check_shapes
from storage.runs import UNFOLD, load_result, save_run

# Rows of up to so many bytes are saved with their coordinates; others are read from their data set.
_LARGEST_COPY = 2**28


@dataclass(frozen=True, eq=False)
class SavedUnfolding(SavedTransformer):
    """The rows of an unfolding with their coordinates.

    Its metrics have `n_neighbors` of the fit.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        As they are stored in the data set.
    scale : ndarray of shape (d,)
        By which the fit has divided each column.
    coordinates : ndarray of shape (n, q)
    values : ndarray of shape (n,), optional
        The class code or number of each row.
    placement : Placement, optional
        Places new rows. It is made of the rows when it is first needed.
    """

    rows: NDArray[Any]
    scale: NDArray[Any]
    coordinates: NDArray[Any]
    values: NDArray[Any] | None = None
    placement: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n, q = self.coordinates.shape if self.coordinates.ndim == 2 else (0, 0)
        d = self.rows.shape[1] if self.rows.ndim == 2 else 0
        # Rows that are many are read from their data set.
        shapes = {"coordinates": (n, q), "scale": (d,), "rows": (len(self.rows) and n, d)}
        check_shapes(self, shapes)
        for name in shapes:
            if not np.isfinite(getattr(self, name)).all():
                raise misfit(name, "partly NaN or infinite", "finite numbers")
        super().__post_init__()

    @property
    def n_features(self) -> int:
        """The number of columns, d."""
        return int(self.rows.shape[1])

    @property
    def n_components(self) -> int:
        """The number of coordinates, q."""
        return int(self.coordinates.shape[1])

    def get_feature_names_out(self) -> tuple[str, ...]:
        """Return the names of the coordinates: those that the estimator gives them."""
        return tuple(f"coloredmvu{number}" for number in range(self.n_components))

    def bare(self) -> Self:
        """Return the unfolding with what places new rows, without its own rows and its table."""
        with _placing():
            placement = self._placement
        return replace(
            self,
            rows=self.rows[:0],
            coordinates=self.coordinates[:0],
            values=None,
            table=None,
            placement=placement,
        )

    def _new_features(self, rows: NDArray[Any]) -> NDArray[Any]:
        with _placing():
            placement = self._placement
        try:
            return np.asarray(placement(rows))
        except ValueError as error:  # rows that are too far from those of the fit
            raise UnfitRows(str(error)) from error

    @cached_property
    def _placement(self) -> Any:
        if self.placement is not None:
            return self.placement
        # It imports scikit-learn, which reading a run need not wait for.
        from ism_dask.estimators.input_rows import distinct_rows  # noqa: PLC0415
        from ism_dask.unfolding.nearest_rows import Placement  # noqa: PLC0415

        count = int(self.metrics["n_neighbors"])
        if not 0 < count < len(self.rows):
            raise ValueError(f"{count} neighbours of {len(self.rows)} rows")
        first, _ = distinct_rows(self.rows)
        placement = Placement.among(self.rows[first], self.scale, count)
        return placement.with_positions(self.coordinates[first])


@contextmanager
def _placing() -> Iterator[None]:
    """Turn what the values of another record raise in the block into a StorageError."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise StorageError(
            f"the unfolding cannot place rows ({type(error).__name__}: {error}): its record "
            "is not as it was written. Compute the run again"
        ) from error


def save_unfolding(name: str, unfolding: SavedUnfolding) -> Path:
    """Save an unfolding as the result of run `name`, atomically, replacing an earlier one.

    Rows of more than 256 MB are not saved: `load_unfolding` reads them from their data set.
    """
    if unfolding.rows.nbytes > _LARGEST_COPY:
        unfolding = replace(unfolding, rows=unfolding.rows[:0])
    return save_run(name, UNFOLD, unfolding)


def load_unfolding(name: str) -> SavedUnfolding:
    """Load the unfolding of a run, with the rows of the fit.

    Raises
    ------
    RunNotFound
        If there is no run of that name, or it is no unfolding that can place rows.
    StorageError
        If the rows are read from their data set, and it has been removed or has changed.
    DamagedStore
        If a file of the run is missing or altered.
    """
    advice = "has no unfolding; name one of `ism-dask unfold`, or see `load_model`"
    saved = load_result(name, SavedUnfolding, (UNFOLD,), advice)
    is_copy = len(saved.rows) == len(saved.coordinates)
    return replace(
        saved,
        rows=saved.rows if is_copy else _stored_rows(name, saved.metrics),
        statistics=ColumnMoments.from_rows(saved.coordinates),
        placement=None,
    )


def _stored_rows(name: str, metrics: Mapping[str, Any]) -> NDArray[Any]:
    """Return the rows (n, d) that an unfolding was fitted to, from their data set."""
    folder, digest = folder_name(metrics["dataset"], metrics["split"]), metrics["data_hash"]
    try:
        data = open_dataset(folder)
    except DatasetNotFound:
        problem = "is not stored any more"
    else:
        if data.data_hash == digest:
            return np.asarray(data.X.read(0, len(data.X)))
        problem = (
            f"has changed since: its digest is {data.data_hash[:12]}, that of the run {digest[:12]}"
        )
    raise StorageError(
        f"the run {name!r} places rows beside those of the data set {folder!r}, which {problem}. "
        "Store the same data again, or compute the run again"
    )
