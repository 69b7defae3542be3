"""What data sets there are: those of the registry, and others that are stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from storage import DATASETS, DatasetSpec, StoredDataset, dataset_path, list_datasets


@dataclass(frozen=True)
class Entry:
    """One split of a data set.

    Attributes
    ----------
    name, title, split : str
    rows, columns : int or None
        None for a damaged one.
    labels : dict of str to (int or None)
        Number of classes of each label, None where only the stored data could tell.
    bytes : int or None
        On disk; None when it is not stored.
    problem : str
        Empty, or what is wrong with the stored one.
    """

    name: str
    title: str
    split: str
    rows: int | None
    columns: int | None
    labels: dict[str, int | None] = field(default_factory=dict)
    bytes: int | None = None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {**asdict(self), "stored": self.bytes is not None}

    def cells(self) -> list[str]:
        """Return a row of the table."""
        labels = [name if k is None else f"{name} ({k})" for name, k in self.labels.items()]
        size = "no" if self.bytes is None else f"{self.bytes / 2**20:.2f} MiB"
        return [
            self.name,
            self.split,
            ", ".join(labels) or "none",
            self.title,
            _count(self.rows),
            _count(self.columns),
            "damaged" if self.problem else size,
        ]


def catalogue() -> list[Entry]:
    """Return an entry for each split of the registry, and for each other stored data set."""
    stored = {line.folder: line for line in list_datasets()}
    entries = [
        _registered(spec, split, stored.pop(dataset_path(spec.name, split).name, None))
        for spec in DATASETS.values()
        for split in spec.splits
    ]
    return [*entries, *map(_other, stored.values())]


def _registered(spec: DatasetSpec, split: str, line: StoredDataset | None) -> Entry:
    default: dict[str, int | None] = {spec.default_label: None} if spec.default_label else {}
    return Entry(
        name=spec.name,
        title=spec.title,
        split=split,
        rows=spec.splits[split].rows,
        columns=spec.columns,
        labels=_labels(line) or default,
        bytes=line.bytes if line else None,
        problem=line.problem if line else "",
    )


def _other(line: StoredDataset) -> Entry:
    rows, columns = line.shape or (None, None)
    title, split = (line.info.source, line.info.split) if line.info else ("", "")
    return Entry(line.folder, title, split, rows, columns, _labels(line), line.bytes, line.problem)


def _labels(line: StoredDataset | None) -> dict[str, int | None]:
    if line is None or line.info is None:
        return {}
    return {name: len(classes) for name, classes in line.info.class_names.items()}


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
