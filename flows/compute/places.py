"""The places that a run can compute on, and how cluster files (TOML) are read and checked."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from flows.compute.base import ClusterAddress, ClusterPlace, ClusterPlaceBase
from flows.compute.kubernetes import Kubernetes
from flows.compute.local import Local
from flows.compute.slurm import Slurm
from flows.compute.tls import Tls, tls_files
from flows.errors import FlowError, SettingsError
from flows.services.certificates import own_certificates

T = TypeVar("T")

_TYPE_NAMES: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "the path of a file",
}


class TableError(ValueError):
    """A key or a value of a TOML table that is not allowed."""


def read_table(kind: type[T], table: dict[str, Any], folder: Path, within: str = "") -> T:
    """Make the dataclass `kind` from a TOML table, and check every key and type.

    Parameters
    ----------
    kind : type
        A dataclass. It may raise ValueError for values that do not go together.
    table : dict
        The table, as `tomllib` returns it.
    folder : Path
        The folder that relative paths start from.
    within : str
        Prefix of the keys of this table within a larger one, such as `tls.`.

    Raises
    ------
    TableError
        For an unknown or missing key, or a value of another type.
    """
    fields: dict[str, Any] = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise TableError(_unknown_key_message(f"{within}{key}", key, list(fields)))
    hints = get_type_hints(kind)
    missing = [name for name, each in fields.items() if _is_required(each) and name not in table]
    if missing:
        expected = describe_type(hints[missing[0]])
        raise TableError(f"`{within}{missing[0]}` is missing; expected {expected}")
    values = {key: _convert(hints[key], item, folder, within + key) for key, item in table.items()}
    try:
        return kind(**values)
    except TableError:
        raise
    except ValueError as error:
        raise TableError(f"{within}{error}" if within else str(error)) from error


def closest_name(name: str, names: list[str]) -> str:
    """Return the hint "did you mean ..." for a misspelt name, empty if no name is close."""
    close = get_close_matches(name, names, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def describe_type(hint: Any) -> str:
    """Return the description of a type for error messages."""
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        keys = [
            f"{each.name} = {describe_type(hints[each.name])}" for each in dataclasses.fields(hint)
        ]
        return f"a table {{{', '.join(keys)}}}"
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return f"a list, each {describe_type(inner[0])}"
    if origin is dict:
        return f"a table, each value {describe_type(inner[1])}"
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(each) for each in inner if each is not type(None))
    return _TYPE_NAMES[hint]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _unknown_key_message(at: str, key: str, names: list[str]) -> str:
    return f"`{at}` is no key of it{closest_name(key, names)} (expected {', '.join(names)})"


def _convert(hint: Any, value: Any, folder: Path, at: str) -> Any:
    """Return `value` converted to its type, or raise TableError if it is of another type."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if _matches_type(choice, value):
            return _convert_as(choice, value, folder, at)
    shown = "a table" if isinstance(value, dict) else repr(value)
    raise TableError(f"`{at}` is {shown}; expected {describe_type(hint)}")


def _matches_type(hint: Any, value: Any) -> bool:
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    kinds: dict[Any, Any] = {float: (int, float), Path: str, tuple: list, dict: dict}
    kind = get_origin(hint) or hint
    # In Python, unlike in TOML, a bool is an int.
    return isinstance(value, kinds.get(kind, kind)) and isinstance(value, bool) == (hint is bool)


def _convert_as(hint: Any, value: Any, folder: Path, at: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return read_table(hint, value, folder, f"{at}.")  # type: ignore[arg-type]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return tuple(_convert(inner[0], each, folder, f"{at}[{n}]") for n, each in enumerate(value))
    if origin is dict:
        return {key: _convert(inner[1], each, folder, f"{at}.{key}") for key, each in value.items()}
    return folder / Path(value).expanduser() if hint is Path else value


_ADDRESS_PATTERN = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/]+:(\d{1,5})")


@dataclass(frozen=True, kw_only=True)
class Address(ClusterPlaceBase):
    """A scheduler that runs already, given by its address.

    Attributes
    ----------
    address : str
        Address of the scheduler, such as tcp://127.0.0.1:8786.
    tls : Tls, optional
        Certificates for a tls:// address. Default: those of Dask's own configuration.
    """

    # Seconds to wait for the first worker.
    wait: ClassVar[float] = 8.0

    address: str
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if not is_address(self.address):
            raise ValueError(
                f"`address` is {self.address!r}; expected one such as tcp://127.0.0.1:8786"
            )
        if self.tls is not None and not self.address.startswith(("tls://", "wss://")):
            raise ValueError(
                f"`address` is {self.address!r}, but there are certificates; expected one that "
                "begins with tls://"
            )

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Yield the scheduler to join, which goes on running after the block."""
        security = None if self.tls is None else self.tls.security()
        advice = f"start some with `dask worker {self.address}`"
        yield ClusterAddress(self.address, security, wait=self.wait, none_came=advice)


def is_address(text: str) -> bool:
    """Return whether `text` is the address of a scheduler."""
    match = _ADDRESS_PATTERN.fullmatch(text)
    return match is not None and 0 < int(match[2]) < 2**16


NAME = "up"


@dataclass(frozen=True, kw_only=True)
class LocalServices(ClusterPlaceBase):
    """The Dask cluster that `ism-dask up` runs on this machine."""

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Yield the scheduler to join, which goes on running after the block."""
        from flows.services.status import running_services  # noqa: PLC0415

        services = running_services()
        if services is None or services.scheduler is None:
            raise FlowError(
                "`scheduler` is 'up', but no Dask scheduler of `ism-dask up` runs here; start it "
                "with `ism-dask up`, or leave out --scheduler to compute here"
            )
        security = _own_security() if services.scheduler.startswith("tls://") else None
        yield ClusterAddress(services.scheduler, security, none_came="see `ism-dask up --status`")


def _own_security() -> Any:
    try:
        return tls_files(own_certificates()).security()
    except ValueError as error:
        raise FlowError(
            f"the certificates of `ism-dask up --tls` are gone ({error}); end it with "
            "`ism-dask up --stop`, and start it again"
        ) from error


# The values that the key `kind` of a cluster file may have.
KINDS: dict[str, type[Any]] = {
    "local": Local,
    "address": Address,
    "slurm": Slurm,
    "kubernetes": Kubernetes,
}
_SUFFIX = ".toml"


def cluster_place(scheduler: str) -> ClusterPlace:
    """Return the place that `--scheduler` names, checked as far as possible without starting it."""
    if is_address(scheduler):
        return Address(address=scheduler)
    if scheduler == NAME:
        return LocalServices()
    if scheduler.endswith(_SUFFIX):
        return read_cluster(Path(scheduler).expanduser())
    raise SettingsError(
        f"`scheduler` is {scheduler!r}; expected an address such as tcp://127.0.0.1:8786, which "
        "`dask scheduler` prints when it starts, up for that of `ism-dask up`, or a cluster file "
        "such as slurm.toml"
    )


def read_cluster(file: Path) -> ClusterPlace:
    """Return the place that a cluster file describes; raise SettingsError if the file is wrong."""
    table = _parse_file(file)
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingsError(f"{file}: {_bad_kind_message(kind)}")
    try:
        place: ClusterPlace = read_table(KINDS[kind], table, file.parent)
        place.check()
    except TableError as error:
        raise SettingsError(f"{file}: {error} (a cluster of kind {kind!r})") from error
    except FlowError as error:
        raise SettingsError(f"{file}: {error}") from error
    return place


def _parse_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"the cluster file {file} cannot be read: {error.strerror}; expected one like those "
            "in docs/clusters.md"
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, or no UTF-8, or nested without end
        raise SettingsError(f"the cluster file {file} is no TOML: {error}") from error


def _bad_kind_message(kind: Any) -> str:
    names = ", ".join(KINDS)
    if kind is None:
        return f"`kind` is missing; expected one of {names}"
    return f"`kind` is {kind!r}; expected one of {names}{closest_name(str(kind), list(KINDS))}"
