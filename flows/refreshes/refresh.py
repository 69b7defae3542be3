"""Refresh a published run: fit what is new, compare, and publish it; or publish an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
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
    Comparison,
    RefreshResult,
)
from flows.results.runs import FitResult
from flows.runs.data import ensure_stored
from flows.runs.fit import fit_and_save
from flows.runs.published import History, publishing
from flows.runs.table_ingestion import ingest_changed
from flows.runs.transform import transform_rows
from flows.settings.base import TransformSettings
from flows.settings.choices import is_table
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
    open_run,
    refresh_run,
    refreshed_names,
    saved_run_path,
)
from storage.records import dumps
from storage.refreshes import record_paths
from storage.tables.files import find_files


def refresh(settings: RefreshSettings) -> RefreshResult:
    """Refresh the run that a run file names; its history has the result, a failure too."""
    try:
        plan = settings.plan
        name = check_refreshable(plan).name
    except SettingsError as error:
        _record_bad_file(settings.file, error)
        raise
    with publishing(name, _file_of(plan)) as history:
        try:
            result = _refreshed(settings, history)
        except BaseException as error:
            reason = str(error) if isinstance(error, Exception) else "it was interrupted"
            with suppress(StorageError):  # the disk may be full
                history.fail(reason or type(error).__name__)
            raise
        assert plan.limits is not None
        history.prune(plan.limits.keep)
    if result.state in (PUBLISHED, FAILED) and result.reasons:
        raise FlowError(f"{history.published} is published, but {'; '.join(result.reasons)}")
    return result


def check_refreshable(plan: RunFile) -> History:
    """Return the history of the published run; raise an error if a file cannot be refreshed."""
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
    # The first refresh may have been killed once its run was published.
    if not history.file and model_hash(name) not in ("", model_hash(refresh_run(name, 1))):
        raise _not_ours(name)
    return history


def _not_ours(run: str) -> FlowError:
    return FlowError(
        f"there is a run {run!r} already, which no refresh has made; choose another `run`, or "
        f"remove it with `ism-dask remove run:{run}`"
    )


def _file_of(plan: RunFile) -> str:
    return str(plan.path.resolve())


def _names_run(file: str, name: str) -> bool:
    """Return whether a run file is there still, and names a run."""
    with suppress(SettingsError):
        return read_run_file(Path(file)).settings.run == name
    return False


def _record_bad_file(file: str, error: SettingsError) -> None:
    """Record a run file that cannot be read, or that is wrong, where it was refreshed before."""
    for name in refreshed_names():
        with suppress(StorageError, FlowError):
            if History(name).file == str(Path(file).resolve()):
                with publishing(name) as history:
                    history.fail(str(error))


def _refreshed(settings: RefreshSettings, history: History) -> RefreshResult:
    """Return the result of a refresh, which is in the history then."""
    plan, last = settings.plan, history.last_made
    assert plan.ingest is not None
    data = ingest_changed(plan.ingest, replaces=last.dataset if last else "")
    # All settings of table and fit that decide the result, however the path of the table is spelt.
    stored = {"dataset": data.info.folder}
    decided = {"data": deciding(plan.ingest) | stored, "fit": deciding(plan.settings) | stored}
    schema = dumps(data.info.table and data.info.table["schema"])
    source = sha256(f"{data.data_hash}{schema}".encode()).hexdigest()
    # The last result is void if its run was removed, or if another fit has replaced it.
    valid = last and not last.pruned and (history.published or last.state == SUSPICIOUS)
    if last and valid and (last.source, last.settings, settings.force) == (source, decided, False):
        return _unchanged(settings, history, last)
    fitted, model, equal, comparison = _fitted_again(plan, history, data, decided)
    outcome: dict[str, Any] = {"reasons": doubts(fitted, comparison)}
    state = SUSPICIOUS if outcome["reasons"] else PUBLISHED
    if state == PUBLISHED:
        history.publish(fitted.run)
        outcome = outputs_or_reason(settings, history.name, model)
    record = RefreshResult(
        name=history.name,
        state=state,
        run=fitted.run,
        file=_file_of(plan),
        rows=fitted.rows,
        equal_rows=equal,
        objective=fitted.objective,
        seconds=fitted.seconds,
        iterations=fitted.iterations,
        comparison=comparison,
        source=source,
        settings=decided,
        model_hash=model_hash(fitted.run),
        dataset=fitted.dataset,
        **outcome,
    )
    return history.add(record)


def _fitted_again(
    plan: RunFile, history: History, data: Dataset, decided: Mapping[str, Any]
) -> tuple[FitResult, Model, float, Comparison | None]:
    """Fit the table as the next run of the history, and compare it with the published one.

    Return the result and its model, the share of equal rows, and the comparison if there is one.
    """
    name, run = history.name, refresh_run(history.name, 1 + len(history.runs))
    current = history.published or name
    if current == name and history.runs and model_hash(name) == model_hash(run):
        current = name = history.before or name  # a refresh was killed before it recorded the run
    published = load_model(name) if history.runs and saved_run_path(name) else None
    before = next((each for each in history.records if each.run == current), None)
    settings = replace(plan.stored_as(data.info.folder).settings, run=run, force=True)
    assert isinstance(settings, FitSettings)
    assert plan.limits is not None
    start = None
    # What other settings have chosen is no start, nor are weights of other columns.
    is_alike = before is not None and before.settings == decided
    if published and is_alike and published.feature_names == data.feature_names:
        settings = replace(settings, n_components=published.n_components)
        if published.metrics["status"] != Status.START.value:  # else no fit has moved that W
            settings, start = replace(settings, start_from=current), published
    if saved_run_path(run) is not None:  # by a refresh that was killed, if it is the same fit
        config, own = open_run(run).config, deciding(settings)
        if any(config.get(key) != own[key] for key in own if key != "start_from"):
            raise _not_ours(run)
    fitted, model, rows, y = fit_and_save(settings, data, start)
    equal = share_of_equal_rows(rows, y)
    if published is None:
        return fitted, model, equal, None
    report_progress(0.97, "compare with the published run")
    shares = before.equal_rows if before else 0.0, equal
    comparison = compare(current, published, model, rows, plan.limits, equal_rows=shares)
    return fitted, model, equal, comparison


def _unchanged(settings: RefreshSettings, history: History, last: RefreshResult) -> RefreshResult:
    """Record that there is nothing to fit; write outputs that are stale."""
    progress_note("the source is as it was: nothing to fit")
    # A refresh or a rollback that has failed may have left the outputs of an earlier run.
    before = next((each for each in history.records[::-1] if each.state != SUSPICIOUS), last)
    outputs: dict[str, Any] = {"written": before.written, "projected": before.projected}
    are_fresh = False
    with suppress(FlowError, StorageError):  # which writing them will tell of
        are_there = all(each.exists() for each in settings.plan.outs)
        are_fresh = are_there and before.projected == _versions_projected(settings.plan)
    if history.published and not are_fresh:
        outputs = outputs_or_reason(settings, history.name)
    reasons = outputs.pop("reasons", ())
    if last.state == SUSPICIOUS and history.published != last.run:
        return history.add(replace(last, **outputs))
    outputs |= {"state": FAILED if reasons else UNCHANGED, "reasons": reasons}
    return history.add(replace(last, comparison=None, source="", settings={}, **outputs))


def write_outputs(
    plan: RunFile, run: str, model: Model | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Project rows and write the report of a run; yield each path with the counts of the rows.

    A report has no counts. `model` is that of the run, if the caller has it.
    """
    model = load_model(run) if plan.transforms and model is None else model
    for each in plan.transforms:
        yield str(each.out), transform_rows(run, TransformSettings(**asdict(each)), model)
    if plan.report is not None:
        yield str(write_report(run, plan.report, model)), {}


def outputs_or_reason(
    settings: RefreshSettings, run: str, model: Model | None = None
) -> dict[str, Any]:
    """Write the outputs of a run; return the fields of its record: paths, and what is stale."""
    written, projected, reasons = list[str](), "", tuple[str, ...]()
    try:
        projected = _versions_projected(settings.plan)
        for path, _ in write_outputs(settings.plan, run, model):
            written.append(str(Path(path).resolve()))
    except (FlowError, StorageError) as error:
        projected, reasons = "", (f"outputs of the run file are stale: {error}",)
    return {"written": tuple(written), "projected": projected, "reasons": reasons}


def _versions_projected(plan: RunFile) -> str:
    """Return a digest of how outputs project rows, and of the present version of these."""
    versions = [
        find_files(each.source).versions()
        if is_table(each.source)
        else ensure_stored(each.source, each.split).data_hash
        for each in plan.transforms
    ]
    return sha256(repr((plan.transforms, versions)).encode()).hexdigest()


def rollback(run: str) -> RefreshResult:
    """Publish another run of a history, with the outputs of its run file; return the record.

    `run` is a run of a history, such as `sales-0003`; or the name of the published run, for the one
    that was published before it.
    """
    is_name = bool(record_paths(run))
    name = run if is_name else run.rpartition("-")[0]
    if not (name and record_paths(name)):
        raise SettingsError(f"{run!r} is no run of a refresh")
    with publishing(name) as history:
        target = history.before if is_name else run
        if target is None:
            raise FlowError(f"{name!r} has no earlier published run to go back to")
        records = {each.run: each for each in history.records if each.run}
        if target not in records:
            have = ", ".join(each for each in records if not records[each].pruned)
            raise SettingsError(f"{target!r} is no run of a refresh; there are {have}")
        record = records[target]
        if record.pruned:
            raise SettingsError(
                f"the files of {target!r} were removed, for it is an old run (`keep` in [refresh] "
                "sets how many stay)",
                "keep",
            )
        history.publish(target)
        outputs = outputs_or_reason(RefreshSettings(file=history.file), name)
        return history.add(replace(record, state=ROLLED_BACK, comparison=None, **outputs))
