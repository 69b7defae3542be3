"""The rows and labels of a run, and the fit of W that every run makes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.compute.checks import check_files_visible
from flows.errors import SettingsError
from flows.interface.fit_progress import watched_fit
from flows.interface.progress import ProgressShare, report_progress
from flows.settings.base import IngestSettings
from flows.settings.runs import NO_SELECTION, SearchSettings, Settings
from ism_dask import SupervisedIKDR
from ism_dask.estimators.base import IKDR
from ism_dask.observe.fit_events import FitWatcher, watching_fits
from ism_dask.records.stopping import Stopping
from ism_dask.rows.standardise import tile_dtype
from ism_dask.solvers import as_solver
from storage import DATASETS, Dataset, ZarrRows, ingest, open_dataset

Array = NDArray[Any]

# Rows up to this size are read once. Larger ones are read tile by tile, from disk.
_IN_MEMORY = 2**30
# With a cluster, rows up to this size travel inside tasks; of larger ones only the path does.
_IN_TASKS = 2**26


@dataclass(frozen=True)
class Picked:
    """Some rows of a stored matrix, seen as rows that any process can read by itself.

    Attributes
    ----------
    source : ZarrRows
        (n, d) rows.
    bits : bytes
        One bit for each row of the source: which are picked. Small, for it goes with each task.
    """

    source: ZarrRows
    bits: bytes

    @classmethod
    def of(cls, source: ZarrRows, rows: Array) -> Picked:
        """Return the rows numbered `rows`, which rise."""
        mask = np.zeros(len(source), dtype=bool)
        mask[rows] = True
        return cls(source, np.packbits(mask).tobytes())

    @property
    def rows(self) -> Array:
        """Numbers in the source of the rows."""
        return _numbers(self.bits)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows picked, and columns."""
        return len(self.rows), self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        """That of the source."""
        return self.source.chunk_rows

    def read(self, start: int, stop: int) -> Array:
        """Return the picked rows `start` to `stop` (not included)."""
        rows = self.rows[start:stop]
        if len(rows) == 0:
            return self.source.read(0, 0)
        first, last = int(rows[0]), int(rows[-1])
        picked: Array = self.source.read(first, last + 1)[rows - first]
        return picked


@dataclass(frozen=True, eq=False)
class Labelled:
    """A stored data set with the label that was chosen.

    Attributes
    ----------
    data : Dataset
    label : str
    y : (n,) array
        Integer codes, or numbers.
    """

    data: Dataset
    label: str
    y: Array

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The name of each code, where the data set has them."""
        return self.data.class_names.get(self.label)

    @property
    def classes(self) -> Array:
        """The class of each row; an error where the label is numbers."""
        if target_of(self.y) != "classes":
            raise SettingsError(
                f"`label` is {self.label!r}, numbers from {self.y.min()} to {self.y.max()}; "
                "expected classes. Choose another label"
            )
        return self.y

    @property
    def class_sizes(self) -> Array:
        """Rows of each class that has any."""
        sizes: Array = np.unique(self.classes, return_counts=True)[1]
        return sizes

    def components(self, settings: SearchSettings) -> int | None:
        """Return how many new features there will be: q if given, or the classes less one.

        None where the label is numbers, of which a fit sees how many there are to be.
        """
        d = self.data.X.shape[1]
        if settings.n_components is None:
            if target_of(self.y, settings.target) != "classes":
                return None
            return min(max(len(self.class_sizes) - 1, 1), d - 1)
        if settings.n_components >= d:
            raise SettingsError(
                f"`n_components` is {settings.n_components}; {self.data.name} has {d} columns, "
                f"expected 1 to {d - 1}"
            )
        return settings.n_components

    @property
    def identity(self) -> dict[str, Any]:
        """What the result of a run depends on, beside its settings, in plain JSON."""
        return {"data_hash": self.data.data_hash, "label": self.label}

    def default_name(self, settings: SearchSettings) -> str:
        """Return what a run is called by default, such as wine-gaussian-q2."""
        kernel, q = settings.kernel.replace("_", "-"), self.components(settings)
        return f"{self.data.info.folder}-{kernel}" + ("" if q is None else f"-q{q}")

    def facts(self, settings: SearchSettings) -> dict[str, Any]:
        """Return what the summary of any run says of its data and kernel."""
        return {
            "dataset": settings.dataset,
            "split": self.data.split,
            "label": self.label,
            "rows": len(self.data.X),
            "columns": self.data.X.shape[1],
            "kernel": settings.kernel,
            "n_components": self.components(settings),
            "data_hash": self.data.data_hash,
            "settings": settings.to_json(),
        }


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted W and the seconds that the fit took."""

    model: IKDR
    seconds: float

    @property
    def account(self) -> dict[str, Any]:
        """How W was found and how far it can be trusted, in plain JSON but for infinity."""
        model = self.model
        return {
            "seconds": self.seconds,
            "iterations": int(model.n_iter_),
            "converged": bool(model.converged_),
            "status": model.status_.value,
            "residual": float(model.residual_),
            "residual_rows": int(model.residual_rows_),
            "engine": model.engine_,
            "engine_error": float(model.engine_error_),
            "engine_note": model.engine_note_,
        }


def ensure_stored(
    dataset: str, split: str | None, *, force: bool = False, weight: float = 0.0
) -> Dataset:
    """Ingest a data set of the registry unless it is stored; others have to be stored.

    `weight` is how much of the work that is watched the ingestion makes.
    """
    if dataset not in DATASETS:
        return open_dataset(dataset, split)

    def written(done: int, rows: int) -> None:
        report_progress(weight * done / rows, f"ingest {dataset}, {done:,} of {rows:,} rows")

    return ingest(dataset, split, force=force, progress=written)


def open_labelled(settings: SearchSettings) -> Labelled:
    """Open the data set of a run with its label."""
    data = open_dataset(settings.dataset, settings.split)
    if not data.labels:
        raise SettingsError(f"{data.name} has no labels that W could be fitted to")
    labelled = label_named(data, settings.label)
    labelled.components(settings)  # an error where q is too many for these columns
    return labelled


def label_named(data: Dataset, name: str | None, setting: str = "label") -> Labelled:
    """Return a data set with the label that a setting names, its own for None."""
    label = data.info.default_label if name is None else name
    if label is None or label not in data.labels:
        known = ", ".join(data.labels) or "no labels"
        raise SettingsError(f"`{setting}` is {label!r}; {data.name} has {known}")
    return Labelled(data, label, data.labels[label])


def read_rows(X: ZarrRows, settings: Settings, chosen: Array | None = None) -> Any:
    """Return all rows, or those numbered `chosen`, rising: an array, or for many a view of them."""
    n = len(X) if chosen is None else len(chosen)
    size = n * X.shape[1] * tile_dtype(X.dtype).itemsize
    if size > (_IN_MEMORY if settings.scheduler is None else _IN_TASKS):
        if settings.scheduler is not None:
            check_files_visible(X.root)
        return X if chosen is None else Picked.of(X, chosen)
    rows = X.read(0, len(X))
    return rows if chosen is None else rows[chosen]


def target_of(y: Array, target: str = "auto") -> str:
    """Return the target for a label y (n,): with "auto", whole numbers are codes of classes."""
    if target != "auto":
        return target
    return "classes" if y.dtype.kind in "ui" else "multiscale"


def stopping_of(settings: Settings) -> Stopping:
    """Return when the iterations of a fit end."""
    asked = settings.tol, settings.angle_tol, settings.max_iter, settings.max_seconds
    return as_solver(settings.solver).stopping(*asked)


def shared_parameters(settings: Settings) -> dict[str, Any]:
    """Return the parameters that all estimators have, but for the number of components."""
    return {
        "kernel": settings.build_kernel(),
        "solver": settings.solver,
        "engine": settings.engine,
        "engine_tol": settings.engine_tol,
        "tol": settings.tol,
        "angle_tol": settings.angle_tol,
        "max_iter": settings.max_iter,
        "max_seconds": settings.max_seconds,
        "random_state": settings.seed,
    }


class _Summarised(FitWatcher):
    """Every summary has `converged` and the eigenvalues, and the commands say so in words."""

    tells_endings = True


def timed_fit(model: IKDR, X: Any, y: Any) -> Fitted:
    """Fit a model, looking at the clock."""
    with watching_fits(_Summarised()):
        started = time.perf_counter()
        model.fit(X, y)
        return Fitted(model, time.perf_counter() - started)


def fit(settings: SearchSettings, X: Any, y: Array, part: ProgressShare) -> Fitted:
    """Fit W to rows X (n, d) and labels y (n,), as a part of the work that is watched."""
    selection = None if settings.selection == NO_SELECTION else settings.selection
    with watched_fit(part, stopping_of(settings)) as on_iteration:
        model = SupervisedIKDR(
            settings.n_components,
            target=target_of(y, settings.target),
            whiten=settings.whiten,
            selection=selection,
            n_init=settings.n_init,
            continuation=settings.continuation,
            refine=settings.refine,
            on_iteration=on_iteration,
            **shared_parameters(settings),
        )
        return timed_fit(model, X, y)


@lru_cache(maxsize=4)
def _numbers(bits: bytes) -> Array:
    # Apart from `Picked`, which would carry them along inside every task.
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8)))


def store(settings: IngestSettings) -> dict[str, Any]:
    """Store a data set unless it is stored, check what is there, and return a summary in JSON."""
    data = ensure_stored(settings.dataset, settings.split, force=settings.force, weight=1.0)
    # Who asks for it by name wants to know that it is whole, not only that it is there.
    data.X.verify()
    rows, columns = data.X.shape
    return {
        "command": "ingest",
        "dataset": data.name,
        "split": data.split,
        "rows": rows,
        "columns": columns,
        "labels": {label: len(names) for label, names in data.class_names.items()},
        "data_hash": data.data_hash,
        "path": str(data.path),
    }
