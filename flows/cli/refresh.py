"""The commands of refreshes: refresh, history, rollback, schedules and alerts; and cancel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.compute import connect_to_prefect, run_flow
from flows.cli.options import Plain
from flows.cli.output import Output
from flows.errors import SettingsError
from flows.settings.refresh import RefreshSettings

if TYPE_CHECKING:
    from flows.results.refresh import RefreshResult

RunName = Annotated[str, typer.Argument(metavar="RUN", help="The name of the published run.")]


def refresh(settings: RefreshSettings, *, plain: Plain = False, output: Output) -> None:
    """Fit the table of a run file again if it has changed, and publish the new run if it is sound.

    The new run is compared with the published one. Beyond the limits in the table [refresh] of
    the file it is kept, but not published, and the command fails.
    """
    from flows.refreshes.history import history_table  # noqa: PLC0415
    from flows.refreshes.refresh import check_refreshable  # noqa: PLC0415
    from flows.results.refresh import SUSPICIOUS  # noqa: PLC0415
    from flows.runs.published import History  # noqa: PLC0415

    check_refreshable(settings.plan)  # before a server is started for a file that is wrong
    result: RefreshResult = run_flow("refresh", settings, output, plain=plain)
    published = History(result.name).published
    output.show(history_table([result], published))
    output.say(f"{result.name} is {published}; `ism-dask history {result.name}` shows all runs")
    if result.state == SUSPICIOUS:
        output.fail(
            result.to_json(),
            f"{result.run} is not published: {'; '.join(result.reasons)}. To publish it all the "
            f"same: ism-dask rollback {result.run}",
        )
    output.finish(result.to_json())


def history(
    name: RunName,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write: .html or .md.")
    ] = None,
    output: Output,
) -> None:
    """Show all that happened to a published run; * marks the run that is published.

    A state in brackets is that of an old run, whose files are removed.
    """
    from flows.refreshes.history import (  # noqa: PLC0415
        history_table,
        known_history,
        reason_lines,
        write_history,
    )

    known = known_history(name)
    output.show(history_table(known.records, known.published))
    for line in reason_lines(known.records):
        output.say(line)
    path = None if out is None else str(write_history(known, out))
    if path is not None:
        output.say(path)
    refreshes = [each.to_json() for each in known.records]
    output.finish({"command": "history", "name": name, "refreshes": refreshes, "path": path})


def rollback(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run of a history, such as sales-0003; or the name of the published run, for "
            "the run before.",
        ),
    ],
    *,
    output: Output,
) -> None:
    """Publish an earlier run again, in one step, and write its report and its projected rows."""
    from flows.refreshes.refresh import rollback as publish  # noqa: PLC0415

    with output.watched():
        record = publish(run)
    output.say(f"{record.name} is {record.run}")
    for line in (*record.written, *record.reasons):
        output.say(line)
    output.finish({**record.to_json(), "command": "rollback"})


def schedule(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A run file (.toml).")],
    *,
    cron: Annotated[str, typer.Option(help="When, such as '0 2 * * *': at two in the night.")],
    timezone: Annotated[
        str, typer.Option(help="Time zone of --cron, such as Europe/Berlin.")
    ] = "UTC",
    output: Output,
) -> None:
    """Refresh a run at fixed times, by the worker of `ism-dask up`."""
    from flows.refreshes.refresh import check_refreshable  # noqa: PLC0415
    from flows.settings.run_file import read_run_file  # noqa: PLC0415

    name = check_refreshable(read_run_file(file, force=True))
    connect_to_prefect(output)
    from flows.tracking.schedules import schedule_refresh  # noqa: PLC0415

    url = schedule_refresh(name, file, cron, timezone)
    output.say(f"refresh/{name} runs at {cron!r} ({timezone}): {url}")
    output.finish(
        {"command": "schedule", "name": name, "cron": cron, "timezone": timezone, "url": url}
    )


def schedules(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The name of the published run.")
    ] = None,
    change: Annotated[
        str | None, typer.Argument(metavar="[CHANGE]", help="pause, resume or remove.")
    ] = None,
    *,
    output: Output,
) -> None:
    """List the schedules of refreshes; or pause, resume or remove the one of a run, and list them.

    The published run and its history stay.
    """
    if (name is None) != (change is None):
        raise SettingsError(f"{name!r} is given without a change; expected pause, resume or remove")
    connect_to_prefect(output)
    from flows.tracking.schedules import change_schedule, list_schedules  # noqa: PLC0415

    if name is not None and change is not None:
        change_schedule(name, change)
    known = list_schedules()
    columns = ("run", "cron", "time zone", "next (UTC)", "last", "run file")
    if known:
        output.table(columns, [each.cells() for each in known], left=len(columns))
    else:
        output.say("no schedules; `ism-dask schedule FILE --cron '0 2 * * *'` makes one")
    output.finish({"command": "schedules", "schedules": [each.to_json() for each in known]})


def alert(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL", help="A webhook, https://..., or mailto://user:password@host?to=..."
        ),
    ] = None,
    *,
    off: Annotated[bool, typer.Option("--off", help="Alert nobody any more.")] = False,
    output: Output,
) -> None:
    """Call a webhook or send a mail when a refresh fails, is suspicious, or was missed.

    Without a URL, it says who is alerted: at first nobody.
    """
    if off and url is not None:
        raise SettingsError("--off and a URL exclude each other; give one of them")
    connect_to_prefect(output)
    from flows.tracking import alerts  # noqa: PLC0415

    if off:
        alerts.switch_off()
    elif url is not None:
        alerts.switch_on(url)
    about = alerts.describe_alert()
    output.say(about or "refreshes alert nobody; `ism-dask alert URL` changes that")
    output.finish({"command": "alert", "on": bool(about), "about": about})


def cancel(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run; or a published one that is refreshed.")
    ],
    *,
    output: Output,
) -> None:
    """End a run that goes on, on this machine: `ism-dask resume` goes on with it.

    Its last iteration is saved, its cluster is released, and Prefect calls it Cancelled.
    """
    from flows.runs.inventory import cancel_run  # noqa: PLC0415

    with output.watched():
        pid = cancel_run(run)
    output.say(f"process {pid} has ended")
    output.finish({"command": "cancel", "run": run, "pid": pid})
