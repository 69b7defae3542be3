"""Registries that settings are checked against: data sets, kernels, solvers, labels, names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from flows.builtin.catalogue import DATASETS, folder_of
from flows.errors import SettingsError
from flows.settings.fields import check_choice, number_of, split_names
from ism_dask.engines import ENGINES
from ism_dask.gamma.targets import TARGETS
from ism_dask.kernels import KERNELS, Kernel
from ism_dask.linalg.subspaces import ROTATIONS
from storage import StorageError, UnsafeName, dataset_path, safe_name
from storage.atomic import exists_settled
from storage.dataset import stored_folders
from storage.errors import did_you_mean
from storage.tables.files import COLUMNAR, has_table_suffix
from storage.tables.schema import TableOptions, label_key


def check_source(dataset: str, split: str | None, name: str = "dataset") -> None:
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
        stored = exists_settled(dataset_path(folder_of(safe_name(dataset, name), split)))
    except (LookupError, UnsafeName) as error:
        raise SettingsError(str(error), "split", name) from error
    if split is not None and dataset not in DATASETS:
        raise SettingsError(
            f"`split` is {split!r}, but {dataset!r} is no data set with splits: leave it out, or "
            f"name one of {', '.join(sorted(DATASETS))}",
            "split",
        )
    if dataset not in DATASETS and not stored:
        hint = did_you_mean(dataset, names := dataset_names())
        raise SettingsError(
            f"`{name}` is {dataset!r}; {hint}expected one of {', '.join(names)}; or a path, with "
            f"a / or an ending such as .csv: ./{dataset}",
            name,
        )


def is_table(source: str) -> bool:
    """Return whether a text is the path, address or glob of a table, not a name of a data set.

    Its letters alone decide, whatever files there are: a folder `parts` is ./parts.
    """
    is_marked = any(mark in source for mark in "/*?[") or source.startswith(".")
    return is_marked or has_table_suffix(source)


def is_path(source: str) -> bool:
    """Return whether a text is a path on this machine: no address, and no name of a data set."""
    return "://" not in source and is_table(source)


def table_options(settings: Any) -> TableOptions:
    """Return how `IngestSettings` say to read a table; raise SettingsError for wrong values."""
    given: dict[str, Any] = {}
    for each in fields(TableOptions):
        value = getattr(settings, each.name)
        given[each.name] = split_names(value) if each.default == () else value
        if each.default == () and value is not None and not given[each.name]:
            raise SettingsError(
                f"`{each.name}` is {value!r}; expected names of columns, or leave it out", each.name
            )
    try:
        return TableOptions(**given)
    except StorageError as error:
        raise SettingsError(str(error), *error.settings) from error


def label_keys(labels: str | None) -> str | None:
    """Return the names that labels, separated by commas, have in the data set of a table."""
    return ",".join(map(label_key, split_names(labels))) or None


def dataset_names() -> list[str]:
    """Return the names of the data sets in the registry, and of others that are stored."""
    return sorted({*DATASETS, *(each.name for each in stored_folders())})


def build_kernel(name: str, parameters: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a name; raise SettingsError for parameters that it does not take.

    A parameter of None is not given.
    """
    kind: Any = KERNELS[check_choice("kernel", name, sorted(KERNELS))]
    given = {key: number_of(value) for key, value in parameters.items() if value is not None}
    allowed = [each.name for each in fields(kind) if each.init]
    foreign = [each for each in given if each not in allowed]
    if foreign:
        raise SettingsError(
            f"`{foreign[0]}` is no parameter of the {name} kernel, which takes "
            f"{' and '.join(allowed) or 'none'}; leave it out or choose another kernel",
            foreign[0],
        )
    try:
        kernel: Kernel = kind(**given)
    except (TypeError, ValueError) as error:
        raise SettingsError(str(error), *given) from error
    return kernel


def kernel_record(name: str, kernel: Any) -> dict[str, Any]:
    """Return a fitted kernel in plain JSON, with the parameters computed from the data."""
    # The anchors of a kernel with per-row widths are data rows: they are not part of a summary.
    parameters = (each.name for each in fields(kernel) if each.repr)
    return {"name": name, **{each: getattr(kernel, each) for each in parameters}}


def fitted_kernel(record: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a `kernel_record`, with the parameters that it was fitted with."""
    parameters = {**record}
    return build_kernel(parameters.pop("name"), parameters)
