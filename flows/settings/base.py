"""Base classes of the settings: those of any flow, and those of a flow that reads a data set."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flows.errors import SettingsError
from flows.settings.fields import (
    Checked,
    as_form,
    check_suffix,
    course_setting,
    data_setting,
    saving_setting,
    setting,
)

if TYPE_CHECKING:
    from types import ModuleType


def import_choices() -> ModuleType:
    """Import and return the module with the registries that settings are checked against."""
    # It imports the whole scientific stack, which takes a second that `--help` need not wait.
    from flows.settings import choices  # noqa: PLC0415

    return choices


@dataclass(frozen=True, kw_only=True)
class FlowSettings(Checked):
    """Settings of a flow: its options on the command line and the form in the Prefect UI."""

    # The settings whose values tell runs apart.
    apart_by: ClassVar[tuple[str, ...]]

    @property
    def subject(self) -> tuple[str, ...]:
        """Words that tell runs apart, in the keys of their artifacts."""
        return tuple(getattr(self, name) for name in self.apart_by)

    @property
    def title(self) -> str:
        """What the flow works on, in a few words."""
        return " ".join(self.subject)

    @property
    def flow_run_name(self) -> str:
        """Name of the flow run in Prefect."""
        return self.title

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the flow run in Prefect."""
        return self.subject

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON."""
        return dataclasses.asdict(self)

    @property
    def differences(self) -> dict[str, Any]:
        """The settings that differ from their defaults, those without a default among them."""
        defaults = {each.name: each.default for each in dataclasses.fields(self)}
        return {name: value for name, value in self.to_json().items() if value != defaults[name]}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON schema of the form in the Prefect UI; Prefect gets it from pydantic."""
        return as_form(cls, handler.resolve_ref_schema(handler(core_schema)))


# The scheduler that `ism-dask up` runs, and the suffix of cluster files.
UP, CLUSTER_FILE = "up", ".toml"
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/]+:(\d{1,5})")


def is_address(text: str) -> bool:
    """Return whether `text` is the address of a scheduler."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[2]) < 2**16


def check_scheduler(scheduler: str, name: str = "scheduler") -> None:
    """Raise SettingsError if `scheduler`, the value of the setting `name`, is no place."""
    if scheduler == UP or is_address(scheduler) or scheduler.endswith(CLUSTER_FILE):
        return
    raise SettingsError(
        f"`{name}` is {scheduler!r}; expected an address such as tcp://127.0.0.1:8786, which "
        f"`dask scheduler` prints when it starts, {UP} for that of `ism-dask up`, or a cluster "
        "file such as slurm.toml",
        name,
    )


def scheduler_setting() -> Any:
    """Return the setting that says where to compute."""
    return course_setting(
        None,
        about="Where to compute: tcp://host:port of a Dask scheduler, up for that of `ism-dask "
        "up`, or a cluster file such as slurm.toml. Default: this process.",
        title="Dask scheduler or cluster file",
        flags=("--scheduler", "--cluster"),
        check=check_scheduler,
    )


@dataclass(frozen=True, kw_only=True)
class DataSettings(FlowSettings):
    """Settings of a flow that reads a data set."""

    apart_by: ClassVar[tuple[str, ...]] = ("dataset",)
    dataset: str = setting(
        about="Name of a data set, which `ism-dask datasets` lists, or the path of a table; that "
        "of a folder has a /, such as ./parts.",
        title="Data set",
        names=lambda: import_choices().dataset_names(),
        open_ended=True,
    )
    split: str | None = data_setting(None, about="Part of the data set. Default: the first.")

    def __post_init__(self) -> None:
        import_choices().check_source(self.dataset, self.split)
        super().__post_init__()

    @property
    def is_table(self) -> bool:
        """Whether `dataset` is a table to read, not the name of a data set."""
        return bool(import_choices().is_table(self.dataset))


# The settings of an ingestion that not only tables have.
_OF_ALL_DATA = ("dataset", "split", "force", "scheduler")


@dataclass(frozen=True, kw_only=True)
class IngestSettings(DataSettings):
    """Settings of the flow `ingest`, which reads, checks and stores a data set or a table."""

    dataset: str = setting(
        about="Name of a built-in data set, or the path, address or glob of a table (.csv, .tsv, "
        ".parquet, .feather, .arrow, .npy; a folder such as ./parts).",
        title="Data set or table",
    )
    force: bool = saving_setting(False, about="Replace what is stored.")
    name: str | None = data_setting(
        None, about="Table: name of the data set. Default: that of the file or folder."
    )
    label: str | None = data_setting(
        None, about="Table: the column to explain; or several, separated by commas."
    )
    drop: str | None = data_setting(None, about="Table: columns to leave out, separated by commas.")
    keep: str | None = data_setting(
        None, about="Table: columns that are no features, but that `transform` passes through."
    )
    columns: str | None = data_setting(
        None, about="Table: patterns of the columns to use, such as 'x_*'. Default: all."
    )
    missing: str = data_setting(
        "refuse",
        about="Table: what to do where a value is missing: refuse the table, drop the row, fill "
        "in the column's mean, or that and add an indicator column.",
    )
    target: str = data_setting(
        "auto",
        about="Table: read the label, of several the first, as classes or numbers. auto, as for "
        "all others: up to 20 different whole numbers are classes.",
    )
    weights: str | None = data_setting(
        None,
        about="Table: the column of row weights. Fits of W alone use it: 2 counts as two rows.",
    )
    dates: bool = data_setting(False, about="Table: read dates as days since 1970-01-01.")
    delimiter: str | None = data_setting(
        None, about="Text files: what separates columns, such as ';' or tab. Default: detected."
    )
    decimal: str | None = data_setting(
        None, about="Text files: the mark of decimals, . or a comma. Default: detected."
    )
    encoding: str | None = data_setting(
        None, about="Text files: the encoding, such as cp1252. Default: detected."
    )
    max_levels: int = data_setting(50, about="Table: most levels (texts) of a column.", ge=2)
    dry_run: bool = saving_setting(
        False, about="Table: show how it would be stored, and store nothing."
    )
    scheduler: str | None = scheduler_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        import_choices().table_options(self)
        foreign = [name for name in self.differences if name not in _OF_ALL_DATA]
        if foreign and not self.is_table:
            raise SettingsError(
                f"`{foreign[0]}` is given, but {self.dataset!r} is no table: leave it out, or "
                "give the path of a table",
                foreign[0],
            )


# The format of a matrix, whose columns have no names of their own.
MATRIX = ".npy"


def _check_format(out: Path, name: str) -> None:
    check_suffix(out, name, (".csv", MATRIX, *import_choices().COLUMNAR))


@dataclass(frozen=True, kw_only=True)
class TransformSettings(Checked):
    """Settings of a projection of rows by a saved run."""

    source: str = setting(about="A data set, or the path, address or glob of a table.")
    out: Path = setting(
        about="File to write: .csv, .parquet, .feather, .arrow or .npy.",
        flags=("--out", "-o"),
        check=_check_format,
    )
    split: str | None = setting(None, about="Part of the data set.")
    unseen: str = setting(
        "refuse",
        about="Levels (texts) that the fit has not seen: refuse, or ignore, with 0 for each.",
        names=lambda: ["refuse", "ignore"],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        import_choices().check_source(self.source, self.split, "source")


# The work pool of `ism-dask up`.
POOL = "local-process"

# The services with ports, and the usual ones, by the settings that change them.
PORTS = {
    "port": ("Prefect server", 4200),
    "scheduler_port": ("Dask scheduler", 8786),
    "dashboard_port": ("Dask dashboard", 8787),
    "report_port": ("report server", 8788),
}


def _port_setting(name: str) -> Any:
    what, usual = PORTS[name]
    return setting(
        None, about=f"Port of the {what}. Default: {usual}, or any free one.", ge=1, le=65535
    )


def _check_pool(pool: str, name: str) -> None:
    if not pool.strip() or "/" in pool:
        raise SettingsError(f"`{name}` is {pool!r}; expected the name of a work pool", name)


def _check_memory(memory: str, name: str) -> None:
    from dask.utils import parse_bytes  # noqa: PLC0415

    try:
        size = parse_bytes(memory)
    except ValueError:
        size = 0
    if size < 1:
        raise SettingsError(f"`{name}` is {memory!r}; expected a size such as 4GB or 500MiB", name)


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(Checked):
    """The settings of the services. A port that is not set is the default, or any free one."""

    workers: int | None = setting(None, about="Dask workers. Default: one for each core.", ge=1)
    threads: int | None = setting(None, about="Threads of each Dask worker. Default: 1.", ge=1)
    memory: str | None = setting(
        None,
        about="Memory of each Dask worker, such as 4GB. Default: all get 75% of the machine's.",
        check=_check_memory,
    )
    port: int | None = _port_setting("port")
    scheduler_port: int | None = _port_setting("scheduler_port")
    dashboard_port: int | None = _port_setting("dashboard_port")
    report_port: int | None = _port_setting("report_port")
    pool: str | None = setting(
        None, about=f"Work pool whose runs are taken up. Default: {POOL}.", check=_check_pool
    )
