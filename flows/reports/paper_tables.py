"""Put the paper's tables and figures into words: ours beside the published values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.reports.pictures import Figure, drawn
from flows.reports.view import View
from flows.results.paper import Cell, SeriesResult, Spread, TablesResult
from flows.text import count_noun
from ism_dask.pictures.drawing import draw_lines

# Stands after the name of a cell in which ISM loses.
_MARK = " (lost)"
_SCORES = {"supervised": "accuracy", "unsupervised": "NMI"}
# Titles of the tables, by part of the run.
_TABLES = {"table-4": "Table 4", "table-5": "Table 5", "references": "Reference points"}
# Columns of a table on a page; the last tuple has the numbers of those that a terminal shows.
_COLUMNS = ("data, kernel, method", "folds", "seconds", "published", "J", "cost", "published")
_TERMINAL = (0, 2, 3, 7, 8)
# Height of the drawings in points.
_HEIGHT = 360.0

# A figure of the paper from its series.
_Draw = Callable[[Sequence[SeriesResult]], list[Figure]]


def paper_summary(result: TablesResult, _view: View | None) -> Summary:
    """Return the summary of the paper's tables and figures."""
    cells, others = result.cells, f"{len(result.others):,}"
    count, lost = count_noun(len(cells), "cell"), f"{sum(bool(cell.lost) for cell in cells):,}"
    of_cells = (
        Fact("Cells", f"{len(cells):,}"),
        Fact("Folds", f"{sum(cell.folds for cell in cells):,}"),
        Fact("Cells with something lost", lost),
    )
    figures = (
        Block(title, pictures=tuple(draw(series)))
        for part, (title, draw) in _FIGURES.items()
        if (series := _series_of(result, part))
    )
    return Summary(
        subject=say("paper.subject"),
        short="paper",
        headline=count if cells else f"lines and pictures {others}",
        finding=f"ISM loses something in {lost} of {count}" if cells else "",
        facts=(*(of_cells if cells else ()), Fact("Lines and pictures", others)),
        blocks=(*chain.from_iterable(tables_by_part(result).values()), *figures),
    )


def tables_by_part(result: TablesResult) -> dict[str, list[Block]]:
    """Return the tables of each part of a run, one for each paradigm that has cells, and NMI."""
    parts: dict[str, list[Block]] = {}
    for part in _TABLES:
        for paradigm in _SCORES:
            cells = [c for c in result.cells if c.table == part and c.paradigm == paradigm]
            if cells:
                parts.setdefault(part, []).append(_block(part, paradigm, cells))
    if alternatives := _series_of(result, "figure-1a"):
        tables = (_alternatives_table(alternatives),)
        parts["figure-1a"] = [Block("Figure 1a, agreement with labels", tables=tables)]
    return parts


def drawings(result: TablesResult) -> dict[str, str]:
    """Return the SVG documents of the drawn figures, by part of the run."""
    return {
        part: figure.content.decode()
        for part in ("features", "figure-1b")
        if (series := _series_of(result, part))
        for figure in _FIGURES[part][1](series)
    }


def _block(part: str, paradigm: str, cells: Sequence[Cell]) -> Block:
    columns, rows = (*_COLUMNS, _SCORES[paradigm], "published", "ended"), tuple(map(_row, cells))
    return Block(
        f"{_TABLES[part]}, {paradigm}",
        tables=(Table(say(f"paper.{part}"), columns, rows, terminal=_TERMINAL),),
        notes_title="Where ISM loses:",
        notes=tuple(f"{_name(cell)}: {'; '.join(cell.lost)}" for cell in cells if cell.lost),
    )


def _name(cell: Cell) -> str:
    return ", ".join(filter(None, (cell.data, cell.kernel, cell.title)))


def _row(cell: Cell) -> tuple[str, ...]:
    return (
        _name(cell) + (_MARK if cell.lost else ""),
        f"{cell.folds} of {cell.of}",
        _spread(cell.seconds, _seconds),
        _published(cell, "seconds", _seconds),
        _spread(cell.objective, _figure),
        _spread(cell.cost, _figure),
        _published(cell, "cost", _figure),
        _spread(cell.score, "{:.3f}".format),
        _published(cell, "score", "{:.3f}".format),
        cell.problem or cell.status,
    )


def _spread(measured: Spread | None, written: Callable[[float], str]) -> str:
    if measured is None:
        return ""
    mean = written(measured.mean)
    return f"{mean} ± {written(measured.sd)}" if measured.sd else mean


def _published(cell: Cell, name: str, written: Callable[[float], str]) -> str:
    published = cell.published
    if name not in published:
        over_cap = name == "seconds" and "over_cap" in published
        return f"over {published['over_cap']}" if over_cap else ""
    return _spread(Spread(mean=published[name], sd=published.get(f"{name}_sd", 0.0)), written)


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:,.1f}"


def _figure(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < 1e6 else f"{value:.5g}"


def _series_of(result: TablesResult, part: str) -> list[SeriesResult]:
    """Return the series of a figure that have results."""
    return [each for each in result.others if each.part == part and each.results]


def _lines(series: Sequence[SeriesResult], x: str, y: str) -> list[tuple[str, np.ndarray]]:
    """Return the points (m, 2) of each line by its name."""
    return [
        (each.subject["line"], np.array([(point[x], point[y]) for point in each.results], float))
        for each in series
    ]


def _features(series: Sequence[SeriesResult]) -> list[Figure]:
    lines = _lines(series, "count", "score")
    three = ", ".join(
        f"{name} {value:.2f}"
        for name, points in lines
        if (value := dict(points.tolist()).get(3.0)) is not None
    )
    title, about = "Accuracy by the number of new features", say("paper.features", three=three)
    names = ("new features", "accuracy")
    return [drawn(title, about, draw_lines, height=_HEIGHT, lines=lines, axis_names=names)]


def _growth(series: Sequence[SeriesResult]) -> list[Figure]:
    lines = _lines(series, "rows", "seconds")
    ends = ", ".join(f"{name} {rows:,.0f} in {s:.2g} s" for name, (*_, (rows, s)) in lines)
    shown: dict[str, Any] = {"axis_names": ("rows", "seconds"), "logarithmic": True}
    about = say("paper.growth", ends=ends)
    return [drawn("Seconds by rows", about, draw_lines, height=_HEIGHT, lines=lines, **shown)]


def _alternatives(series: Sequence[SeriesResult]) -> list[Figure]:
    originals = {each.subject["data"]: each.results[0]["original"] for each in series}
    pictures = [(name, "Each of its colours is a row.", png) for name, png in originals.items()]
    pictures += [
        (f"{name}: {fit['clusters']}", f"NMI: {agreement}; {fit['ended']}", fit["png"])
        for name, agreement, fit in _alternative_fits(series)
    ]
    return [
        Figure(title, caption, partial(base64.b64decode, png))
        for title, caption, png in pictures
        if png
    ]


def _alternatives_table(series: Sequence[SeriesResult]) -> Table:
    rows = tuple(
        (name, fit["clusters"], agreement, fit["ended"], _seconds(fit["seconds"]))
        for name, agreement, fit in _alternative_fits(series)
    )
    columns = ("data, kernel", "clusters", "NMI", "ended", "seconds")
    return Table(say("paper.alternatives"), columns, rows, left=4, terminal=(0, 1, 2, 3))


def _alternative_fits(
    series: Sequence[SeriesResult],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the name, the agreement with labels in words, and the record of each fit."""
    for each in series:
        for fit in each.results[0]["fits"]:
            agreement = ", ".join(f"{name} {value:.2f}" for name, value in fit["nmi"].items())
            yield ", ".join(each.subject.values()), agreement or "-", fit


_FIGURES: Mapping[str, tuple[str, _Draw]] = {
    "features": ("What few features are worth", _features),
    "figure-1b": ("Figure 1b: seconds against rows", _growth),
    "figure-1a": ("Figure 1a: alternative clusters", _alternatives),
}
