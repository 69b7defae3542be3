"""List runs for a terminal, for programs, and for the index of reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from flows.errors import ALTERED
from flows.reports.summary import summarise
from flows.reports.view import View, largest, saved_result
from flows.results.runs import CrossvalResult
from flows.text import byte_size
from storage import Run

# Columns of the table for people, which fits a terminal of 80 columns.
COLUMNS = ("name", "kind", "data", "result", "saved")
# Columns of the index of reports.
INDEX_COLUMNS = ("name", "kind", "data, kernel", "result", "saved (UTC)", "size")


def run_cells(run: Run, columns: Sequence[str]) -> list[str]:
    """Return what is known of a saved run from its record alone, by the columns of a table."""
    result, short, headline = saved_result(run), "", ""
    damaged = bool(run.problem)
    if result is not None:
        try:
            summary = summarise(result)
            short, headline = summary.short, summary.headline
        except ALTERED:
            damaged = True
    # The short date keeps the table within a terminal of 80 columns.
    this_year = run.created.year == datetime.now(UTC).year
    cells = {
        "name": run.name,
        "kind": "damaged" if damaged else run.kind,
        "data": getattr(result, "dataset", ""),
        "data, kernel": short,
        "result": headline,
        "saved": f"{run.created:{'%d %b %H:%M' if this_year else '%d %b %Y'}}",
        "saved (UTC)": f"{run.created:%Y-%m-%d %H:%M}",
        "size": byte_size(run.bytes) if run.bytes else "",
    }
    return [cells[column] for column in columns]


def run_record(run: Run) -> dict[str, Any]:
    """Return what is listed of a run as plain JSON, for programs."""
    metrics, result = run.metrics, saved_result(run)
    listed = ("dataset", "split", "kernel", "n_components", "n_clusters", "objective", "nmi")
    return {
        "name": run.name,
        "kind": run.kind or None,
        "created": run.created.isoformat(),
        "bytes": run.bytes,
        "path": str(run.path),
        "problem": run.problem,
        **{key: metrics[key] for key in listed if key in metrics},
        **({"accuracy": result.mean.accuracy} if isinstance(result, CrossvalResult) else {}),
    }


def full_json(view: View) -> dict[str, Any]:
    """Return all that is stored of a run except its arrays of rows, as plain JSON for programs."""
    run, model = view.run, view.model
    record = {
        **run_record(run),
        "config": run.config,
        "metrics": run.metrics,
        "versions": run.versions,
    }
    if model is None:
        return record
    return {
        **record,
        "loadings": [
            [{"feature": name, "weight": weight} for name, weight in largest(model, weights)]
            for weights in model.components
        ],
        "history": list(model.history),
        "class_names": model.class_names,
    }
