"""Where tiles can be computed, by what `--scheduler` says: an address, `up`, or a cluster file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from flows.compute.address import Address, is_address
from flows.compute.kubernetes import Kubernetes
from flows.compute.local import Local
from flows.compute.place import Place
from flows.compute.slurm import Slurm
from flows.compute.tables import TableError, near, read_table
from flows.compute.up import NAME, Up
from flows.errors import FlowError, SettingsError

# What a cluster file may name as its `kind`.
KINDS: dict[str, type[Any]] = {
    "local": Local,
    "address": Address,
    "slurm": Slurm,
    "kubernetes": Kubernetes,
}
_SUFFIX = ".toml"


def place_of(scheduler: str) -> Place:
    """Return what `--scheduler` names, checked as far as it can be without starting anything."""
    if is_address(scheduler):
        return Address(address=scheduler)
    if scheduler == NAME:
        return Up()
    if scheduler.endswith(_SUFFIX):
        return read_cluster(Path(scheduler).expanduser())
    raise SettingsError(
        f"`scheduler` is {scheduler!r}; expected an address such as tcp://127.0.0.1:8786, which "
        "`dask scheduler` prints when it starts, up for that of `ism-dask up`, or a cluster file "
        "such as slurm.toml"
    )


def read_cluster(file: Path) -> Place:
    """Return the cluster that a file describes, or raise SettingsError naming what is wrong."""
    table = _parsed(file)
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingsError(f"{file}: {_odd_kind(kind)}")
    try:
        place: Place = read_table(KINDS[kind], table, file.parent)
        place.check()
    except TableError as error:
        raise SettingsError(f"{file}: {error} (a cluster of kind {kind!r})") from error
    except FlowError as error:
        raise SettingsError(f"{file}: {error}") from error
    return place


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"the cluster file {file} cannot be read: {error.strerror}; expected one like those "
            "in docs/clusters.md"
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, or no UTF-8, or nested without end
        raise SettingsError(f"the cluster file {file} is no TOML: {error}") from error


def _odd_kind(kind: Any) -> str:
    names = ", ".join(KINDS)
    if kind is None:
        return f"`kind` is missing; expected one of {names}"
    return f"`kind` is {kind!r}; expected one of {names}{near(str(kind), list(KINDS))}"
