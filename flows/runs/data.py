"""Open the rows and labels of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flows.builtin import ingest
from flows.builtin.catalogue import DATASETS
from flows.errors import SettingsError
from flows.progress.watching import progress_note, report_progress
from flows.results.runs import ColumnOfRow, ExplainedRow, IngestResult, column_names
from flows.settings.base import IngestSettings
from flows.settings.choices import label_keys
from flows.settings.fields import split_names
from flows.settings.runs import PREDICTION, SIDES, SavedRunSettings, SearchSettings
from ism_dask.rows.raw import column_contributions, tile_dtype
from ism_dask.selection.rules import RULES
from storage import Dataset, Model, ZarrRows, open_dataset
from storage.dataset import RowSubset
from storage.tables.schema import AUTO, CLASSES, NUMBERS, label_key

Array = NDArray[Any]
RunSettings = TypeVar("RunSettings", bound=SavedRunSettings)

# Without a Dask cluster: rows of at most so many bytes are read into memory once. Larger data are
# read from disk tile by tile.
_IN_MEMORY = 2**30
# With a Dask cluster: rows of at most so many bytes are sent inside the tasks. For larger data the
# tasks contain only the path, and the workers read the rows.
_IN_TASKS = 2**26
_ROWS_PER_READ = 4096


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """A stored data set with one of its labels, or with several that are numbers."""

    data: Dataset
    label: str  # the name; of several labels, separated by commas
    y: Array  # (n,) or (n, t) class codes, or real numbers

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The name of each class code, if the data set has class names."""
        return None if self.y.dtype.kind == "f" else self.data.class_names.get(self.label)

    def read_as(self, target: str) -> LabelledDataset:
        """Return the data set with the label as `target` reads it: as it is, or as numbers.

        Classes of a table are read as the numbers that they are named by. The codes of a built-in
        data set are the numbers of its raw files. Raise a SettingsError for classes of other names.
        """
        names = self.class_names
        is_built_in = self.data.info.name in DATASETS
        if names is None or is_built_in or target_of(self.y, target) == "classes":
            return self
        with suppress(ValueError):
            values = np.array(names, dtype=np.float64)
            if np.isfinite(values).all():
                return replace(self, y=values[self.y])
        raise SettingsError(
            f"`label` has {self.label!r}, whose classes are {', '.join(names[:5])}; expected "
            "finite numbers for this `target`, or for several labels. Choose another label, or "
            "leave these out",
            "label",
            "target",
        )

    @property
    def classes(self) -> Array:
        """The class code of each row; raises SettingsError if the label is numeric."""
        if target_of(self.y) != "classes":
            raise SettingsError(
                f"`label` is {self.label!r}, numbers from {self.y.min():g} to {self.y.max():g}; "
                "expected classes. Choose another label",
                "label",
            )
        return self.y

    @property
    def class_sizes(self) -> Array:
        """Number of rows of each class, without empty classes."""
        sizes: Array = np.unique(self.classes, return_counts=True)[1]
        return sizes

    def names_of(self, codes: Array) -> tuple[str, ...]:
        """Return the names of classes by their codes, which stand for names if there are none."""
        names = self.class_names
        return tuple(str(code) if names is None else names[code] for code in codes)

    def count_components(self, settings: SearchSettings) -> int | None:
        """Return the number of new features: q if given, else the number of classes less one.

        None if the fit chooses it, or counts the columns of numbers.
        """
        d = self.data.X.shape[1]
        if settings.n_components is None:
            if target_of(self.y, settings.target) != "classes":
                return None
            default = max(len(self.class_sizes) - 1, 1)
            if settings.criterion == PREDICTION and default <= RULES.most_features:
                return None
            return min(default, d - 1)
        return settings.n_components

    def default_name(self, settings: SearchSettings) -> str:
        """Return the default name of a run, such as wine-gaussian-q2."""
        kernel, q = settings.kernel.replace("_", "-"), self.count_components(settings)
        return f"{self.data.info.folder}-{kernel}" + ("" if q is None else f"-q{q}")

    def facts(self, settings: SearchSettings) -> dict[str, Any]:
        """Return what the data say of a run, as `resumable_run` takes it."""
        q = self.count_components(settings)
        classes = f", {len(self.class_sizes)} classes" if target_of(self.y) == "classes" else ""
        return {
            "known": {"data_hash": self.data.data_hash, "label": self.label},
            "size": {"n_components": q},
            "about": f"{describe_rows(self.data)}, label {self.label}{classes}; "
            f"new features q: {'to be chosen' if q is None else q}",
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


def store_dataset(settings: IngestSettings) -> IngestResult:
    """Store a data set unless it is stored already, and verify it."""
    if settings.is_table:
        # It imports pyarrow, which what is stored already does not need.
        from flows.runs.table_ingestion import ingest_table  # noqa: PLC0415

        return ingest_table(settings)
    data = ensure_stored(settings.dataset, settings.split, force=settings.force, weight=1.0)
    splits = DATASETS[data.name].splits if data.name in DATASETS else {}
    if others := [name for name in splits if name != data.split and settings.split is None]:
        progress_note(f"{data.name} has other rows, too: --split {' or '.join(others)} stores them")
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


def store_for_run(settings: RunSettings) -> tuple[RunSettings, Dataset]:
    """Store the data set of a run unless it is stored already, and return it opened.

    The settings are returned as well, with the name of the data set if they have the path of a
    table.
    """
    if not settings.is_table:
        return settings, ensure_stored(settings.dataset, settings.split)
    # Else a label to avoid would be the one that clusters are compared with.
    needs_label = isinstance(settings, SearchSettings) or bool(settings.sides)
    target = getattr(settings, "target", AUTO)
    kind = target if target in (AUTO, CLASSES) else NUMBERS
    names = tuple(dict.fromkeys((*split_names(settings.label), *settings.sides)))
    if needs_label and settings.label is None:
        names = ()  # which is an error, unless the table is stored with a label already
    from flows.runs.table_ingestion import store_labelled  # noqa: PLC0415

    data = store_labelled(settings.dataset, names, kind, needs_label=needs_label)
    return replace(settings, dataset=data.info.folder, label=label_keys(settings.label)), data


def label_of(data: Dataset, settings: SearchSettings) -> LabelledDataset:
    """Return the data set of a run with the label that its settings name."""
    if not data.labels:
        raise SettingsError(
            f"{data.name} has no labels that W could be fitted to; ingest its table with --label"
        )
    labelled = with_label(data, settings.label, target=settings.target)
    check_columns(settings, data)
    labelled.count_components(settings)  # for its error: a label of numbers has no classes
    if settings.balanced and target_of(labelled.y, settings.target) != "classes":
        raise SettingsError(
            f"`balanced` is for classes, but the label {labelled.label!r} is read as numbers: "
            "leave it out, or choose another label",
            "balanced",
        )
    return labelled


def check_columns(settings: SavedRunSettings, data: Dataset) -> None:
    """Raise a SettingsError if a fit to the data cannot have, or use, so many features."""
    d = data.X.shape[1]
    for name, most in (("n_components", d - 1), ("max_features", d)):
        wanted = getattr(settings, name, None)
        if isinstance(wanted, int) and wanted > most > 0:  # no fit takes one column, and says so
            raise SettingsError(
                f"`{name}` is {wanted}; {data.name} has {d} columns, expected 1 to {most}", name
            )


def with_label(
    data: Dataset, name: str | None, setting: str = "label", target: str | None = None
) -> LabelledDataset:
    """Return a data set with the label `name`, by default its own default label.

    `setting` is the name of the setting that the error message mentions. With a `target`, labels
    are read as it says: classes that are named by numbers are numbers to a target of numbers.
    """
    label = data.info.default_label if name is None else name
    names = tuple(_label_name(each, setting, data) for each in split_names(label) or (label,))
    columns = [LabelledDataset(data, each, data.labels[each]) for each in names]
    if target is not None:  # several can only be numbers
        columns = [each.read_as(target if len(names) == 1 else NUMBERS) for each in columns]
    if len(columns) == 1:
        return columns[0]
    classes = [each.label for each in columns if target_of(each.y) == "classes"]
    if classes:
        raise SettingsError(
            f"`{setting}` has {classes[0]!r}, whose values are classes; expected one label, or "
            "several that are numbers",
            setting,
        )
    return LabelledDataset(data, ",".join(names), np.column_stack([each.y for each in columns]))


def _label_name(name: str | None, setting: str, data: Dataset) -> str:
    """Return the name of a label in the data set; raise a SettingsError if it has no such label."""
    for key in (name, label_key(name or "")):
        if key in data.labels:
            return key
    labels, advice = ", ".join(data.labels) or "no labels", ""
    if data.info.table is not None:
        advice = ". A column of a table is one if --label or --avoid named it when it was stored"
    raise SettingsError(f"`{setting}` is {name!r}; {data.name} has {labels}{advice}", setting)


def side_labels(settings: SearchSettings, labelled: LabelledDataset) -> Mapping[str, Array]:
    """Return labels (n,) or (n, t) beside the one to explain, by the argument of `fit`.

    They are what a fit is to avoid, or is given, and groups of rows.
    """
    return {
        side: _side_columns(side, names, labelled)
        for side in SIDES
        if (names := split_names(getattr(settings, side)))
    }


def _side_columns(side: str, names: tuple[str, ...], labelled: LabelledDataset) -> Array:
    """Return the values (n,) or (n, t) of labels: texts if they are classes, else numbers."""
    data, columns = labelled.data, []
    for name in names:
        key = _label_name(name, side, data)
        if key in split_names(labelled.label):
            raise SettingsError(
                f"`{side}` has {key!r}, which is the label to explain; expected another one", side
            )
        values = data.labels[key]
        columns.append(values.astype(str) if target_of(values) == "classes" else values)
    # As objects, columns of one array can hold classes beside numbers.
    several = [each.astype(object) for each in columns]
    return columns[0] if len(columns) == 1 else np.column_stack(several)


def row_batches(X: Any) -> Iterator[tuple[int, Array]]:
    """Yield rows from memory or from disk in batches, each after the number of its first row."""
    for start in range(0, len(X), _ROWS_PER_READ):
        yield start, _some_rows(X, start, min(start + _ROWS_PER_READ, len(X)))


def _some_rows(X: Any, start: int, stop: int) -> Array:
    return np.asarray(X[start:stop] if isinstance(X, np.ndarray) else X.read(start, stop))


def explained_row(model: Model, X: Any, row: int, count: int | None = None) -> ExplainedRow:
    """Return what the columns of one of the rows X add to its new features; `count` if given."""
    values = _some_rows(X, row, row + 1).astype(np.float64)
    added = column_contributions(values, model.mean, model.scale, model.components)[0]
    names, largest = column_names(model, len(added)), np.abs(added).max(axis=1)
    columns = [
        ColumnOfRow(feature=names[j], value=float(values[0, j]), added=tuple(added[j].tolist()))
        for j in np.argsort(-largest, kind="stable")[:count]
    ]
    sums = tuple(added.sum(axis=0).tolist())
    return ExplainedRow(row=row, new_features=sums, n_columns=len(added), columns=tuple(columns))


def target_of(y: Array, target: str = "auto") -> str:
    """Return the target for labels y (n,) or (n, t): with "auto", whole numbers are classes."""
    if target != "auto":
        return target
    return "classes" if y.ndim == 1 and y.dtype.kind in "ui" else "numbers"


def describe_rows(data: Dataset) -> str:
    """Return the name, size and digest of a data set in words."""
    n, d = data.X.shape
    return f"{data.name}, {n:,} rows, {d:,} columns, digest {data.data_hash[:12]}"


def read_rows(X: ZarrRows, settings: SavedRunSettings) -> Any:
    """Return the rows as an array, or, if they are too large for that, as they are on disk."""
    n, d = X.shape
    size = n * d * tile_dtype(X.dtype).itemsize
    if size <= (_IN_MEMORY if settings.scheduler is None else _IN_TASKS):
        return X.read(0, n)
    if settings.scheduler is not None:
        from flows.compute.connection import check_files_visible  # noqa: PLC0415

        check_files_visible(X.root)
    return X


def rows_at(X: Any, chosen: Array) -> Any:
    """Return those of the rows X, in memory or on disk, with the ascending numbers `chosen`."""
    return X[chosen] if isinstance(X, np.ndarray) else RowSubset.of(X, chosen)
