"""The commands of run files: run and init."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.compute import computed_run
from flows.cli.options import Plain
from flows.cli.output import Output
from flows.cli.stored import ingested, show_projected
from flows.errors import FlowError, SettingsError

if TYPE_CHECKING:
    from flows.settings.run_file import RunFile
    from flows.settings.runs import NamedRunSettings


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A run file (.toml).")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would do; store nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the data set and the run that are stored.")
    ] = False,
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Start from the beginning, not from a checkpoint.")
    ] = False,
    plain: Plain = False,
    output: Output,
) -> None:
    """Run all that a run file says: ingest its table, fit, project rows, write the report."""
    from flows.refreshes.refresh import write_outputs  # noqa: PLC0415
    from flows.runs.resumable import check_name_is_free  # noqa: PLC0415
    from flows.settings.run_file import read_run_file  # noqa: PLC0415

    plan = read_run_file(file, force=force, afresh=afresh)
    if dry_run:
        _show(plan, output)
        return
    if plan.settings.run is not None and plan.settings.keep_runs is None:
        # Before the table is read, and its columns are shown.
        check_name_is_free(plan.settings.run, force=force)
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
    answer = {**result.to_json(), "written": [path for path, _ in written]}
    if plan.crossval is not None:
        validated = computed_run("crossval", plan.crossval, output, plain=plain)
        answer["crossval"] = validated.to_json()
    output.finish(answer)


def _show(plan: RunFile, output: Output) -> None:
    """Show what a run file would do."""
    answer: dict[str, Any] = {"command": "run", "dry_run": True}
    if plan.ingest is not None:
        looked = dataclasses.replace(plan.ingest, dry_run=True)
        answer["ingest"] = ingested(looked, output, plain=True).to_json()
    steps = [
        [plan.flow, _changed_words(plan.settings)],
        *(["transform", f"{each.source} -> {each.out}"] for each in plan.transforms),
        *([["report", str(plan.report)]] if plan.report else []),
        *([["crossval", _changed_words(plan.crossval)]] if plan.crossval else []),
    ]
    output.table(("step", "with"), steps, left=2)
    output.say("nothing was stored: a dry run")
    output.finish({**answer, "flow": plan.flow, "settings": plan.settings.to_json()})


def _changed_words(settings: NamedRunSettings) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.differences.items())


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The run file to write.")],
    *,
    data: Annotated[str | None, typer.Option(help="The table that it reads.")] = None,
    label: Annotated[str | None, typer.Option(help="The column to explain.")] = None,
    flow: Annotated[str, typer.Option(help="fit, crossval, cluster or unfold.")] = "fit",
    schema: Annotated[
        bool, typer.Option("--schema", help="Write the JSON schema of run files instead.")
    ] = False,
    output: Output,
) -> None:
    """Write a run file with every setting, its meaning and its default."""
    import json  # noqa: PLC0415

    from flows.settings.fields import check_choice  # noqa: PLC0415
    from flows.settings.run_file import FLOWS  # noqa: PLC0415
    from flows.settings.run_file_text import (  # noqa: PLC0415
        commented_run_file,
        run_file_schema,
    )

    check_choice("flow", flow, list(FLOWS))
    if file.exists():
        raise SettingsError(f"{file} exists already; choose another name, or remove it first")
    text = commented_run_file(flow, data, label)
    if schema:
        text = json.dumps(run_file_schema(), indent=2) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FlowError(f"cannot write {file}: {error.strerror}") from error
    output.say(f"wrote {file}" + ("" if schema else f"; run it with `ism-dask run {file}`"))
    output.finish({"command": "init", "path": str(file)})
