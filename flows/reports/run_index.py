"""The list of runs as a page shows it: a table to sort, and the figures of dated runs over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from flows.reports.figures import Figure
from flows.reports.picture_elements import draw_axes
from flows.reports.summary import in_short
from flows.reports.view import saved_result
from flows.text import byte_size
from ism_dask.pictures import drawing
from storage import Run
from storage.runs import shared_name

COLUMNS = ("name", "kind", "data, kernel", "J", "accuracy", "seconds", "saved (UTC)", "size")
_FORMATS = {"J": ".6g", "accuracy": ".4f", "seconds": ",.2f"}
_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class Cell:
    """A cell of the list: its text, and the value by which its column is sorted."""

    text: str
    order: str | float


def index_cells(run: Run) -> tuple[Cell, ...]:
    """Return the cells (`COLUMNS`) of a run."""
    result = None if run.problem else saved_result(run)
    short = "" if result is None else in_short(result)[0]
    kind = "damaged" if run.problem else run.kind
    return (
        *(Cell(text, text) for text in (run.name, kind, short)),
        *(_number_cell(value, _FORMATS[name]) for name, value in run_figures(run).items()),
        Cell(f"{run.created:%Y-%m-%d %H:%M}", run.created.timestamp()),
        Cell(byte_size(run.bytes), run.bytes),
    )


def run_figures(run: Run) -> Mapping[str, float | None]:
    """Return J, accuracy and seconds of a run; of a cross-validation the means over its folds."""
    metrics: Mapping[str, Any] = run.metrics
    mean = metrics.get("mean", {})
    cost = mean.get("cost")
    return {
        "J": metrics.get("objective") if cost is None else -cost,
        "accuracy": mean.get("accuracy"),
        "seconds": mean.get("seconds", metrics.get("seconds")),
    }


def figures_over_time(runs: Sequence[Run]) -> Iterator[Figure]:
    """Draw the figures of dated runs, two or more of one name, by the day on which they ran."""
    dated = sorted((run for run in runs if shared_name(run.name) and not run.problem), key=_place)
    for name, group in groupby(dated, key=lambda run: shared_name(run.name)):
        series = list(group)
        for measure in run_figures(series[0]):
            values = [(run, run_figures(run)[measure]) for run in series]
            points = [(_day(run, series[0]), value) for run, value in values if value is not None]
            if len(points) > 1:
                yield _figure(name, measure, points, series[0])


def _figure(name: str, measure: str, points: Sequence[tuple[float, float]], first: Run) -> Figure:
    title = f"{name}: {measure}"
    drawn = draw_axes(
        f"{title} by day, from {points[0][1]:.4g} to {points[-1][1]:.4g}",
        partial(
            drawing.draw_lines,
            lines=[(measure, np.array(points))],
            axis_names=(f"days since {first.created:%Y-%m-%d}", measure),
        ),
    )
    return Figure(title, f"{len(points)} runs.", drawn)


def _place(run: Run) -> tuple[str, float]:
    return shared_name(run.name), run.created.timestamp()


def _day(run: Run, first: Run) -> float:
    return (run.created - first.created).total_seconds() / _SECONDS_PER_DAY


def _number_cell(value: float | None, form: str) -> Cell:
    return Cell("", "") if value is None else Cell(format(value, form), value)
