"""List runs for a terminal, for programs, and for the index of reports."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A saved run as lists show it, read from its record alone."""

    name: str
    kind: str  # "damaged" if its files are
    time: datetime
    bytes: int
    dataset: str = ""
    # Data and kernel, and the main figure.
    short: str = ""
    headline: str = ""

    @classmethod
    def of(cls, run: Run) -> ListedRun:
        """Return a saved run."""
        kind, result = "damaged" if run.problem else run.kind, saved_result(run)
        listed = cls(name=run.name, kind=kind, time=run.created, bytes=run.bytes)
        if result is None:
            return listed
        try:
            summary = summarise(result)
        except ALTERED:
            return replace(listed, kind="damaged")
        dataset = getattr(result, "dataset", "")
        return replace(listed, dataset=dataset, short=summary.short, headline=summary.headline)

    def cells(self) -> list[str]:
        """Return the cells (`COLUMNS`) of the run in the table for people."""
        # The short date keeps the table within a terminal of 80 columns.
        this_year = self.time.year == datetime.now(UTC).year
        when = f"{self.time:%d %b %H:%M}" if this_year else f"{self.time:%d %b %Y}"
        return [self.name, self.kind, self.dataset, self.headline, when]

    def index_cells(self) -> list[str]:
        """Return the cells (`INDEX_COLUMNS`) of the run in the index of reports."""
        when, size = f"{self.time:%Y-%m-%d %H:%M}", byte_size(self.bytes) if self.bytes else ""
        return [self.name, self.kind, self.short, self.headline, when, size]


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
