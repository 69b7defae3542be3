"""Run files: a whole run in one TOML file, from the table that it reads to what it writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator

from flows.errors import SettingsError
from flows.settings.base import CLUSTER_FILE, IngestSettings, TransformSettings, import_choices
from flows.settings.fields import Checked, check_suffix, setting
from flows.settings.runs import CrossvalSettings, FitSettings, SavedRunSettings, SearchSettings
from flows.settings.toml_tables import expanded, parse_toml, read_table, within
from flows.settings.unsupervised import ClusterSettings
from storage.tables.files import has_part

# The table that a run file must have one of: it names the flow and has its settings.
FLOWS: Mapping[str, type[SavedRunSettings]] = {
    "fit": FitSettings,
    "crossval": CrossvalSettings,
    "cluster": ClusterSettings,
}
# Where these settings of a flow are given, which are not in its table.
_ELSEWHERE: Mapping[str, str] = {
    "dataset": "`source` in [data]",
    "split": "`split` in [data]",
    "label": "`label` in [data]",
    "run": "`run` at the top of the file",
    "force": "--force on the command line",
    "afresh": "--afresh on the command line",
}

# Names of columns: in a run file also as a list.
_Names = Annotated[
    list[str] | str,
    AfterValidator(lambda value: value if isinstance(value, str) else ",".join(value) or None),
]


def _table(
    name: str, kind: type[Any], without: Iterable[str], *first: tuple[str, Any, Any], **hints: Any
) -> Any:
    """Return a dataclass with those settings of a flow that a table of a run file has."""
    types = get_type_hints(kind) | hints
    fields = [each for each in dataclasses.fields(kind) if each.name not in without]
    own = [(each.name, types[each.name], copy(each)) for each in fields]
    return dataclasses.make_dataclass(
        name, [*first, *own], bases=(Checked,), frozen=True, kw_only=True
    )


# The table [data]: what is read, and how.
DataTable = _table(
    "DataTable",
    IngestSettings,
    ("dataset", "force", "dry_run", "scheduler"),
    ("source", str, setting(about="A table, relative to this file (./parts), or a data set.")),
    **dict.fromkeys(("label", "drop", "keep", "columns"), _Names | None),
)
# A table [[transform]]: rows to project after the fit, of a data set that may come from [data].
TransformTable = _table("TransformTable", TransformSettings, ())
# The tables of the flows.
TABLES: Mapping[str, Any] = {
    flow: _table(f"{flow.capitalize()}Table", kind, _ELSEWHERE) for flow, kind in FLOWS.items()
}
FitTable, CrossvalTable, ClusterTable = TABLES.values()

_share_setting = partial(setting, ge=0, le=1)


@dataclass(frozen=True, kw_only=True)
class RefreshTable(Checked):
    """The table [refresh] of a run file: when a refresh is suspicious, and what it keeps."""

    max_fall: float = _share_setting(
        0.15,
        about="The part of the explained share of the label that may be lost; also of the share "
        "that the rows of the published run predict.",
    )
    max_turn: float = setting(
        0.85,
        about="Sine of the angle between the new features and a published one that is allowed; a "
        "feature counts by what J loses without it.",
        gt=0,
        le=1,
    )
    max_class_changes: int = setting(
        0, about="Classes of the label that may be new, or may have gone.", ge=0
    )
    max_class_shift: float = _share_setting(
        0.1, about="Share of the rows, beyond chance, that may be of another class than before."
    )
    max_shift: float = setting(
        1.0,
        about="Deviations of a column by which its mean may move; another unit moves it farther.",
        gt=0,
    )
    max_equal_rows: float = _share_setting(
        0.1, about="By how much the share of rows that equal an earlier row may rise."
    )
    min_rows: float = _share_setting(
        0.8, about="The rows must be at least this many times as many as before."
    )
    max_rows: float = setting(
        1.5, about="The rows may be at most this many times as many as before.", ge=1
    )
    keep: int = setting(
        30,
        about="Runs of the history that keep their files: the newest ones, the published one and "
        "the one that was published before it. The history lists the others still.",
        ge=2,
    )


@dataclass(frozen=True, kw_only=True)
class FileTables:
    """The keys at the top of a run file, and its tables."""

    data: DataTable  # type: ignore[valid-type]
    run: str | None = setting(None, about="Name of the saved run. Default: of data and settings.")
    report: Path | None = setting(None, about="Page to write: .html, .md or .json.")
    transform: tuple[TransformTable, ...] = ()  # type: ignore[valid-type]
    refresh: RefreshTable | None = None  # with it `ism-dask run` refreshes the run
    fit: FitTable | None = None  # type: ignore[valid-type]
    crossval: CrossvalTable | None = None  # type: ignore[valid-type]
    cluster: ClusterTable | None = None  # type: ignore[valid-type]


@dataclass(frozen=True)
class RunFile:
    """A run file, read and checked."""

    path: Path
    flow: str  # one of `FLOWS`
    ingest: IngestSettings | None  # how the table is read; None if the file names a data set
    settings: SavedRunSettings  # those of the flow; their data set may be the path of the table
    transforms: tuple[Any, ...]  # of `TransformTable`
    report: Path | None  # the page to write
    limits: RefreshTable | None  # of a refresh; None if the file has no table [refresh]

    @property
    def outs(self) -> list[Path]:
        """The files to write, the report last."""
        return [each for each in (*(one.out for one in self.transforms), self.report) if each]

    def stored_as(self, dataset: str) -> RunFile:
        """Return the run file for its table, which is stored as a data set of this name."""
        label = import_choices().label_keys(self.settings.label)
        return replace(self, settings=replace(self.settings, dataset=dataset, label=label))


def read_run_file(path: Path, *, force: bool = False, afresh: bool = False) -> RunFile:
    """Read a run file and check all of it; raise SettingsError if anything is wrong.

    `force` and `afresh` are settings of the run that the file does not have.
    """
    tables = parse_toml(path, "run file", "the one that `ism-dask init` writes")
    try:
        flow = _flow_of(tables)
        file: Any = read_table(FileTables, _from_folder(path.parent, tables))
        _check_outputs(path, flow, file)
        settings = _settings(flow, file, force=force, afresh=afresh)
        ingest = _ingest_settings(file.data, settings, force=force)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
    return RunFile(path, flow, ingest, settings, file.transform, file.report, file.refresh)


def _flow_of(tables: Mapping[str, Any]) -> str:
    """Return which flow a run file names; raise SettingsError unless it is exactly one."""
    named = [name for name in FLOWS if name in tables]
    for name in (each for each in named if isinstance(tables[each], dict)):
        for key in tables[name].keys() & _ELSEWHERE.keys():
            raise SettingsError(f"`{name}.{key}` is in the wrong place: give {_ELSEWHERE[key]}")
    if len(named) != 1:
        expected = " or ".join(f"[{name}]" for name in FLOWS)
        had = " and ".join(f"[{name}]" for name in named) or "no table of a flow"
        raise SettingsError(f"the file has {had}; expected one table {expected}")
    return named[0]


def _from_folder(folder: Path, value: Any, key: str = "") -> Any:
    """Return tables of a run file, in which relative paths start from the folder of the file."""
    if isinstance(value, dict):
        return {name: _from_folder(folder, each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_from_folder(folder, each, key) for each in value]
    if not isinstance(value, str) or key not in ("report", "out", "scheduler", "source"):
        return value
    is_path, there = key in ("report", "out"), str(folder / expanded(value))
    if key == "scheduler":
        is_path = value.endswith(CLUSTER_FILE)
    elif key == "source":  # else the name of a data set, or an address
        is_path = import_choices().is_path(value)
    return there if is_path else value


def _check_outputs(path: Path, flow: str, file: Any) -> None:
    """Raise SettingsError if a file to write is one to read, the run file, or another output."""
    if flow == "crossval" and file.transform:
        raise SettingsError("crossval saves no W to project rows with; use [fit]")
    outputs = {f"transform[{n}].out": each.out for n, each in enumerate(file.transform)}
    if file.report is not None:
        check_suffix(file.report, "report")
        outputs["report"] = file.report
    sources = (file.data.source, *(each.source for each in file.transform))
    # A report is no part of a table.
    tables = [each for each in sources if import_choices().is_table(each)]
    taken = {path.resolve()}
    for key, out in outputs.items():
        there = out.resolve()
        is_read = key != "report" and any(has_part(each, there) for each in tables)
        if is_read or there in taken:
            raise SettingsError(f"`{key}` is {str(out)!r}, which the run reads, or writes twice")
        taken.add(there)


def _settings(flow: str, file: Any, **given: Any) -> SavedRunSettings:
    """Return the settings of a flow from its table, and from the other keys of the file."""
    data, table = file.data, dataclasses.asdict(getattr(file, flow))
    common = {"dataset": data.source, "split": data.split, "label": data.label, "run": file.run}
    try:
        return FLOWS[flow](**table, **common, **given)
    except SettingsError as error:
        raise error if {*error.settings[:1]} & {*_ELSEWHERE} else within(error, flow) from error


def _ingest_settings(
    data: Any, settings: SavedRunSettings, *, force: bool
) -> IngestSettings | None:
    """Return how the table is ingested, None if the file names a data set."""
    given = dataclasses.asdict(data)
    source = given.pop("source")
    stored = not import_choices().is_table(source)
    if stored:
        del given["label"]  # a data set has labels
    else:
        if data.weights and not isinstance(settings, SearchSettings):
            raise SettingsError(
                f"`data.weights` is {data.weights!r}, but clusters have each row once; leave it "
                "out, or choose [fit] or [crossval]"
            )
        if not data.label and (settings.sides or isinstance(settings, SearchSettings)):
            raise SettingsError("`data.label` is not given; name the column to explain")
        given["label"] = ",".join(filter(None, (data.label, *settings.sides))) or None
    try:
        ingest = IngestSettings(dataset=source, force=force, scheduler=settings.scheduler, **given)
    except SettingsError as error:
        raise within(error, "data") from error
    return None if stored else ingest
