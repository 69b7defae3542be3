"""Open the rows and labels of a data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flows.builtin import ingest
from flows.builtin.catalogue import DATASETS, folder_of
from flows.compute.checks import check_files_visible
from flows.errors import SettingsError
from flows.interface.progress import report_progress
from flows.results.base import IngestResult
from flows.runs.published import dated_name
from flows.settings.base import IngestSettings
from flows.settings.choices import label_keys
from flows.settings.runs import PREDICTION, SIDES, NamedRunSettings, SearchSettings, Settings
from ism_dask.rows.standardise import tile_dtype
from ism_dask.selection.dimension import MOST_FEATURES
from storage import Dataset, ZarrRows, open_dataset
from storage.tables.files import check_pyarrow

Array = NDArray[Any]
RunSettings = TypeVar("RunSettings", bound=NamedRunSettings)

# Without a Dask cluster: rows of at most so many bytes are read into memory once. Larger data are
# read from disk tile by tile.
_IN_MEMORY = 2**30
# With a Dask cluster: rows of at most so many bytes are sent inside the tasks. For larger data the
# tasks contain only the path, and the workers read the rows.
_IN_TASKS = 2**26


@dataclass(frozen=True)
class RowSubset:
    """A subset of the rows of a stored matrix, which any process can read from disk by itself.

    Attributes
    ----------
    source : ZarrRows
        (n, d) rows.
    bits : bytes
        A bit mask over the rows of the source: 1 for those in the subset. It is this small
        because every Dask task contains it.
    """

    source: ZarrRows
    bits: bytes

    @classmethod
    def of(cls, source: ZarrRows, rows: Array) -> RowSubset:
        """Return the subset of the rows with the numbers `rows`, which ascend."""
        mask = np.zeros(len(source), dtype=bool)
        mask[rows] = True
        return cls(source, np.packbits(mask).tobytes())

    @property
    def rows(self) -> Array:
        """Numbers of the rows in the source, ascending."""
        return _row_numbers(self.bits)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows in the subset, and of columns."""
        return len(self.rows), self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored matrix."""
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        """Rows in a chunk of the stored matrix."""
        return self.source.chunk_rows

    def read(self, start: int, stop: int) -> Array:
        """Return the rows of the subset from `start` to `stop` (not included)."""
        rows = self.rows[start:stop]
        if len(rows) == 0:
            return self.source.read(0, 0)
        first, last = int(rows[0]), int(rows[-1])
        values: Array = self.source.read(first, last + 1)[rows - first]
        return values


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """A stored data set with one of its labels, or with several that are numbers.

    Attributes
    ----------
    data : Dataset
    label : str
        Name of the label; of several, separated by commas.
    y : (n,) or (n, t) array
        Integer class codes, or real numbers.
    """

    data: Dataset
    label: str
    y: Array

    @property
    def first_y(self) -> Array:
        """The first label (n,), by which pictures show the rows."""
        return self.y if self.y.ndim == 1 else self.y[:, 0]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The name of each class code, if the data set has class names."""
        return None if self.y.dtype.kind == "f" else self.data.class_names.get(self.label)

    def read_as(self, target: str) -> LabelledDataset:
        """Return the data set with the label as `target` reads it: as it is, or as numbers."""
        return self if target_of(self.y, target) == "classes" else self.as_numbers()

    def as_numbers(self) -> LabelledDataset:
        """Return the data set with the numbers that its classes are named by as the label.

        The codes of a built-in data set are the numbers of its raw files. Raises a SettingsError if
        the classes of a table have other names.
        """
        names = self.class_names
        if names is None or self.data.info.name in DATASETS:
            return self
        values = np.array([_number(name) for name in names])
        wrong = np.flatnonzero(np.isnan(values))
        if len(wrong):
            raise SettingsError(
                f"`label` is {self.label!r}, whose classes have names such as "
                f"{names[wrong[0]]!r}; expected numbers that are finite for this `target`. Leave "
                "`target` out, or choose another label"
            )
        return replace(self, y=values[self.y])

    @property
    def classes(self) -> Array:
        """The class code of each row; raises SettingsError if the label is numeric."""
        if target_of(self.y) != "classes":
            raise SettingsError(
                f"`label` is {self.label!r}, numbers from {self.y.min()} to {self.y.max()}; "
                "expected classes. Choose another label"
            )
        return self.y

    @property
    def class_sizes(self) -> Array:
        """Number of rows of each class, without empty classes."""
        sizes: Array = np.unique(self.classes, return_counts=True)[1]
        return sizes

    def count_components(self, settings: SearchSettings) -> int | None:
        """Return the number of new features: q if given, else the number of classes less one.

        None if the fit chooses it, or counts the columns of numbers.
        """
        d = self.data.X.shape[1]
        if settings.n_components is None:
            if target_of(self.y, settings.target) != "classes":
                return None
            default = max(len(self.class_sizes) - 1, 1)
            if settings.criterion == PREDICTION and default <= MOST_FEATURES:
                return None
            return min(default, d - 1)
        if settings.n_components >= d:
            raise SettingsError(
                f"`n_components` is {settings.n_components}; {self.data.name} has {d} columns, "
                f"expected 1 to {d - 1}"
            )
        return settings.n_components

    @property
    def identity(self) -> dict[str, Any]:
        """Digest of the data and name of the label, which decide a result beside the settings."""
        return {"data_hash": self.data.data_hash, "label": self.label}

    def default_name(self, settings: SearchSettings) -> str:
        """Return the default name of a run, such as wine-gaussian-q2."""
        kernel, q = settings.kernel.replace("_", "-"), self.count_components(settings)
        return f"{self.data.info.folder}-{kernel}" + ("" if q is None else f"-q{q}")

    def describe(self, settings: SearchSettings) -> str:
        """Return the data of a run in one line, for its log."""
        q = self.count_components(settings)
        classes = f", {len(self.class_sizes)} classes" if target_of(self.y) == "classes" else ""
        return (
            f"data: {describe_rows(self.data)}, label {self.label}{classes}; "
            f"new features q: {'to be chosen' if q is None else q}"
        )

    def facts(self, settings: SearchSettings) -> dict[str, Any]:
        """Return the fields of a result that describe data and kernel, but for q."""
        return {
            "dataset": settings.dataset,
            "split": self.data.split,
            "label": self.label,
            "rows": len(self.data.X),
            "columns": self.data.X.shape[1],
            "kernel": settings.kernel,
            "data_hash": self.data.data_hash,
            "settings": settings.to_json(),
        }


def ensure_stored(
    dataset: str, split: str | None, *, force: bool = False, weight: float = 0.0
) -> Dataset:
    """Ingest a data set of the registry unless it is stored already; others must be stored.

    `weight` is the share of the reported progress that the ingestion makes up.
    """
    if dataset not in DATASETS:
        return open_dataset(dataset)

    def written(done: int, rows: int) -> None:
        report_progress(weight * done / rows, f"ingest {dataset}, {done:,} of {rows:,} rows")

    return ingest(dataset, split, force=force, progress=written)


def store_for_run(settings: RunSettings) -> tuple[RunSettings, Dataset]:
    """Store the data set of a run unless it is stored already, and return it opened.

    The settings are returned as well, with the name of the data set if they have the path of a
    table, and with the date in the name of the run if earlier runs stay.
    """
    if settings.run is not None and settings.keep_runs is not None:
        settings = replace(settings, run=dated_name(settings.run, force=settings.force))
    if not settings.is_table:
        return settings, ensure_stored(settings.dataset, settings.split)
    check_pyarrow()
    # They import pyarrow, an extra.
    from flows.runs.table_ingestion import store_labelled  # noqa: PLC0415
    from storage.tables.schema import AUTO, CLASSES, NUMBERS  # noqa: PLC0415

    names, sides = label_names(settings.label or ""), _side_names(settings)
    target = getattr(settings, "target", AUTO)
    kind = target if target in (AUTO, CLASSES) else NUMBERS
    # `target` is that of the label alone.
    data = store_labelled(settings.dataset, names + sides, AUTO if sides else kind)
    return replace(settings, dataset=data.info.folder, label=label_keys(settings.label)), data


def _side_names(settings: NamedRunSettings) -> tuple[str, ...]:
    """Return the columns of a table that are labels to avoid, or that are given."""
    if not isinstance(settings, SearchSettings):
        return ()
    names = label_names(",".join(getattr(settings, side) or "" for side in SIDES))
    if names and settings.label is None:
        raise SettingsError(
            f"`label` is None, and {', '.join(names)} are to be avoided or given; name the column "
            "to explain with --label"
        )
    return names


def open_labelled(settings: SearchSettings) -> LabelledDataset:
    """Open the data set of a run with the label that its settings name."""
    return label_of(open_dataset(folder_of(settings.dataset, settings.split)), settings)


def label_of(data: Dataset, settings: SearchSettings) -> LabelledDataset:
    """Return the data set of a run with the label that its settings name."""
    if not data.labels:
        raise SettingsError(f"{data.name} has no labels that W could be fitted to")
    labelled = with_label(data, settings.label, target=settings.target)
    labelled.count_components(settings)  # called for its error, which says that q is too large
    return labelled


def with_label(
    data: Dataset, name: str | None, setting: str = "label", target: str | None = None
) -> LabelledDataset:
    """Return a data set with the label `name`, by default its own default label.

    `setting` is the name of the setting that the error message mentions. With a `target`, labels
    are read as it says: classes that are named by numbers are numbers to a target of numbers.
    """
    label = data.info.default_label if name is None else name
    names = label_names(label or "")
    unknown = [each for each in names if each not in data.labels]
    if unknown or not names:
        labels = ", ".join(data.labels) or "no labels"
        wrong = label if len(names) < 2 else unknown[0]
        raise SettingsError(f"`{setting}` is {wrong!r}; {data.name} has {labels}")
    columns = [LabelledDataset(data, each, data.labels[each]) for each in names]
    if target is not None:
        columns = [each.read_as(target) for each in columns]
    if len(columns) == 1:
        return columns[0]
    classes = [each.label for each in columns if target_of(each.y) == "classes"]
    if classes:
        raise SettingsError(
            f"`{setting}` has {classes[0]!r}, whose values are classes; expected one label, or "
            "several that are numbers"
        )
    return LabelledDataset(data, ",".join(names), np.column_stack([each.y for each in columns]))


def _number(name: str) -> float:
    """Return the number that a class is named by; NaN if it is none, or is not finite."""
    try:
        value = float(name)
    except ValueError:
        return np.nan
    return value if np.isfinite(value) else np.nan


def label_names(text: str) -> tuple[str, ...]:
    """Return the names of labels in a text that separates them by commas."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def describe_rows(data: Dataset) -> str:
    """Return the name, size and digest of a data set in words."""
    n, d = data.X.shape
    return f"{data.name}, {n:,} rows, {d:,} columns, digest {data.data_hash[:12]}"


def read_rows(X: ZarrRows, settings: Settings, chosen: Array | None = None) -> Any:
    """Return all rows, or those with the ascending numbers `chosen`.

    Returns
    -------
    An array, or, for data too large for that, an object that reads the rows from disk.
    """
    n = len(X) if chosen is None else len(chosen)
    size = n * X.shape[1] * tile_dtype(X.dtype).itemsize
    if size > (_IN_MEMORY if settings.scheduler is None else _IN_TASKS):
        if settings.scheduler is not None:
            check_files_visible(X.root)
        return X if chosen is None else RowSubset.of(X, chosen)
    rows = X.read(0, len(X))
    return rows if chosen is None else rows[chosen]


def target_of(y: Array, target: str = "auto") -> str:
    """Return the target for labels y (n,) or (n, t): with "auto", whole numbers are classes."""
    if target != "auto":
        return target
    return "classes" if y.ndim == 1 and y.dtype.kind in "ui" else "numbers"


@lru_cache(maxsize=4)
def _row_numbers(bits: bytes) -> Array:
    # Cached here, not in `RowSubset`: every Dask task would contain the numbers, too.
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8)))


def store(settings: IngestSettings) -> IngestResult:
    """Store a data set unless it is stored already, and verify it."""
    if settings.is_table:
        check_pyarrow()
        from flows.runs.table_ingestion import ingest_table  # noqa: PLC0415 - imports pyarrow

        return ingest_table(settings)
    data = ensure_stored(settings.dataset, settings.split, force=settings.force, weight=1.0)
    # A user who runs `ingest` wants to know that the data are undamaged, not only that they exist.
    data.X.verify()
    rows, columns = data.X.shape
    return IngestResult(
        dataset=data.name,
        split=data.split,
        rows=rows,
        columns=columns,
        labels={label: len(names) for label, names in data.class_names.items()},
        data_hash=data.data_hash,
        path=str(data.path),
    )
