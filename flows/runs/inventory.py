"""List the data sets of the registry and those stored, and check files for damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from flows.builtin.catalogue import DATASETS, DatasetSpec, folder_of
from flows.errors import FlowError, SettingsError
from flows.interface.progress import ProgressShare
from flows.runs.published import History
from flows.services.leases import find_lease, list_leases
from flows.settings.choices import check_run_name
from flows.text import byte_size
from storage import (
    DatasetNotFound,
    Problem,
    StorageError,
    StoredDataset,
    StoredItem,
    UnsafeName,
    list_datasets,
    open_run,
    refreshed_names,
    remove_dataset,
    remove_run,
    run_folder,
    stored_items,
)
from storage.errors import did_you_mean
from storage.runs import run_not_found
from storage.tables.schema import NUMBERS, label_key


@dataclass(frozen=True)
class DatasetEntry:
    """One split of a data set, as the command `datasets` lists it.

    Attributes
    ----------
    name, title, split : str
    rows, columns : int or None
        None if the stored data set is damaged.
    labels : dict of str to (int or None)
        Number of classes of each label; None for numbers, and if only stored data would show it.
    bytes : int or None
        Size on disk; None if the split is not stored.
    problem : str
        The damage to the stored data set; empty if there is none.
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
        """Return the cells of its row in the table of data sets."""
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


def find_entries(name: str) -> list[DatasetEntry]:
    """Return the entries of a data set, one for each split; raise a SettingsError for no such."""
    entries = [entry for entry in list_entries() if entry.name == name]
    if not entries:
        names = sorted({entry.name for entry in list_entries()})
        raise SettingsError(
            f"no data set {name!r}; {did_you_mean(name, names)}expected one of {', '.join(names)}"
        )
    return entries


def remove_stored(name: str, *, force: bool = False) -> Path:
    """Remove a stored data set; raise a FlowError while a run reads it.

    The same is raised if it is the data set of a refresh, unless `force` allows it.
    """
    for lease in list_leases():
        if lease.held and lease.settings.get("dataset") == name:
            raise FlowError(f"{lease.description} and reads {name!r}: stop it first")
    refreshed = [] if force else [run for run in refreshed_names() if _is_fitted_to(run, name)]
    if refreshed:
        raise FlowError(
            f"`ism-dask refresh` fits {', '.join(map(repr, refreshed))} to {name!r}; remove it all "
            "the same with --force: the next refresh that has to fit reads the whole table again"
        )
    try:
        return remove_dataset(name)
    except (DatasetNotFound, UnsafeName) as error:
        raise SettingsError(str(error)) from error


def remove_saved_run(name: str, *, confirm: Callable[[str], bool]) -> Path:
    """Remove a run with all its files, finished or not, and return the folder that it had.

    Parameters
    ----------
    name : str
    confirm : callable
        Called for a run that is published or belongs to a refresh, with the reason not to remove
        it. Returns whether to remove the run all the same.

    Raises
    ------
    SettingsError
        If there is no such run.
    FlowError
        If a process computes it, or if `confirm` returns False.
    """
    check_run_name(name)
    folder = run_folder(name)
    if not folder.exists():
        raise SettingsError(str(run_not_found(name)))
    lease = find_lease(name)
    if lease is not None and lease.held:
        raise FlowError(f"{lease.description}: stop it first")
    reason = _use_of_run(name)
    if reason and not confirm(reason):
        raise FlowError(f"{reason}; it was not removed (--yes removes it all the same)")
    remove_run(name)
    for history in map(History, refreshed_names()):
        if name in history.runs:
            history.remove([name])
    return folder


def _use_of_run(name: str) -> str:
    """Return why a run should not be removed without a question; empty if nothing speaks for it."""
    if History(name).file:
        return f"{name!r} is what `ism-dask refresh` publishes"
    for history in map(History, refreshed_names()):
        if history.file and name in {each.run for each in history.records if not each.pruned}:
            return f"{name!r} belongs to the refreshes of {history.name!r}"
    with suppress(StorageError):  # a damaged run may go
        if original := open_run(name).copy_of:
            return f"{name!r} is published: it is a copy of {original!r}"
    return ""


def _is_fitted_to(run: str, dataset: str) -> bool:
    """Return whether the last refresh of a run was fitted to a data set."""
    last = History(run).last_made
    return last is not None and last.dataset == dataset


def list_entries() -> list[DatasetEntry]:
    """Return an entry for each split of the registry, and for each other stored data set."""
    stored = {line.folder: line for line in list_datasets()}
    entries = [
        _registered(spec, split, stored.pop(folder_of(spec.name, split), None))
        for spec in DATASETS.values()
        for split in spec.splits
    ]
    return [*entries, *map(_other, stored.values())]


def _registered(spec: DatasetSpec, split: str, line: StoredDataset | None) -> DatasetEntry:
    default: dict[str, int | None] = {spec.default_label: None} if spec.default_label else {}
    return DatasetEntry(
        name=spec.name,
        title=spec.title,
        split=split,
        rows=spec.splits[split].rows,
        columns=spec.columns,
        labels=_labels(line) or default,
        bytes=line.bytes if line else None,
        problem=line.problem if line else "",
    )


def _other(line: StoredDataset) -> DatasetEntry:
    rows, columns = line.shape or (None, None)
    title, split = (line.info.source, line.info.split) if line.info else ("", "")
    return DatasetEntry(
        line.folder, title, split, rows, columns, _labels(line), line.bytes, line.problem
    )


def _labels(line: StoredDataset | None) -> dict[str, int | None]:
    if line is None or line.info is None:
        return {}
    classes = {name: len(names) for name, names in line.info.class_names.items()}
    schema = (line.info.table or {}).get("schema", {"labels": []})
    numbers = [label_key(each["name"]) for each in schema["labels"] if each["role"] == NUMBERS]
    return {**classes, **dict.fromkeys(numbers)}


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


@dataclass(frozen=True)
class CheckResult:
    """The result of checking one data set, run or history.

    Attributes
    ----------
    item : StoredItem
    files, bytes : int
        Number of files read, and their total size.
    problems : tuple of Problem
    """

    item: StoredItem
    files: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def verdict(self) -> str:
        """The word "damaged" or "whole"."""
        return "damaged" if self.problems else "whole"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "name": self.item.name,
            "kind": self.item.kind,
            "path": str(self.item.path),
            "files": self.files,
            "bytes": self.bytes,
            "problems": [{"path": str(each.path), "problem": each.what} for each in self.problems],
        }


def check_files(names: Sequence[str]) -> list[CheckResult]:
    """Read all files of the data sets, runs and histories with these names, by default of all.

    Raises
    ------
    SettingsError
        When nothing stored has one of the names.
    """
    named = [each for name in names for each in _items_named(name)]
    items = list(dict.fromkeys(named)) if names else stored_items()
    ends = [*accumulate((max(1, each.bytes) for each in items), initial=0)]
    parts = [ProgressShare(start / ends[-1], stop / ends[-1]) for start, stop in pairwise(ends)]
    return [
        _check_item(each, part.named(f"check {each.name}"))
        for each, part in zip(items, parts, strict=True)
    ]


def _check_item(item: StoredItem, part: ProgressShare) -> CheckResult:
    total = max(1, item.bytes)
    files = done = 0

    def on_bytes(count: int) -> None:
        nonlocal files, done
        files, done = files + 1, done + count
        part.report(min(1.0, done / total), f"{byte_size(done)} of {byte_size(total)}")

    problems = tuple(item.problems(on_bytes))
    return CheckResult(item, files, done, problems)


def _items_named(name: str) -> list[StoredItem]:
    """Return the run, the history and the data set of a name, of a built-in one all splits."""
    spec = DATASETS.get(name)
    names = {name, *(folder_of(name, split) for split in (spec.splits if spec else ()))}
    items = [
        each
        for each in stored_items()
        if each.name in (names if each.kind == "data set" else {name})
    ]
    if not items:
        raise SettingsError(_unknown_name(name))
    return items


def _unknown_name(name: str) -> str:
    if name in DATASETS:
        return f"the data set {name!r} is not stored: `ism-dask ingest {name}` stores it"
    hint = did_you_mean(name, [each.name for each in stored_items()])
    return (
        f"neither a data set nor a run {name!r} is stored; {hint}`ism-dask datasets` and `ism-dask "
        "runs` list them"
    )
