"""List runs as table rows for people and as plain JSON for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from flows.reports.summary import in_short
from flows.reports.view import View, saved_result
from flows.text import byte_size
from storage import Run, picture_path

COLUMNS = ("name", "kind", "data, kernel", "result", "kept", "size")


def run_cells(run: Run) -> list[str]:
    """Return the cells (`COLUMNS`) of a run in the table for people."""
    # The short date keeps the table within a terminal of 80 columns.
    this_year = run.created.year == datetime.now(UTC).year
    when = f"{run.created:%d %b %H:%M}" if this_year else f"{run.created:%d %b %Y}"
    if run.problem:
        return [run.name, "damaged", "", "", when, ""]
    result = saved_result(run)
    short, headline = ("", "") if result is None else in_short(result)
    return [run.name, run.kind, short, headline, when, byte_size(run.bytes)]


def run_record(run: Run) -> dict[str, Any]:
    """Return the same facts about a run as plain JSON, for programs."""
    metrics = run.metrics
    listed = ("dataset", "split", "kernel", "n_components", "n_clusters", "objective", "nmi")
    return {
        "name": run.name,
        "kind": run.kind or None,
        "created": run.created.isoformat(),
        "bytes": run.bytes,
        "path": str(run.path),
        "problem": run.problem,
        "copy_of": run.copy_of or None,
        **{key: metrics[key] for key in listed if key in metrics},
        **({"accuracy": metrics["mean"]["accuracy"]} if "mean" in metrics else {}),
    }


def full_json(view: View) -> dict[str, Any]:
    """Return all that is stored of a run except its arrays of rows, as plain JSON for programs."""
    run, model = view.run, view.model
    model_facts: dict[str, Any] = {}
    if model is not None:
        model_facts = {
            "loadings": [
                [{"feature": name, "weight": weight} for name, weight in view.ranked(number)]
                for number in range(len(model.components))
            ],
            "history": view.history,
            "class_names": model.class_names,
            "pictures": {
                name: str(picture_path(run.path, f"{name}.png")) for name in view.stored_pictures()
            },
        }
    return {
        **run_record(run),
        "config": run.config,
        "metrics": run.metrics,
        "versions": run.versions,
        **model_facts,
    }
