"""Run files: a whole run in one TOML file, from the table that it reads to what it writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.errors import SettingsError
from flows.interface.fields import check_bounds, check_choice, setting
from flows.interface.toml_tables import (
    TableError,
    closest_name,
    line_of_key,
    parse_toml,
    read_table,
    table_error,
)
from flows.settings.base import IngestSettings, import_choices
from flows.settings.kernels import term_text
from flows.settings.runs import (
    SIDES,
    ClusterSettings,
    CrossvalSettings,
    FitSettings,
    NamedRunSettings,
    SearchSettings,
)
from flows.settings.unfolding import UnfoldSettings

# The table that a run file must have one of: it names the flow and has its settings.
FLOWS: Mapping[str, type[NamedRunSettings]] = {
    "fit": FitSettings,
    "crossval": CrossvalSettings,
    "cluster": ClusterSettings,
    "unfold": UnfoldSettings,
}
# Settings of a flow that a run file has elsewhere: in [data], at its top, or on the command line.
_ELSEWHERE = {
    "dataset": "`source` in [data]",
    "split": "`split` in [data]",
    "label": "`label` in [data]",
    "run": "`run` at the top of the file",
    "force": "--force on the command line",
    "afresh": "--afresh on the command line",
}
# The keys of a run file from which these settings are taken.
_KEYS = {"dataset": "data.source", "split": "data.split", "label": "data.label", "run": "run"}


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """The table [data] of a run file: what is read, and how."""

    source: str = setting(
        about="A table (path, address or glob; relative to this file), or the name of a data set."
    )
    name: str | None = setting(
        None, about="Table: name of the data set. Default: that of the file or folder."
    )
    split: str | None = setting(None, about="Built-in data set: its part. Default: the first.")
    label: list[str] | str | None = setting(
        None, about="The column to explain; or a list of several that are numbers."
    )
    drop: list[str] = setting(about="Columns to leave out.", default_factory=list)
    keep: list[str] = setting(
        about="Columns that are no features, but that transforms pass through.",
        default_factory=list,
    )
    columns: list[str] = setting(
        about="Patterns of the columns to use, such as x_*. Default: all.", default_factory=list
    )
    missing: str = setting(
        "refuse", about="Where a value is missing: refuse, drop, mean or indicator."
    )
    target: str = setting("auto", about="What a label of numbers is: auto, classes or numbers.")
    weights: str | None = setting(
        None,
        about="The column with the weights of rows: a fit counts a row of weight 2 as two.",
    )
    max_levels: int = setting(50, about="Most levels of a column of texts.", ge=2)
    credentials: str | None = setting(
        None,
        about="Table at an address: the Prefect block, a remote-file-system, with its credentials. "
        "Default: those of the environment.",
    )


@dataclass(frozen=True, kw_only=True)
class TransformTable:
    """A table [[transform]] of a run file: rows to project after the fit."""

    source: str = setting(about="A table or data set with the rows to project.")
    out: Path = setting(
        about="File to write: .csv, .parquet, .feather, .arrow or .npy; or a new .zarr, or a new "
        "folder for a part of each file."
    )
    split: str | None = setting(None, about="Built-in data set: its part.")
    unseen: str = setting("refuse", about="Levels that the fit has not seen: refuse or ignore.")

    def __post_init__(self) -> None:
        check_choice("unseen", self.unseen, ("refuse", "ignore"))


@dataclass(frozen=True, kw_only=True)
class RefreshTable:
    """The table [refresh] of a run file: when a refresh is suspicious, and what it keeps."""

    max_fall: float = setting(
        0.15,
        about="By which share of it the share of the label that the new features explain may fall, "
        "against the published run, and against the published features on the new rows.",
        ge=0,
        le=1,
    )
    max_turn: float = setting(
        0.5,
        about="Sine of the largest angle by which the new features of the rows may turn against "
        "the published ones, as W turns.",
        gt=0,
        le=1,
    )
    max_class_changes: int = setting(
        0, about="Classes of the label that may be new, or may have gone.", ge=0
    )
    max_class_shift: float = setting(
        0.1,
        about="Share of the rows, beyond chance, that may be of another class than before.",
        ge=0,
        le=1,
    )
    min_rows: float = setting(
        0.8, about="The rows must be at least this many times as many as before.", ge=0, le=1
    )
    max_rows: float = setting(
        1.5, about="The rows may be at most this many times as many as before.", ge=1
    )
    max_psi: float = setting(
        0.25,
        about="How far the distribution of a column, a published feature or a label of numbers may "
        "move: its population stability index, beyond chance.",
        ge=0,
    )
    keep: int = setting(
        30,
        about="Runs of the history that keep their files: the newest ones, the published one and "
        "the one that was published before it. Of others the line in the history stays.",
        ge=2,
    )

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class OutputTables:
    """The tables of a run file but for that of its flow, and the keys at its top."""

    data: DataTable
    run: str | None = setting(None, about="Name of the saved run. Default: from data and kernel.")
    report: Path | None = setting(None, about="Page to write: .html, .md or .json.")
    transform: list[TransformTable] = setting(
        about="Rows to project after the fit.", default_factory=list
    )
    refresh: RefreshTable = setting(
        about="Limits of `ism-dask refresh`, and what it keeps.", default_factory=RefreshTable
    )


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A run file, read and checked.

    Attributes
    ----------
    path : Path
    flow : str
        One of `FLOWS`.
    ingest : IngestSettings or None
        How the table is read; None if the file names a data set.
    settings : NamedRunSettings
        Those of the flow; their data set is the path of the table, if there is one.
    crossval : CrossvalSettings or None
        A cross-validation beside a fit: the settings of the fit with those of [crossval].
    transforms : tuple of TransformTable
    report : Path or None
        The page to write.
    limits : RefreshTable
    """

    path: Path
    flow: str
    ingest: IngestSettings | None
    settings: NamedRunSettings
    crossval: CrossvalSettings | None
    transforms: tuple[TransformTable, ...]
    report: Path | None
    limits: RefreshTable

    def stored_as(self, dataset: str) -> RunFile:
        """Return the run file for its table, which is stored as a data set of this name."""
        label = import_choices().label_keys(self.settings.label)
        settings = replace(self.settings, dataset=dataset, label=label)
        crossval = self.crossval and replace(self.crossval, dataset=dataset, label=label)
        return replace(self, settings=settings, crossval=crossval)


def read_run_file(path: Path, *, force: bool = False, afresh: bool = False) -> RunFile:
    """Read a run file and check all of it; raise SettingsError with the line of what is wrong.

    Parameters
    ----------
    path : Path
    force, afresh : bool
        Settings of the run that the file does not have.
    """
    tables = parse_toml(path, "run file", "the one that `ism-dask init` writes")
    try:
        return _checked(path, tables, force=force, afresh=afresh)
    except TableError as error:
        line = line_of_key(path.read_text(encoding="utf-8"), error.key)
        where = f"{path}, line {line}" if line else str(path)
        raise SettingsError(f"{where}: {error}") from error


def _checked(path: Path, tables: dict[str, Any], *, force: bool, afresh: bool) -> RunFile:
    flow = _flow_of(tables)
    named = {name: tables.pop(name) for name in FLOWS if name in tables}
    others = read_table(OutputTables, tables, path.parent)
    if flow == "crossval" and others.transform:
        raise TableError("crossval saves no W to project rows with; use [fit]", "transform[0]")
    data = others.data
    source = _resolved(data.source, path.parent)
    label = ",".join(data.label) if isinstance(data.label, list) else data.label
    common = {
        "dataset": source, "split": data.split, "label": label, "run": others.run,
        "force": force, "afresh": afresh,
    }  # fmt: skip
    settings = _settings(flow, named[flow], common, path.parent)
    crossval = None
    if flow == "fit" and "crossval" in named:
        shared = {key: each for key, each in named["fit"].items() if key != "start_from"}
        common["run"] = None if others.run is None else f"{others.run}-crossval"
        validated = _settings("crossval", {**shared, **named["crossval"]}, common, path.parent)
        assert isinstance(validated, CrossvalSettings)
        crossval = validated
    return RunFile(
        path=path,
        flow=flow,
        ingest=_ingest_settings(data, source, label, settings, force=force),
        settings=settings,
        crossval=crossval,
        transforms=tuple(
            replace(each, source=_resolved(each.source, path.parent)) for each in others.transform
        ),
        report=others.report,
        limits=others.refresh,
    )


def _settings(
    flow: str, table: Mapping[str, Any], common: Mapping[str, Any], folder: Path
) -> NamedRunSettings:
    """Return the settings of a flow from its table, and from what all flows of a file share."""
    _check_known(flow, table)
    values = {key: value for key, value in {**table, **common}.items() if value is not None}
    if isinstance(values.get("scheduler"), str) and values["scheduler"].endswith(".toml"):
        values["scheduler"] = str(folder / Path(values["scheduler"]).expanduser())
    if isinstance(values.get("terms"), list):
        values["terms"] = [
            _term(each, f"{flow}.terms[{number}]") for number, each in enumerate(values["terms"])
        ]
    try:
        return read_table(FLOWS[flow], values, folder, f"{flow}.")
    except TableError as error:
        key = _KEYS.get(error.key.removeprefix(f"{flow}."))
        raise TableError(str(error).replace(error.key, key, 1), key) if key else error from error


def _term(term: Any, at: str) -> Any:
    """Return a term of a sum of kernels as a text, if it is a table."""
    if not isinstance(term, dict):
        return term
    try:
        return term_text(term)
    except SettingsError as error:
        raise table_error(error, f"{at}.") from error


def _flow_of(tables: Mapping[str, Any]) -> str:
    """Return which flow a run file names; raise a TableError unless it is exactly one.

    A fit may be cross-validated, too.
    """
    named = [name for name in FLOWS if name in tables]
    for name in named:
        if not isinstance(tables[name], dict):
            raise TableError(f"`{name}` is no table; expected [{name}]", name)
    if len(named) != 1 and named != ["fit", "crossval"]:
        expected = " or ".join(f"[{name}]" for name in FLOWS)
        had = " and ".join(f"[{name}]" for name in named) or "none of them"
        raise TableError(
            f"the file has {had}; expected one table {expected}", named[-1] if named else ""
        )
    return named[0]


def _check_known(flow: str, table: Mapping[str, Any]) -> None:
    """Raise a TableError for a key that is no setting of the flow, or belongs elsewhere."""
    names = setting_names(flow)
    for key in table:
        at = f"{flow}.{key}"
        if key in _ELSEWHERE:
            raise TableError(f"`{at}` stands in the wrong place: give {_ELSEWHERE[key]}", at)
        if key not in names:
            hint = closest_name(key, names)
            raise TableError(
                f"`{at}` is no setting of {flow}{hint} (`ism-dask init` writes all of them)", at
            )


def setting_names(flow: str) -> list[str]:
    """Return the names of the settings that the table of a flow may have."""
    names = [each.name for each in dataclasses.fields(FLOWS[flow])]
    return [name for name in names if name not in _ELSEWHERE]


def _ingest_settings(
    data: DataTable, source: str, label: str | None, settings: NamedRunSettings, *, force: bool
) -> IngestSettings | None:
    """Return how the table is ingested, None if the file names a data set."""
    given = {each.name: getattr(data, each.name) for each in dataclasses.fields(data)}
    del given["source"], given["split"]
    if not import_choices().is_table(source):
        usual = {each.name: each for each in dataclasses.fields(data)}
        for name, value in given.items():
            if name != "label" and value not in (usual[name].default, []):
                raise TableError(
                    f"`data.{name}` is given, but {source!r} is a data set, which is stored "
                    "already; leave it out, or give the path of a table",
                    f"data.{name}",
                )
        return None
    lists = {
        name: ",".join(value) or None for name, value in given.items() if isinstance(value, list)
    }
    sides = [getattr(settings, side) for side in SIDES if isinstance(settings, SearchSettings)]
    lists["label"] = ",".join(filter(None, (label, *sides))) if label else label
    values, scheduler = {**given, **lists}, getattr(settings, "scheduler", None)
    try:
        return IngestSettings(dataset=source, force=force, scheduler=scheduler, **values)
    except SettingsError as error:
        raise table_error(error, "data.") from error


def _resolved(source: str, folder: Path) -> str:
    """Return a source with a relative path made to start from the folder of the run file."""
    is_table = import_choices().is_table(str(folder / source)) or import_choices().is_table(source)
    if "://" in source or not is_table or Path(source).expanduser().is_absolute():
        return source
    return str(folder / source)
