"""Refresh a published run: fit what is new, compare, and publish it; or publish an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from flows.errors import FlowError, SettingsError
from flows.progress.watching import progress_note, report_progress
from flows.refreshes.comparison import compare, doubts, share_of_equal_rows
from flows.reports.pages import write_report
from flows.results.refresh import (
    FAILED,
    PUBLISHED,
    ROLLED_BACK,
    SUSPICIOUS,
    UNCHANGED,
    RefreshResult,
)
from flows.results.runs import FitResult
from flows.runs.data import LabelledDataset, label_of
from flows.runs.fit import fit_and_save
from flows.runs.published import History, numbers_of, publishing
from flows.runs.table_ingestion import ingest_changed
from flows.runs.transform import transform_rows
from flows.settings.base import TransformSettings
from flows.settings.fields import deciding
from flows.settings.refresh import RefreshSettings
from flows.settings.run_file import RunFile, read_run_file
from flows.settings.runs import FitSettings
from ism_dask.status import Status
from storage import (
    Dataset,
    Model,
    StorageError,
    load_model,
    model_hash,
    refresh_run,
    refreshed_names,
    saved_run_path,
)
from storage.records import dumps
from storage.refreshes import record_paths

# The fields of a record of which the run file has no outputs, or they are as they were.
_NO_OUTPUTS: Mapping[str, Any] = {"written": (), "reasons": ()}


def refresh(settings: RefreshSettings) -> RefreshResult:
    """Refresh the run that a run file names; its history has the result, a failure too."""
    try:
        plan = settings.plan
        name = check_refreshable(plan)
    except SettingsError as error:
        _record_bad_file(settings.file, error)
        raise
    with publishing(name, _file_of(plan)) as history:
        try:
            result = _Refresh(plan, history).run(force=settings.force)
        except BaseException as error:
            reason = str(error) if isinstance(error, Exception) else "it was interrupted"
            with suppress(StorageError):  # the disk may be full
                history.fail(reason or type(error).__name__)
            raise
        assert plan.limits is not None
        history.prune(plan.limits.keep)
    if result.state in (PUBLISHED, FAILED) and result.reasons:
        raise FlowError(f"{result.run} is published, but {'; '.join(result.reasons)}")
    return result


def check_refreshable(plan: RunFile) -> str:
    """Return the name of the published run; raise an error for a file that cannot be refreshed."""
    if plan.flow != "fit" or plan.ingest is None:
        raise SettingsError(
            f"{plan.path}: a refresh needs the table [fit], and a table of its own as `data.source`"
        )
    if plan.limits is None:
        raise SettingsError(
            f"{plan.path}: a refresh needs the table [refresh]; an empty one has the default limits"
        )
    name = plan.settings.run
    if name is None:
        raise SettingsError(
            f"{plan.path}: a refresh needs `run`, the name of the published run", "run"
        )
    history = History(name)
    if history.file not in ("", _file_of(plan)) and _names_run(history.file, name):
        raise SettingsError(
            f"{plan.path}: `run` is {name!r}, which is refreshed by {history.file}; choose another "
            "name, or remove that file",
            "run",
        )
    if saved_run_path(name) is not None and not history.file:
        raise FlowError(
            f"there is a run {name!r} already, which no refresh has made; choose another `run`, or "
            f"remove it with `ism-dask remove run:{name}`"
        )
    return name


def _file_of(plan: RunFile) -> str:
    return str(plan.path.resolve())


def _names_run(file: str, name: str) -> bool:
    """Return whether a run file is there still, and names a run."""
    try:
        return read_run_file(Path(file)).settings.run == name
    except SettingsError:
        return False


def _record_bad_file(file: str, error: SettingsError) -> None:
    """Record a run file that cannot be read, or that is wrong, where it was refreshed before."""
    for name in refreshed_names():
        with suppress(StorageError, FlowError):
            if History(name).file == str(Path(file).resolve()):
                with publishing(name) as history:
                    history.fail(str(error))


class _Refresh:
    """One refresh of a published run, whose history this process has locked."""

    def __init__(self, plan: RunFile, history: History) -> None:
        assert plan.ingest is not None
        assert plan.limits is not None
        self._plan, self._history, self._limits = plan, history, plan.limits
        self._ingest = replace(plan.ingest, force=True)
        self._name, self._file = history.name, _file_of(plan)

    def run(self, *, force: bool) -> RefreshResult:
        """Return the result of the refresh, which is in the history then."""
        # All settings of table and fit that decide the result.
        settings = {"data": deciding(self._ingest), "fit": deciding(self._plan.settings)}
        data = ingest_changed(self._ingest)
        last, source = self._history.last_made, _digest_of(data)
        if last and not force and (last.source, last.settings) == (source, settings):
            return self._unchanged(last)
        has_run = saved_run_path(self._name) is not None
        published = load_model(self._name) if has_run else None
        run = refresh_run(self._name, 1 + len(self._history.runs))
        labelled, fitted, new = self._fit(run, data, published)
        comparison, equal = None, share_of_equal_rows(labelled)
        if published is not None:
            report_progress(0.97, "compare with the published run")
            current = self._history.published or self._name
            rows = (self._history.equal_rows_of(current), equal)
            comparison = compare(current, published, new, labelled, self._limits, equal_rows=rows)
        outcome: dict[str, Any] = {"reasons": doubts(fitted, comparison)}
        state = SUSPICIOUS if outcome["reasons"] else PUBLISHED
        if state == PUBLISHED:
            self._history.publish(run)
            outcome = outputs_or_reason(lambda: self._plan, self._name, new)
        record = replace(self._record_of(run, new, state), equal_rows=equal)
        return self._history.add(
            replace(record, comparison=comparison, source=source, settings=settings, **outcome)
        )

    def _record_of(self, run: str, model: Model, state: str) -> RefreshResult:
        """Return the record of a run that was made, without its source."""
        return RefreshResult(
            name=self._name,
            state=state,
            run=run,
            file=self._file,
            model_hash=model_hash(run),
            dataset=model.config["dataset"],
            **numbers_of(model.metrics),
        )

    def _unchanged(self, last: RefreshResult) -> RefreshResult:
        """Record that there is nothing to fit; write outputs that are stale."""
        progress_note("the source is as it was: nothing to fit")
        if last.state == SUSPICIOUS:
            return self._history.add(replace(last, written=()))
        outputs: Mapping[str, Any] = _NO_OUTPUTS
        later = self._history.records[self._history.records.index(last) :]
        if last.reasons and not any(each.state == UNCHANGED for each in later):
            outputs = outputs_or_reason(lambda: self._plan, self._name)
        record = replace(last, comparison=None, source="", settings={})
        state = FAILED if outputs["reasons"] else UNCHANGED
        return self._history.add(replace(record, state=state, **outputs))

    def _fit(
        self, run: str, data: Dataset, published: Model | None
    ) -> tuple[LabelledDataset, FitResult, Model]:
        """Fit W to the table, from the published one if the columns are the same."""
        settings = self._plan.stored_as(data.info.folder).settings
        assert isinstance(settings, FitSettings)
        settings = replace(settings, run=run, force=True)
        start = None
        if published is not None and published.feature_names == data.feature_names:
            q = len(published.components)
            if settings.n_components in (None, q):
                settings = replace(settings, n_components=q)
                # Its criterion chose that W, and fitted it.
                stayed = published.metrics["status"] == Status.START.value
                if published.config["criterion"] == settings.criterion and not stayed:
                    start, settings = published, replace(settings, start_from=self._name)
        return label_of(data, settings), *fit_and_save(settings, data, start)


def _digest_of(data: Dataset) -> str:
    """Return a digest of the rows of a table, and of how its columns were read."""
    schema = dumps(data.info.table and data.info.table["schema"])
    return sha256(f"{data.data_hash}{schema}".encode()).hexdigest()


def write_outputs(
    plan: RunFile, run: str, model: Model | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Project rows and write the report of a run; yield each path with the counts of the rows.

    A report has no counts. `model` is that of the run, if the caller has it.
    """
    for each in plan.transforms:
        counts = transform_rows(run, TransformSettings(**asdict(each)), model)
        yield str(each.out), counts
    if plan.report is not None:
        yield str(write_report(run, plan.report)), {}


def outputs_or_reason(
    plan: Callable[[], RunFile], run: str, model: Model | None = None
) -> dict[str, Any]:
    """Write the outputs of a run; return the fields of its record: paths, and what is stale.

    `plan` returns the run file, or raises a SettingsError.
    """
    written: list[str] = []
    reasons: tuple[str, ...] = ()
    try:
        written.extend(path for path, _ in write_outputs(plan(), run, model))
    except (FlowError, StorageError) as error:
        reasons = (f"outputs of the run file are stale: {error}",)
    return {"written": tuple(written), "reasons": reasons}


def rollback(run: str) -> RefreshResult:
    """Publish another run of a history, with the outputs of its run file; return the record.

    `run` is a run of a history, such as `sales-0003`; or the name of the published run, for the one
    that was published before it.
    """
    is_name = bool(record_paths(run))
    name = run if is_name else _published_name(run)
    with publishing(name) as history:
        target = history.before if is_name else run
        if target is None:
            raise FlowError(f"no run of {name!r} was published before {history.published}")
        record = _record_of(history, target)
        history.publish(target)
        outputs = outputs_or_reason(partial(read_run_file, Path(history.file)), name)
        now = replace(record, state=ROLLED_BACK, times=1, comparison=None, **outputs)
        return history.add(now)


def _published_name(run: str) -> str:
    name = run.rpartition("-")[0]
    if not (name and record_paths(name)):
        raise SettingsError(f"{run!r} is no run of a refresh")
    return name


def _record_of(history: History, run: str) -> RefreshResult:
    """Return the record of a run; raise a SettingsError unless the history has it, with files."""
    records = {each.run: each for each in history.records if each.run}
    if run in records and records[run].pruned:
        raise SettingsError(
            f"the files of {run!r} were removed, for it is an old run (`keep` in [refresh] sets "
            "how many stay)",
            "keep",
        )
    if run not in records:
        have = ", ".join(each for each in records if not records[each].pruned)
        raise SettingsError(f"{run!r} is no run of a refresh; there are {have}")
    return records[run]
