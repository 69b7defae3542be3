"""List what is stored, check and remove it, and end runs that go on."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.builtin.catalogue import DATASETS, folder_of
from flows.errors import FlowError, SettingsError
from flows.progress.watching import ProgressShare, progress_note
from flows.runs.published import History
from flows.services.leases import find_lease, list_leases
from ism_dask.words import byte_size
from storage import (
    DatasetInfo,
    Problem,
    StoredDataset,
    StoredItem,
    list_datasets,
    refreshed_names,
    remove_dataset,
    remove_run,
    stored_items,
)
from storage.errors import did_you_mean
from storage.tables.schema import NUMBERS, label_key

# Seconds for a process to save its last iteration, leave its cluster and report to Prefect.
_PATIENCE = 60.0


def list_entries(name: str | None = None) -> list[dict[str, Any]]:
    """Return the splits of the registry and the other stored data sets, as plain JSON.

    With a name, only those of this one; raise a SettingsError if there are none.
    """
    stored = {line.folder: line for line in list_datasets()}
    entries = []
    for spec in DATASETS.values():
        for key, split in spec.splits.items():
            line = stored.pop(folder_of(spec.name, key), None)
            info = DatasetInfo(spec.name, key, default_label=spec.default_label)
            info = replace((line and line.info) or info, source=spec.title)
            entries.append(_entry(info, line, (split.rows, spec.columns)))
    for line in stored.values():
        info = line.info or DatasetInfo(line.folder, "")
        entries.append(_entry(info, line, line.shape or (None, None)))
    named = [entry for entry in entries if name in (None, entry["name"])]
    if not named:
        names = sorted({entry["name"] for entry in entries})
        hint = did_you_mean(name or "", names)
        raise SettingsError(f"no data set {name!r}; {hint}expected one of {', '.join(names)}")
    return named


def _entry(
    info: DatasetInfo, line: StoredDataset | None, shape: tuple[int | None, int | None]
) -> dict[str, Any]:
    """Return a data set as plain JSON; its line is None if it is not stored."""
    # Number of classes of each label; None for numbers, and if only stored data would show it.
    labels: dict[str, int | None] = {label: len(names) for label, names in info.class_names.items()}
    schema = info.table["schema"] if info.table else {"labels": []}
    labels |= {
        label_key(each["name"]): None for each in schema["labels"] if each["role"] == NUMBERS
    }
    if line is None and info.default_label:
        labels = {info.default_label: None}
    return {
        "name": info.name,
        "title": info.source,
        "split": info.split,
        "rows": shape[0],
        "columns": shape[1],
        "labels": labels,
        "bytes": line and line.bytes,
        "problem": line.problem if line else "",
        "stored": line is not None,
    }


def remove_stored(names: Sequence[str], *, force: bool = False) -> list[Path]:
    """Remove data sets and runs with all their files, and return the folders that they had.

    Raise an error, before any is removed, if a name stands for nothing or for both, if a process
    reads or computes one, or if a refresh uses one, unless `force` allows the last.
    """
    items = list(dict.fromkeys(map(_item_to_remove, names)))
    for each in items:
        (_check_dataset_is_free if each.kind == "data set" else _check_run_is_free)(
            each.name, force=force
        )
    for each in items:
        if each.kind == "data set":
            remove_dataset(each.name)
            continue
        remove_run(each.name)
        for history in map(History, refreshed_names()):
            if each.name in history.runs:
                history.remove([each.name])
    return [each.path for each in items]


def _item_to_remove(name: str) -> StoredItem:
    """Return the data set or the run of a name, such as `sales`, `run:sales` or `data:sales`."""
    kind, colon, bare = name.partition(":")
    kinds = {"data": "data set", "run": "run"}
    wanted = [kinds[kind]] if colon and kind in kinds else [*kinds.values()]
    every = [each for each in stored_items() if each.kind in wanted]
    named = [each for each in every if each.name == (bare if len(wanted) == 1 else name)]
    if len(named) > 1:
        raise SettingsError(
            f"{name!r} is a data set and a run: remove data:{name} or run:{name}", "names"
        )
    if not named:
        raise _not_stored(name, every)
    return named[0]


def _not_stored(name: str, every: Sequence[StoredItem]) -> SettingsError:
    hint = did_you_mean(name, [each.name for each in every])
    return SettingsError(
        f"neither a data set nor a run {name!r} is stored; {hint}`ism-dask datasets` and "
        "`ism-dask runs` list them"
    )


def _check_dataset_is_free(name: str, *, force: bool) -> None:
    """Raise a FlowError while a run reads a data set, or, without `force`, if a refresh does."""
    for lease in list_leases():
        read = folder_of(lease.settings.get("dataset", ""), lease.settings.get("split"))
        if lease.held and read == name:
            raise FlowError(f"{lease.description} and reads {name!r}: stop it first")
    made = {run: History(run).last_made for run in refreshed_names()}
    refreshed = [run for run, last in made.items() if last and last.dataset == name]
    if refreshed and not force:
        raise FlowError(
            f"refreshes fit {', '.join(map(repr, refreshed))} to {name!r}; remove it all the same "
            "with --force: the next refresh reads the whole table again"
        )


def _check_run_is_free(name: str, *, force: bool) -> None:
    """Raise a FlowError while a process computes a run, or, without `force`, if it is published."""
    if (lease := find_lease(name)) is not None and lease.held:
        raise FlowError(f"{lease.description}: stop it first")
    if force:
        return
    if History(name).file:
        raise FlowError(f"{name!r} is what refreshes publish; --force removes it all the same")
    for history in map(History, refreshed_names()):
        if name in {each.run for each in history.records if not each.pruned}:
            raise FlowError(
                f"{name!r} belongs to the refreshes of {history.name!r}; --force removes it all "
                "the same"
            )


@dataclass(frozen=True)
class CheckResult:
    """The result of checking one data set, run or history: how much was read, and what is wrong."""

    item: StoredItem
    files: int
    bytes: int
    problems: tuple[Problem, ...]

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

    Raise a SettingsError if nothing stored has one of the names.
    """
    named = [each for name in names for each in _items_named(name)]
    items = list(dict.fromkeys(named)) if names else stored_items()
    sizes = [max(1, each.bytes) for each in items]
    return [
        _check_item(each, size, part.named(f"check {each.name}"))
        for each, size, part in zip(items, sizes, ProgressShare().cut(sizes), strict=True)
    ]


def _check_item(item: StoredItem, total: int, part: ProgressShare) -> CheckResult:
    files = done = 0

    def on_bytes(count: int) -> None:
        nonlocal files, done
        files, done = files + 1, done + count
        part.report(min(1.0, done / total), f"{byte_size(done)} of {byte_size(total)}")

    problems = tuple(item.problems(on_bytes))
    return CheckResult(item, files, done, problems)


def _items_named(name: str) -> list[StoredItem]:
    """Return the run, the history and the data set of a name, of a built-in one all splits."""
    splits = DATASETS[name].splits if name in DATASETS else ()
    known = {("data set", folder_of(name, split)) for split in splits}
    every = stored_items()
    if items := [each for each in every if each.name == name or (each.kind, each.name) in known]:
        return items
    if splits:
        raise SettingsError(
            f"the data set {name!r} is not stored: `ism-dask ingest {name}` stores it"
        )
    raise _not_stored(name, every)


def cancel_run(run: str) -> int:
    """End the process that computes a run, as Ctrl-C does, and return its pid when it has ended.

    The name of a published run stands for the refresh that goes on. Raise a SettingsError if no
    process computes it, a FlowError if that is on another machine or stays.
    """
    process = find_lease(run)
    if process is None or not process.held:
        raise SettingsError(f"no process computes the run {run!r}; `ism-dask runs` lists all runs")
    if process.host != platform.node():
        raise FlowError(
            f"process {process.pid} on {process.host} computes {run!r}: cancel it on that machine, "
            "or cancel its flow run in the Prefect UI"
        )
    progress_note(f"process {process.pid} saves the last iteration of {run!r} and ends")
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    until = time.monotonic() + _PATIENCE
    while process.lives:
        if time.monotonic() > until:
            raise FlowError(
                f"process {process.pid} has not ended in {_PATIENCE:.0f} s; `kill -9 {process.pid}`"
                " ends it, and the next process of the run goes on from its last checkpoint"
            )
        time.sleep(0.1)
    return process.pid
