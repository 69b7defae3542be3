"""Saved unfoldings: the rows of a fit with their coordinates, beside which they place new rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.dataset import open_dataset
from storage.dataset_info import folder_name
from storage.errors import DatasetNotFound, RunNotFound, StorageError
from storage.manifest import damaged_store
from storage.runs import RESULTS, read_record, run_not_found, save_results, saved_run_path
from storage.store import get_array, read_again_if_replaced
from storage.transformers import FeatureStatistics, SavedTransformer

UNFOLD = "unfold"
_COORDINATES, _SCALE, _ROWS, _VALUES = "coordinates", "scale", "rows", "values"
_CORRECTIONS = "corrections"
_TABLE, _NAMES = "table", "feature_names"
# Rows of up to so many bytes are saved with their coordinates; others are read from their data set.
_LARGEST_COPY = 2**28


@dataclass(frozen=True, eq=False)
class SavedUnfolding(SavedTransformer):
    """The rows of an unfolding with their coordinates.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        As they are stored in the data set.
    scale : ndarray of shape (d,)
        By which the fit has divided each column.
    coordinates : ndarray of shape (n, q)
    corrections : ndarray of shape (n, q), optional
        Those of the fit, if it has some.
    feature_names : tuple of str, optional
    table : Mapping, optional
        The schema of the table that the rows come from, if it was one.
    statistics : FeatureStatistics, optional
        Of the coordinates; set when a run is loaded.
    config, metrics, versions : Mapping
        Plain values. The metrics have `n_neighbors` and `exact_neighbors` of the fit, the config
        its `seed`.
    placement : Placement, optional
        Places new rows. It is made of the rows when it is first needed.
    """

    rows: NDArray[Any]
    scale: NDArray[Any]
    coordinates: NDArray[Any]
    corrections: NDArray[Any] | None = None
    feature_names: tuple[str, ...] | None = None
    table: Mapping[str, Any] | None = None
    statistics: FeatureStatistics | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    placement: Any = field(default=None, repr=False)

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
        return replace(
            self,
            rows=self.rows[:0],
            coordinates=self.coordinates[:0],
            corrections=None,
            table=None,
            placement=self._placement,
        )

    def _new_features(self, rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self._placement(rows))

    @cached_property
    def _placement(self) -> Any:
        if self.placement is not None:
            return self.placement
        # It imports scikit-learn, which reading a run need not wait for.
        from ism_dask.estimators.placement import Placement  # noqa: PLC0415

        return Placement.beside(
            self.rows,
            self.scale,
            self.coordinates,
            self.corrections,
            n_neighbors=int(self.metrics["n_neighbors"]),
            exact=bool(self.metrics["exact_neighbors"]),
            seed=int(self.config["seed"]),
        )


def save_unfolding(
    name: str, unfolding: SavedUnfolding, values: NDArray[Any] | None = None
) -> Path:
    """Save an unfolding as the results of run `name`, atomically, replacing an earlier one.

    Rows of more than 256 MB are not saved: `load_unfolding` reads them from their data set.

    Parameters
    ----------
    name : str
    unfolding : SavedUnfolding
    values : ndarray of shape (n,), optional
        The class code or number of each row.
    """
    arrays = {_COORDINATES: unfolding.coordinates, _SCALE: unfolding.scale}
    optional = {_VALUES: values, _CORRECTIONS: unfolding.corrections}
    arrays.update({key: array for key, array in optional.items() if array is not None})
    if unfolding.rows.nbytes <= _LARGEST_COPY:
        arrays[_ROWS] = unfolding.rows
    return save_results(
        name,
        UNFOLD,
        config=unfolding.config,
        metrics=unfolding.metrics,
        versions=unfolding.versions,
        arrays=arrays,
        columns={_NAMES: unfolding.feature_names, _TABLE: unfolding.table},
    )


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
    path = saved_run_path(name)
    if path is None:
        raise run_not_found(name)
    if path.name != RESULTS:
        raise RunNotFound(f"the run {name!r} has a model, but no unfolding; see `load_model`")
    return read_again_if_replaced(path, lambda: _load(name, path))


def _load(name: str, path: Path) -> SavedUnfolding:
    group, record = read_record(path)
    if record["kind"] != UNFOLD:
        raise RunNotFound(
            f"the run {name!r} has results but no model; name one of `ism-dask fit`, `ism-dask "
            "cluster` or `ism-dask unfold`"
        )
    try:
        names, coordinates = record[_NAMES], get_array(group, _COORDINATES)
        return SavedUnfolding(
            _rows(name, group, record),
            get_array(group, _SCALE),
            coordinates,
            get_array(group, _CORRECTIONS) if _CORRECTIONS in group else None,
            feature_names=None if names is None else tuple(names),
            table=record[_TABLE],
            statistics=FeatureStatistics.of_rows(coordinates),
            config=record["config"],
            metrics=record["metrics"],
            versions=record["versions"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_store(
            path, "zarr.json", f"not the record of an unfolding ({error})"
        ) from error


def _rows(name: str, group: zarr.Group, record: Mapping[str, Any]) -> NDArray[Any]:
    """Return the rows of the fit (n, d): those in the run, or those of its data set."""
    if _ROWS in group:
        return get_array(group, _ROWS)
    metrics = record["metrics"]
    folder, digest = folder_name(metrics["dataset"], metrics["split"]), metrics["data_hash"]
    advice = "Store the same data again, or compute the run again"
    try:
        data = open_dataset(folder)
    except DatasetNotFound as error:
        raise StorageError(
            f"the run {name!r} places rows beside those of the data set {folder!r}, "
            f"which is not stored any more. {advice}"
        ) from error
    if data.data_hash != digest:
        raise StorageError(
            f"the run {name!r} places rows beside those of the data set {folder!r}, "
            f"which has changed since: its digest is {data.data_hash[:12]}, that of the run "
            f"{digest[:12]}. {advice}"
        )
    return np.asarray(data.X.read(0, len(data.X)))
