"""List runs for a terminal, for programs, for a page, and for their metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from flows.errors import ALTERED
from flows.reports.pictures import Figure, drawn_by_date
from flows.reports.summary import summarise
from flows.reports.view import View, largest, saved_result
from flows.results.base import RunResult
from flows.results.runs import CrossvalResult
from flows.services.leases import Lease, list_leases
from flows.text import byte_size
from storage import Run, picture_path
from storage.runs import shared_name

# Columns of the table for people, which fits a terminal of 80 columns.
COLUMNS = ("name", "kind", "data", "result", "saved")
# Columns of the page, and what of a run is drawn over time, with its format.
PAGE_COLUMNS = ("name", "state", "kind", "data, kernel", "J", "accuracy", "seconds", "UTC", "size")
_MEASURES = {
    "J": ("objective", ".6g"),
    "accuracy": ("accuracy", ".4f"),
    "seconds": ("seconds", ",.2f"),
}


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run, saved or not, as lists and metrics show it."""

    name: str
    kind: str
    # As `flows.reports.metrics` lists them.
    state: str
    # When it was saved; of an unfinished run, the last sign of life of its process.
    time: datetime
    bytes: int = 0
    dataset: str = ""
    # Data and kernel, and the main figure.
    short: str = ""
    headline: str = ""
    # The address of its flow run in the Prefect UI.
    page: str = ""
    # Of its fits, by the names of their metrics; None for those that it has not.
    numbers: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> ListedRun:
        """Return a saved run."""
        state, result = "damaged" if run.problem else "finished", saved_result(run)
        listed = cls(name=run.name, kind=run.kind, state=state, time=run.created, bytes=run.bytes)
        if result is None:
            return listed
        try:
            summary, numbers = summarise(result), _numbers(result)
        except ALTERED:
            return replace(listed, state="damaged")
        return replace(
            listed,
            dataset=getattr(result, "dataset", ""),
            short=summary.short,
            headline=summary.headline,
            page=result.page or "",
            numbers=numbers,
        )

    @classmethod
    def of_lease(cls, lease: Lease) -> ListedRun:
        """Return an unfinished run."""
        now = time.time()
        until = now if lease.state == "computing" else lease.renewed
        return cls(
            name=lease.run,
            kind=lease.kind,
            state=lease.state,
            time=datetime.fromtimestamp(lease.renewed, UTC),
            short=str(lease.settings.get("dataset", "")),
            numbers={
                **asdict(lease.numbers),
                "rows": lease.numbers.rows or None,
                # Clocks of two machines may differ.
                "seconds": max(0.0, until - lease.taken),
                "seconds_since_sign_of_life": max(0.0, now - lease.renewed),
            },
        )

    def cells(self) -> list[str]:
        """Return the cells (`COLUMNS`) of the run in the table for people."""
        kind = "damaged" if self.state == "damaged" else self.kind
        # The short date keeps the table within a terminal of 80 columns.
        this_year = self.time.year == datetime.now(UTC).year
        when = f"{self.time:%d %b %H:%M}" if this_year else f"{self.time:%d %b %Y}"
        return [self.name, kind, self.dataset, self.headline, when]

    def page_cells(self) -> Iterator[tuple[str, str | float]]:
        """Yield the cells (`PAGE_COLUMNS`) of the run: text, and value by which to sort."""
        for text in (self.name, self.state, self.kind, self.short):
            yield text, text
        for name, form in _MEASURES.values():
            value = self.numbers.get(name)
            yield ("", "") if value is None else (format(value, form), value)
        yield f"{self.time:%Y-%m-%d %H:%M}", self.time.timestamp()
        yield (byte_size(self.bytes), self.bytes) if self.bytes else ("", "")


def _numbers(result: RunResult) -> dict[str, float | None]:
    """Return the numbers of the fits of a finished run, as far as it has any."""
    names = ("rows", "iterations", "objective", "seconds")
    numbers: dict[str, Any] = {name: getattr(result, name, None) for name in names}
    if isinstance(result, CrossvalResult):
        mean, fits = result.mean, [fit for one in result.methods.values() for fit in one.results]
        numbers = {
            "rows": round(result.rows * (1 - 1 / result.folds)),  # each fold is held out of one fit
            "iterations": sum(fit.iterations for fit in fits),
            "objective": -mean.cost,
            "seconds": sum(fit.seconds for fit in fits),
            "accuracy": mean.accuracy,
        }
    if numbers["seconds"]:
        numbers["rows_per_second"] = numbers["rows"] * numbers["iterations"] / numbers["seconds"]
    return {name: None if value is None else float(value) for name, value in numbers.items()}


def unfinished_runs() -> list[ListedRun]:
    """Return the runs with a lease: those that are computed, or did not come to an end."""
    leases = sorted(list_leases(), key=lambda lease: lease.renewed, reverse=True)
    return list(map(ListedRun.of_lease, leases))


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
        "copy_of": run.copy_of or None,
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
        "pictures": {name: str(picture_path(run.path, f"{name}.png")) for name in view.pictures},
    }


def figures_over_time(runs: Sequence[ListedRun]) -> Iterator[Figure]:
    """Draw the figures of dated runs, two or more of one name, by the day on which they ran."""
    dated = sorted(
        (run for run in runs if shared_name(run.name)),
        key=lambda run: (shared_name(run.name), run.time),
    )
    for name, group in groupby(dated, key=lambda run: shared_name(run.name)):
        series = list(group)
        for measure, (number, _) in _MEASURES.items():
            values = [run.numbers.get(number) for run in series]
            if (count := len(values) - values.count(None)) > 1:
                dates, lines = [run.time for run in series], {measure: values}
                yield drawn_by_date(f"{name}: {measure}", f"{count} runs.", dates, lines)
