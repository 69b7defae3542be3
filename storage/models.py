"""Saved models, which read rows like those of the fit as new features; nothing is pickled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ism_dask.rows.raw import ColumnMoments, filled, project
from storage.atomic import exists_settled
from storage.errors import RunNotFound, UnfitRows, misfit
from storage.records import restored
from storage.runs import FORMAT_VERSION, MODELS, existing_path, save_results
from storage.saved_arrays import RECORD, open_arrays
from storage.store import read_again, reading

# The criterion of a fit whose estimator is the predictive one.
PREDICTION = "prediction"


def _check_shapes(owner: object, shapes: Mapping[str, tuple[int, ...]], where: str = "") -> None:
    """Raise StorageError unless the arrays of an object that have these names have these shapes."""
    for name, shape in shapes.items():
        actual = getattr(owner, name).shape
        if actual != shape:
            raise misfit(f"{where}{name}", f"of shape {actual}", f"{shape}")


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample of the rows in the new features, for plots.

    Attributes
    ----------
    points : ndarray of shape (m, q)
        float32.
    values : ndarray of shape (m,) or (m, t)
        The class code, number, numbers or cluster of each row.
    """

    points: NDArray[Any]
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted projection, with the settings, iterations and metrics of its fit.

    Attributes
    ----------
    components : ndarray of shape (q, d)
        Rows are the new features, in standardised units.
    mean, scale : ndarray of shape (d,)
        The standardisation of the columns.
    eigenvalues : ndarray of shape (q,)
        Eigenvalues of the final Phi.
    feature_names : tuple of str, optional
        Names of the columns.
    class_names : tuple of str, optional
        Names of the classes that the model was fitted to.
    table : Mapping, optional
        The schema of the table that the model was fitted to, if it was one.
    statistics : ColumnMoments, optional
        Those of the new features, over the rows that the model was fitted to.
    labels : ndarray of shape (n,), optional
        The cluster of each row, if the run is one that clusters.
    sample : Sample, optional
    gap_means : ndarray of shape (d,), optional
        What `transform` fills gaps with, NaN in X; without them, such rows are refused.
    image_shape : tuple of int, optional
        (height, width) if a row is a picture.
    history : sequence of Mapping
        The record of each iteration.
    config, metrics, versions : Mapping
        Plain values of its run: numbers (NaN and infinity too), strings, lists, mappings. Tuples
        come back as lists.
    """

    components: NDArray[Any]
    mean: NDArray[Any]
    scale: NDArray[Any]
    eigenvalues: NDArray[Any]
    _: KW_ONLY
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    table: Mapping[str, Any] | None = None
    statistics: ColumnMoments | None = None
    labels: NDArray[Any] | None = None
    sample: Sample | None = None
    gap_means: NDArray[Any] | None = None
    image_shape: tuple[int, ...] | None = None
    history: Sequence[Mapping[str, Any]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        q, d = self.components.shape if self.components.ndim == 2 else (0, 0)
        shapes = {"components": (q, d), "mean": (d,), "scale": (d,), "eigenvalues": (q,)}
        if not q * d:
            raise misfit("components", f"of shape {self.components.shape}", "(q, d), q and d >= 1")
        if self.gap_means is not None:
            shapes["gap_means"] = (d,)
        _check_shapes(self, shapes)
        for name in shapes:
            values = getattr(self, name)
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                actual = f"{values.dtype}, or partly NaN or infinite"
                raise misfit(name, actual, "finite floats. Fit again")
        self._check_rest(q, d)

    def _check_rest(self, q: int, d: int) -> None:
        """Raise StorageError unless all else fits d features and q new features."""
        if self.feature_names is not None and len(self.feature_names) != d:
            raise misfit("feature_names", f"{len(self.feature_names)} names", str(d))
        shape = self.image_shape
        if shape is not None and (len(shape) != 2 or math.prod(shape) != d):
            raise misfit("image_shape", shape, f"(height, width) of {d} pixels")
        labels = self.labels
        if labels is not None and (labels.ndim != 1 or labels.dtype.kind not in "ui"):
            actual = f"shape {labels.shape} of {labels.dtype}"
            raise misfit("labels", actual, "one whole number for each row")
        sample = self.sample
        if sample is not None:
            shape = sample.values.shape[:2] or (0,)
            _check_shapes(sample, {"points": (shape[0], q), "values": shape}, "sample.")
        if self.statistics is not None:
            names = ("mean", "squares", "low", "high")
            _check_shapes(self.statistics, dict.fromkeys(names, (q,)), "statistics.")

    @property
    def n_features(self) -> int:
        """The number of columns, d."""
        return int(self.components.shape[1])

    @property
    def n_components(self) -> int:
        """The number of new features, q."""
        return len(self.components)

    def get_feature_names_out(self) -> tuple[str, ...]:
        """Return the names of the new features: those that the estimator gives them."""
        # scikit-learn names new features by the estimator's class.
        by_criterion = "predictive" if self.config.get("criterion") == PREDICTION else "supervised"
        paradigm = self.metrics.get("paradigm", by_criterion)
        return tuple(f"{paradigm}ikdr{number}" for number in range(len(self.components)))

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
        if self.gap_means is not None:
            rows = filled(rows, self.gap_means)
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise UnfitRows(
                f"`X` holds NaN or infinity in {len(bad)} rows, the first number {bad[0]}; "
                "expected finite numbers. Fill or drop these rows first."
            )
        return project(rows, self.mean, self.scale, self.components)

    def _encoded(self, X: Any) -> Any:
        """Return the rows of a frame as numbers, and anything else as it is."""
        if not hasattr(X, "columns") or (self.table is None and self.feature_names is None):
            return X
        if self.table is None:
            names = list(self.feature_names or ())
            if missing := [name for name in names if name not in X.columns]:
                raise UnfitRows(
                    f"`X` lacks the columns {', '.join(missing[:8])}; expected those that the "
                    f"model was fitted to, {len(names)} in all."
                )
            return X[names]
        # They import pyarrow, which takes a while.
        from storage.tables.new_rows import encode_frame  # noqa: PLC0415
        from storage.tables.schema import TableSchema  # noqa: PLC0415

        return encode_frame(X, TableSchema.from_json(self.table))


def save_model(name: str, model: Model, *, check: Callable[[], None] = lambda: None) -> Path:
    """Save `model` as the model of run `name`, atomically, replacing an earlier one.

    `check` is as for `save_results`. Returns the folder of the model.
    """
    kind = "fit" if model.labels is None else "cluster"
    return save_results(name, kind, check=check, **vars(model))


def load_model(name_or_path: str | Path) -> Model:
    """Load the model of a run by its name, or from the folder that a Path names.

    Raises
    ------
    RunNotFound
        If there is none.
    DamagedStore
        If a file of it is missing or altered.
    """
    path = existing_path(name_or_path) if isinstance(name_or_path, str) else name_or_path
    if not exists_settled(path):
        raise RunNotFound(f"no result at {path}; expected the folder of one that was saved")

    def read() -> Model:
        saved = open_arrays(path, FORMAT_VERSION)
        if saved.record.get("kind") not in MODELS:
            raise RunNotFound(
                f"the run {str(name_or_path)!r} has results but no model; name one of "
                "`ism-dask fit` or `ism-dask cluster`"
            )
        with reading(path, RECORD):
            entries = {each.name: saved.whole[each.name] for each in fields(Model)}
            model: Model = restored(Model, entries)
        return model

    return read_again(path, read)
