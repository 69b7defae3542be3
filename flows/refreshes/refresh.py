"""Refresh a published run: read what is new, fit again, compare, and publish if nothing is odd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.errors import FlowError, SettingsError
from flows.progress.run_context import check_credentials
from flows.progress.watching import progress_note, report_progress
from flows.refreshes.comparison import compare, doubts
from flows.refreshes.outputs import write_outputs
from flows.refreshes.published import history_of, prune, published_run, refreshing
from flows.results.refresh import PUBLISHED, SUSPICIOUS, UNCHANGED, RefreshResult
from flows.results.runs import FitResult
from flows.runs.data import LabelledDataset, label_of
from flows.runs.fit import fit_and_save
from flows.settings.choices import table_options
from flows.settings.fields import deciding
from flows.settings.refresh import RefreshSettings
from flows.settings.run_file import RunFile, read_run_file
from flows.settings.runs import FitSettings
from ism_dask.status import Status
from storage import (
    Model,
    add_to_history,
    load_model,
    model_hash,
    publish_run,
    read_history,
    refresh_run,
    saved_run_path,
)


def refresh(settings: RefreshSettings) -> RefreshResult:
    """Refresh the run that a run file names, and add the result to its history."""
    plan = read_run_file(Path(settings.file), force=True)
    name = check_refreshable(plan)
    with refreshing(name):
        result = _Refresh(plan, name).run(force=settings.force)
        prune(name, plan.limits.keep)
    return result


def credentials_of(settings: RefreshSettings) -> str | None:
    """Return the Prefect block with the credentials of a run file's table, None without one."""
    ingest = read_run_file(Path(settings.file), force=True).ingest
    return None if ingest is None else ingest.credentials


def check_refreshable(plan: RunFile) -> str:
    """Return the name of the published run; raise an error for a file that cannot be refreshed."""
    if plan.flow != "fit" or plan.ingest is None:
        raise SettingsError(
            f"{plan.path}: a refresh needs the table [fit], and a table of its own as `data.source`"
        )
    name = plan.settings.run
    if name is None:
        raise SettingsError(f"{plan.path}: a refresh needs `run`, the name of the published run")
    if saved_run_path(name) is not None and not read_history(name):
        raise FlowError(
            f"there is a run {name!r} already, which no refresh has published; choose another "
            "`run`, or remove it"
        )
    return name


def _can_continue(published: Model, settings: FitSettings) -> bool:
    """Return whether a fit may start at the published W: its criterion chose it, and fitted it."""
    kept_start = published.metrics["status"] == Status.START.value
    return published.config["criterion"] == settings.criterion and not kept_start


class _Refresh:
    """One refresh of a published run.

    Parameters
    ----------
    plan : RunFile
    name : str
        The published run.
    """

    def __init__(self, plan: RunFile, name: str) -> None:
        assert plan.ingest is not None
        self._plan, self._name, self._ingest = plan, name, plan.ingest
        self._history = history_of(name)
        number = 1 + len({each.run for each in self._history})
        self._run = refresh_run(name, number)

    def run(self, *, force: bool) -> RefreshResult:
        """Return the result of the refresh, which is in the history then."""
        settings = self._record()
        files = self._files()
        last = self._history[-1] if self._history else None
        if last and not force and files and (last.files, last.settings) == (files, settings):
            progress_note("the source is as it was: nothing to fit")
            state = SUSPICIOUS if last.state == SUSPICIOUS else UNCHANGED
            return self._added(replace(last, state=state, written=(), flow_run=None))
        fit_settings, labelled, fitted = self._fit()
        comparison = None
        if self._published is not None:
            report_progress(0.97, "compare with the published run")
            new = load_model(self._run)
            comparison = compare(
                published_run(self._name) or self._name,
                self._published,
                new,
                labelled,
                fit_settings,
            )
        reasons = doubts(fitted, comparison, self._plan.limits)
        written: tuple[str, ...] = ()
        if not reasons:
            publish_run(self._run, self._name)
            written = tuple(each.path for each in write_outputs(self._plan, self._name))
        model = load_model(self._run)
        return self._added(
            RefreshResult(
                name=self._name,
                state=SUSPICIOUS if reasons else PUBLISHED,
                run=self._run,
                reasons=tuple(reasons),
                rows=fitted.rows,
                objective=fitted.fitted.objective,
                seconds=fitted.fitted.ending.seconds,
                iterations=fitted.fitted.ending.iterations,
                components=tuple(map(tuple, model.components.tolist())),
                columns=model.feature_names or (),
                comparison=comparison,
                files=files,
                settings=settings,
                model_hash=model_hash(self._run),
                written=written,
                dataset=labelled.data.info.folder,
            )
        )

    @property
    def _published(self) -> Model | None:
        return load_model(self._name) if saved_run_path(self._name) is not None else None

    def _record(self) -> dict[str, Any]:
        """Return all settings of table and fit that decide the result."""
        return {"data": deciding(self._ingest), "fit": deciding(self._plan.settings)}

    def _files(self) -> tuple[Mapping[str, Any], ...]:
        """Return the files of the source with their versions; none if these are unknown."""
        # They import pyarrow, an extra.
        from storage.tables.files import have_versions  # noqa: PLC0415
        from storage.tables.formats import open_table  # noqa: PLC0415

        check_credentials(self._ingest.credentials)
        options = table_options(self._ingest)
        files = open_table(self._ingest.dataset, options).versions()
        return tuple(map(asdict, files)) if have_versions(files) else ()

    def _fit(self) -> tuple[FitSettings, LabelledDataset, FitResult]:
        """Ingest the table and fit W, from the published one if the columns are the same."""
        from flows.runs.table_ingestion import ingest_changed  # noqa: PLC0415 - imports pyarrow

        data = ingest_changed(self._ingest)
        settings = self._plan.stored_as(data.info.folder).settings
        assert isinstance(settings, FitSettings)
        settings = replace(settings, run=self._run, keep_runs=None)
        published = self._published
        if published is not None and published.feature_names == data.feature_names:
            q = len(published.components)
            if settings.n_components in (None, q):
                start = self._name if _can_continue(published, settings) else None
                settings = replace(settings, n_components=q, start_from=start)
        return settings, label_of(data, settings), fit_and_save(settings, data)

    def _added(self, result: RefreshResult) -> RefreshResult:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        result = replace(result, time=now)
        add_to_history(self._name, result.to_json())
        return result
