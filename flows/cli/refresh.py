"""The commands of refreshes: refresh, history, rollback and schedule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.compute import connect_to_prefect, run_flow
from flows.cli.options import Plain
from flows.cli.output import Output
from flows.settings.refresh import RefreshSettings

if TYPE_CHECKING:
    from flows.results.refresh import RefreshResult

RunName = Annotated[str, typer.Argument(metavar="RUN", help="The name of the published run.")]


def refresh(settings: RefreshSettings, *, plain: Plain = False, output: Output) -> None:
    """Fit the table of a run file again if it has changed, and publish the new run if it is sound.

    The new run is compared with the published one. Beyond the limits in the table [refresh] of
    the file it is kept, but not published, and the command fails.
    """
    from flows.refreshes.history import COLUMNS, history_rows  # noqa: PLC0415
    from flows.refreshes.published import published_run  # noqa: PLC0415
    from flows.results.refresh import SUSPICIOUS  # noqa: PLC0415

    result: RefreshResult = run_flow("refresh", settings, output, plain=plain)
    published = published_run(result.name)
    output.table(COLUMNS, history_rows([result], published), left=2)
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
    """Show the refreshes of a published run; * marks the one that is published.

    A state in brackets is that of an old run, whose files are removed.
    """
    from flows.refreshes.history import (  # noqa: PLC0415
        COLUMNS,
        history_rows,
        known_history,
        write_history,
    )
    from flows.refreshes.published import published_run  # noqa: PLC0415

    known = known_history(name)
    output.table(COLUMNS, history_rows(known, published_run(name)), left=2)
    path = None if out is None else str(write_history(name, out))
    if path is not None:
        output.say(path)
    refreshes = [each.to_json() for each in known]
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
    """Publish an earlier run again, in one step."""
    from flows.refreshes.published import rollback as publish  # noqa: PLC0415

    name, target = publish(run)
    output.say(f"{name} is {target}")
    output.finish({"command": "rollback", "name": name, "run": target})


def schedule(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A run file (.toml).")],
    *,
    cron: Annotated[str, typer.Option(help="When, such as '0 2 * * *': at two in the night, UTC.")],
    output: Output,
) -> None:
    """Refresh a run at fixed times, by the worker of `ism-dask up`."""
    from flows.refreshes.refresh import check_refreshable  # noqa: PLC0415
    from flows.settings.run_file import read_run_file  # noqa: PLC0415

    name = check_refreshable(read_run_file(file, force=True))
    connect_to_prefect(output)
    from flows.tracking.deployment import schedule_refresh  # noqa: PLC0415

    url = schedule_refresh(name, file, cron)
    output.say(f"refresh/{name} runs at {cron!r} (UTC): {url}")
    output.finish({"command": "schedule", "name": name, "cron": cron, "url": url})
