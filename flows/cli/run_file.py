"""The commands of run files: init and run; history and schedule of refreshes."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from flows.cli.compute import check_found, computed_run, connect_to_prefect, run_flow
from flows.cli.options import Plain, Replace, check_free
from flows.cli.output import Output
from flows.cli.stored import ingested, show_projected
from flows.errors import SettingsError
from flows.settings.refresh import RefreshSettings

if TYPE_CHECKING:
    from flows.results.refresh import RefreshResult
    from flows.settings.run_file import RunFile

RunFilePath: TypeAlias = Annotated[Path, typer.Argument(metavar="FILE", help="A run file (.toml).")]


def run(
    file: RunFilePath,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would do; store nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace what is stored, and files; refresh even if the table has not changed.",
        ),
    ] = False,
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Start from the beginning, not from a checkpoint.")
    ] = False,
    plain: Plain = False,
    output: Output,
) -> None:
    """Do what a run file says: ingest its table, fit, transform rows, write the report.

    A file with the table [refresh] refreshes its run: if data or settings have changed, W is fitted
    again. A fit within the limits of that table is published, with its outputs. Any other is saved,
    but not published, and the command fails.
    """
    from flows.refreshes.refresh import check_refreshable, write_outputs  # noqa: PLC0415
    from flows.runs.resumable import check_name_is_free  # noqa: PLC0415

    settings = RefreshSettings(file=str(file), force=force, afresh=afresh)
    plan = settings.plan
    refreshes = [] if plan.limits is None else check_refreshable(plan).records
    if dry_run:
        _show(plan, output)
        return
    # Before the table is read, and its columns are shown.
    if plan.limits is None and plan.settings.run is not None:
        check_name_is_free(plan.settings.run, force=force)
    _check_outputs_free(plan, refreshes, force=force)
    if plan.limits is not None:
        _refresh(settings, output, plain=plain)
        return
    check_found(*(each.source for each in plan.transforms))
    if plan.ingest is not None:
        plan = plan.stored_as(ingested(plan.ingest, output, plain=plain).dataset)
    result = computed_run(plan.flow, plan.settings, output, plain=plain)
    with output.watched():
        written = list(write_outputs(plan, result.run))
    for path, counts in written:
        if counts:
            show_projected(counts, output)
        else:
            output.say(path)
    output.finish({**result.to_json(), "written": [path for path, _ in written]})


def _show(plan: RunFile, output: Output) -> None:
    """Show what a run file would do."""
    check_found(*(each.source for each in plan.transforms))
    answer: dict[str, Any] = {"command": "run", "dry_run": True}
    if plan.ingest is not None:
        looked = dataclasses.replace(plan.ingest, dry_run=True)
        answer["ingest"] = ingested(looked, output, plain=True).to_json()
    changed = (f"{key}={value}" for key, value in plan.settings.differences.items())
    steps = [
        [plan.flow, ", ".join(changed)],
        *(["transform", f"{each.source} -> {each.out}"] for each in plan.transforms),
        *([["report", str(plan.report)]] if plan.report else []),
        *([["publish", "if it is within the limits of [refresh]"]] if plan.limits else []),
    ]
    output.table(("step", "with"), steps, left=2)
    output.say("nothing was stored: a dry run")
    output.finish({**answer, "flow": plan.flow, "settings": plan.settings.to_json()})


def _check_outputs_free(plan: RunFile, refreshes: list[RefreshResult], *, force: bool) -> None:
    """Raise SettingsError if an output exists, unless one of the refreshes has written it."""
    ours = {path for each in refreshes for path in each.written}
    check_free(*(each for each in plan.outs if str(each.resolve()) not in ours), force=force)


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The run file to write.")],
    *,
    data: Annotated[str | None, typer.Option(help="The table that it reads.")] = None,
    label: Annotated[str | None, typer.Option(help="The column to explain.")] = None,
    flow: Annotated[str, typer.Option(help="fit, crossval or cluster.")] = "fit",
    full: Annotated[bool, typer.Option("--full", help="Write every setting.")] = False,
    force: Replace = False,
    output: Output,
) -> None:
    """Write a run file: settings with their meanings and defaults."""
    from flows.settings.base import import_choices  # noqa: PLC0415
    from flows.settings.fields import check_choice  # noqa: PLC0415
    from flows.settings.run_file import FLOWS  # noqa: PLC0415
    from flows.settings.run_file_text import commented_run_file  # noqa: PLC0415
    from storage.atomic import replace_synced  # noqa: PLC0415

    check_choice("flow", flow, list(FLOWS))
    check_free(file, force=force)
    choices = import_choices()
    if data and data[0] not in "/~" and choices.is_path(data):
        data = os.path.relpath(data, file.parent)  # where relative paths of the file start
        data = data if choices.is_table(data) else f"./{data}"
    replace_synced(file, commented_run_file(flow, data, label, full=full))
    output.say(f"wrote {file}; run it with `ism-dask run {file}`")
    output.finish({"command": "init", "path": str(file)})


def _refresh(settings: RefreshSettings, output: Output, *, plain: bool) -> None:
    """Refresh the run of a run file; the command fails if the new run is not published."""
    from flows.refreshes.history import ON_TERMINAL, history_table  # noqa: PLC0415
    from flows.results.refresh import PUBLISHED, SUSPICIOUS  # noqa: PLC0415
    from flows.runs.published import History  # noqa: PLC0415

    result: RefreshResult = run_flow("refresh", settings, output, plain=plain)
    is_published = result.state == PUBLISHED
    published = result.run if is_published else History(result.name).published
    output.show(history_table([result], published, ON_TERMINAL))
    about = f"{result.name} is {published}" if published else f"{result.name} is not published"
    output.say(f"{about}; `ism-dask history {result.name}` shows all runs")
    if result.state == SUSPICIOUS:
        output.fail(
            result.to_json(),
            f"{result.run} is not published: {'; '.join(result.reasons)}. To publish it all the "
            f"same: ism-dask history {result.run} --rollback",
        )
    output.finish(result.to_json())


def history(
    name: Annotated[str, typer.Argument(metavar="RUN", help="The name of the published run.")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write: .html, .md or .json.")
    ] = None,
    force: Replace = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Publish this run again, or the run before.")
    ] = False,
    output: Output,
) -> None:
    """Show the refreshes and rollbacks of a published run; * marks what is published.

    With --rollback an earlier run is published again: RUN, such as sales-0003, or the run before
    if RUN is the name of the published one. A state in brackets is that of an old run, whose files
    are removed.
    """
    from flows.refreshes import history as pages  # noqa: PLC0415
    from flows.reports.pages import write_summary  # noqa: PLC0415

    if rollback:
        from flows.refreshes.refresh import rollback as publish_again  # noqa: PLC0415

        if out is not None:
            raise SettingsError("--rollback and --out exclude each other; give one of them")

        with output.watched():
            record = publish_again(name)
        output.say(f"{record.name} is {record.run}")
        for line in record.written:
            output.say(line)
        answer = {**record.to_json(), "command": "history"}
        if record.reasons:
            output.fail(answer, f"{record.run} is published, but {'; '.join(record.reasons)}")
        output.finish(answer)
        return
    check_free(out, force=force)
    known = pages.known_history(name)
    output.show(pages.history_table(known.records, known.published, pages.ON_TERMINAL))
    for line in pages.reason_lines(known.records):
        output.say(line)
    if out is not None:
        write_summary(out, pages.history_summary(known))
        output.say(str(out))
    refreshes = [each.to_json() for each in known.records]
    output.finish({"command": "history", "name": name, "refreshes": refreshes, "path": out})


def schedule(
    file: RunFilePath,
    *,
    cron: Annotated[str, typer.Option(help="When, such as '0 2 * * *': at two at night.")],
    timezone: Annotated[
        str, typer.Option(help="Time zone of --cron, such as Europe/Berlin.")
    ] = "UTC",
    force: Replace = False,
    output: Output,
) -> None:
    """Refresh a run at fixed times, by the worker of `ism-dask up`.

    `prefect deployment` lists the schedules, pauses and removes them.
    """
    from flows.refreshes.refresh import check_refreshable  # noqa: PLC0415
    from flows.settings.run_file import read_run_file  # noqa: PLC0415

    plan = read_run_file(file, force=True)
    history = check_refreshable(plan)
    name = history.name
    _check_outputs_free(plan, history.records, force=force)  # the first refresh would replace them
    connect_to_prefect(output)
    from flows.tracking.schedules import schedule_refresh  # noqa: PLC0415

    url = schedule_refresh(name, file, cron, timezone)
    output.say(f"refresh/{name} runs at {cron!r} ({timezone}): {url}")
    output.finish(
        {"command": "schedule", "name": name, "cron": cron, "timezone": timezone, "url": url}
    )
