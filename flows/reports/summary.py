"""Saved runs, and the summary of each: the one place that puts the figures of a run into words.

A figure that is added here appears on the terminal, in the Markdown page, in the HTML report and
in the JSON of the report.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from flows.errors import ALTERED, FlowError
from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.reports.crossval import crossval_summary
from flows.reports.fits import cluster_summary, fit_summary
from flows.results.runs import ClusterResult, CrossvalResult, FitResult, RunResult, largest
from flows.settings.fields import command_words
from flows.settings.run_file import FLOWS
from flows.settings.runs import SavedRunSettings
from ism_dask.words import byte_size, count_noun, number
from storage import Model, Run, load_model, open_run
from storage.runs import MODELS

# What puts the results of each kind of run into words.
_KINDS: Mapping[type[RunResult], Callable[..., Summary]] = {
    FitResult: fit_summary,
    ClusterResult: cluster_summary,
    CrossvalResult: crossval_summary,
}
# Columns of the table for people, which fits a terminal of 80 columns, and of the index of reports.
COLUMNS = ("name", "kind", "data", "result", "saved")
INDEX_COLUMNS = ("name", "kind", "data, kernel", "result", "saved (UTC)", "size")


@dataclass(frozen=True, eq=False)
class View:
    """A run and its model; the model is None if the run has none."""

    run: Run
    model: Model | None

    @classmethod
    def of(cls, name: str, model: Model | None = None) -> View:
        """Open a run with its `model`, which is loaded if it is not given."""
        run = open_run(name)
        is_to_load = model is None and run.kind in MODELS
        return cls(run, load_model(run.path) if is_to_load else model)

    @cached_property
    def result(self) -> RunResult:
        """The result of the run, as its flow has returned it; raise a FlowError if it has none."""
        run = self.run
        place = {"run": run.name, "path": str(run.path), "settings": run.config}
        for kind in _KINDS:
            if kind.command == run.kind:
                with suppress(ValueError):
                    return kind.from_json({**run.metrics, **place})
        raise FlowError(
            f"{run.name!r} has no record of how it came about: it was not made by `ism-dask`, or "
            "by a later version of it"
        )


def summarise(result: RunResult, view: View | None = None) -> Summary:
    """Return the summary of a result; with the view of its saved run, all that a page shows."""
    summary = _KINDS[type(result)](result, view and view.model)
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
    hidden = [
        each.name for each in fields(SavedRunSettings) if each.metadata["decides"] == "nothing"
    ]
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


def run_cells(run: Run, columns: Sequence[str]) -> list[str]:
    """Return what is known of a saved run from its record alone, by the columns of a table."""
    summary = None
    with suppress(FlowError):  # `show` says why it has none
        summary = summary_of(View(run, None))
    # The short date keeps the table within a terminal of 80 columns.
    this_year = run.created.year == datetime.now(UTC).year
    cells = {
        "name": run.name,
        "kind": "damaged" if run.problem else run.kind,
        "data": run.metrics["dataset"] if summary else "",
        "data, kernel": summary.short if summary else "",
        "result": summary.headline if summary else "",
        "saved": f"{run.created:{'%d %b %H:%M' if this_year else '%d %b %Y'}}",
        "saved (UTC)": f"{run.created:%Y-%m-%d %H:%M}",
        "size": byte_size(run.bytes) if run.bytes else "",
    }
    return [cells[column] for column in columns]


def run_record(run: Run) -> dict[str, Any]:
    """Return what is listed of a run as plain JSON, for programs."""
    listed = ("dataset", "split", "kernel", "n_components", "n_clusters", "objective", "nmi")
    record = {
        "name": run.name,
        "kind": run.kind or None,
        "created": run.created.isoformat(),
        "bytes": run.bytes,
        "path": str(run.path),
        "problem": run.problem,
        **{key: run.metrics[key] for key in listed if key in run.metrics},
    }
    with suppress(FlowError):
        result = View(run, None).result
        if isinstance(result, CrossvalResult):
            record["accuracy"] = result.mean.accuracy
    return record


def full_json(view: View) -> dict[str, Any]:
    """Return all that is stored of a run except its arrays of rows, as plain JSON for programs."""
    run, model = view.run, view.model
    record = {
        **run_record(run),
        "config": run.config,
        "metrics": run.metrics,
        "versions": run.versions,
    }
    if model is not None:
        record["loadings"] = [
            [{"feature": name, "weight": weight} for name, weight in largest(model, weights)]
            for weights in model.components
        ]
        record |= {"history": list(model.history), "class_names": model.class_names}
    return record
