"""Build the summary of a run: the one place that puts its figures into words.

A figure that is added here appears on the terminal, in the Markdown page, in the HTML report and
in the JSON of the report.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flows.errors import ALTERED, FlowError
from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.reports.crossval import crossval_summary
from flows.reports.fits import cluster_summary, fit_summary
from flows.reports.view import View
from flows.results.base import RunResult
from flows.results.runs import ClusterResult, CrossvalResult, FitResult
from flows.settings.fields import command_words, decisive_names
from flows.settings.run_file import FLOWS
from flows.settings.runs import NamedRunSettings
from flows.text import count_noun, number
from storage import Run

# What puts the results of each kind of run into words.
_KINDS: Mapping[type[RunResult], Callable[..., Summary]] = {
    FitResult: fit_summary,
    ClusterResult: cluster_summary,
    CrossvalResult: crossval_summary,
}


def summarise(result: RunResult, view: View | None = None) -> Summary:
    """Return the summary of a result; with the view of its saved run, all that a page shows."""
    summary = _KINDS[type(result)](result, view)
    origin = () if view is None else (_repetition(result), _configuration(view.run))
    blocks = (*summary.blocks, *origin)
    return replace(summary, run=result.run, kind=result.command, blocks=blocks)


def summary_of(view: View) -> Summary:
    """Return the summary of a saved run; raise a FlowError if it has no record of a known kind."""
    try:
        return summarise(view.result, view)
    except ALTERED as error:
        raise FlowError(
            f"the record of {view.run.name!r} has other values than a run writes "
            f"({type(error).__name__}: {error}); compute the run again"
        ) from error


def log_line(result: RunResult) -> str:
    """Return what the log says of a result: its run, data, settings and all main figures."""
    summary = summarise(result)
    facts = ", ".join(f"{fact.name} {fact.value}" for fact in summary.facts)
    return f"{result.run}: {summary.subject}: {facts}"


def card_line(result: RunResult) -> str:
    """Return what the card of a run says: its name, data, main figure and number of warnings."""
    summary = summarise(result)
    warnings = count_noun(len(summary.warnings), "warning") if summary.warnings else ""
    return ", ".join(filter(None, (result.run, summary.short, summary.headline, warnings)))


def _repetition(result: Any) -> Block:
    """Return how to repeat a run: its command, data and place."""
    words = [result.command, *command_words(FLOWS[result.command], result.settings)]
    facts = (
        Fact("Data", result.data_hash, say("run.data")),
        Fact("Computed on", result.host or ""),
        Fact("Flow run", result.page or "", "Its page in the Prefect UI."),
    )
    return Block(
        "How to repeat it",
        about=say("run.repeat"),
        facts=tuple(fact for fact in facts if fact.value),
        command=shlex.join(["ism-dask", *words, "--run", f"{result.run}-again"]),
        detail=True,
    )


def _configuration(run: Run) -> Block:
    """Return the settings of a run, the kernel parameters fitted to its data, and versions."""
    fitted = run.metrics.get("fitted_kernel", {})
    parameters = {f"fitted {key}": value for key, value in fitted.items() if key != "name"}
    hidden = decisive_names(NamedRunSettings, "nothing")
    rows = tuple(
        (key.replace("_", " "), _to_text(value))
        for key, value in {**run.config, **parameters}.items()
        if value is not None and key not in hidden
    )
    versions = tuple((name, str(version)) for name, version in run.versions.items())
    return Block(
        "Configuration",
        tables=(
            Table("Settings.", ("setting", "value"), rows, left=2),
            Table("What it was computed with.", ("package", "version"), versions, left=2),
        ),
        detail=True,
    )


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_to_text, value))
    return number(value) if isinstance(value, float) else str(value)
