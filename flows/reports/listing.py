"""Runs as lines of a list, and for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from flows.reports.summary import has_kind, kind_of
from flows.reports.view import View
from flows.text import size
from storage import Run, picture_path

COLUMNS = ("name", "kind", "data, kernel", "result", "kept", "size")


def cells(run: Run) -> list[str]:
    """Return a row of the table for people."""
    # Narrow enough for a terminal of 80 columns.
    this_year = run.created.year == datetime.now(UTC).year
    when = f"{run.created:%d %b}" if this_year else f"{run.created:%b %Y}"
    if run.problem:
        return [run.name, "damaged", "", "", when, ""]
    if not has_kind(run):
        return [run.name, run.kind, "", "", when, size(run.bytes)]
    kind, told = kind_of(run), run.metrics
    return [run.name, run.kind, kind.short(told), kind.headline(told), when, size(run.bytes)]


def line(run: Run) -> dict[str, Any]:
    """Return the same for programs."""
    told = run.metrics
    known = ("dataset", "split", "kernel", "n_components", "n_clusters", "objective", "nmi")
    return {
        "name": run.name,
        "kind": run.kind or None,
        "created": run.created.isoformat(),
        "bytes": run.bytes,
        "path": str(run.path),
        "problem": run.problem,
        **{key: told[key] for key in known if key in told},
        **({"accuracy": told["mean"]["accuracy"]} if "mean" in told else {}),
    }


def whole(view: View) -> dict[str, Any]:
    """Return all that is kept of a run but its arrays of rows, for programs."""
    run, model = view.run, view.model
    known: dict[str, Any] = {}
    if model is not None:
        known = {
            "loadings": [
                [{"feature": name, "weight": weight} for name, weight in view.ranked(number)]
                for number in range(len(model.components))
            ],
            "history": view.history,
            "class_names": model.class_names,
            "pictures": {
                name: str(picture_path(run.path, f"{name}.png")) for name in view.pictures()
            },
        }
    return {
        **line(run),
        "config": run.config,
        "metrics": run.metrics,
        "versions": run.versions,
        **known,
    }
