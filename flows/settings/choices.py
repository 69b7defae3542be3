"""Registries that settings are checked against: data sets, kernels, solvers, labels, names."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from flows.builtin.catalogue import DATASETS, folder_of
from flows.errors import SettingsError
from flows.progress.watching import run_context
from flows.settings.fields import check_choice, split_names
from ism_dask.engines import ENGINES
from ism_dask.gamma.targets import TARGETS
from ism_dask.kernels import KERNELS, WIDTH_RULES, as_kernel
from ism_dask.linalg.subspaces import ROTATIONS
from storage import StorageError, UnsafeName, dataset_path, list_datasets, safe_name
from storage.atomic import exists_settled
from storage.tables.files import has_table_suffix
from storage.tables.schema import TableOptions, label_key


def check_source(dataset: str, split: str | None) -> None:
    """Raise SettingsError unless it is a table, or the registry has that data set and split.

    Without a split, it may also be a data set that is stored.
    """
    if is_table(dataset):
        if split is not None:
            raise SettingsError(
                f"`split` is {split!r}, but {dataset} is a table, which has none", "split"
            )
        return
    try:
        stored = exists_settled(dataset_path(folder_of(safe_name(dataset, "dataset"), split)))
    except (LookupError, UnsafeName) as error:
        raise SettingsError(str(error), "split", "dataset") from error
    if split is not None and dataset not in DATASETS:
        raise SettingsError(
            f"`split` is {split!r}, but {dataset!r} is no data set with splits: leave it out, or "
            f"name one of {', '.join(sorted(DATASETS))}",
            "split",
        )
    if dataset not in DATASETS and not stored:
        check_choice("dataset", dataset, dataset_names())


def is_table(source: str) -> bool:
    """Return whether a text is the path, address or glob of a table, not a name of a data set."""
    if source in DATASETS:
        return False
    is_address = "://" in source or any(mark in source for mark in "*?[")
    if is_address or has_table_suffix(source):
        return True
    try:
        return Path(source).exists()
    except OSError:  # such as a name that is too long
        return False


def table_options(settings: Any) -> TableOptions:
    """Return how `IngestSettings` say to read a table; raise SettingsError for wrong values."""
    given: dict[str, Any] = {}
    for each in fields(TableOptions):
        value = getattr(settings, each.name)
        given[each.name] = split_names(value) if each.default == () else value
    try:
        return TableOptions(**given)
    except StorageError as error:
        raise SettingsError(str(error), *error.settings) from error


def label_keys(labels: str | None) -> str | None:
    """Return the names that labels, separated by commas, have in the data set of a table."""
    return ",".join(map(label_key, split_names(labels))) or None


def dataset_names() -> list[str]:
    """Return the names of the data sets in the registry, and of others that are stored."""
    return sorted({*DATASETS, *(line.folder for line in list_datasets())})
