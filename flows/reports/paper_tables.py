"""The paper's tables and figures, ready to render as HTML, as Markdown or on a terminal."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.reports.blocks import Block, Table
from flows.reports.figures import Figure
from flows.reports.picture_elements import Drawing, Pixels, draw_axes
from flows.results.paper import Cell, SeriesResult, Spread, TablesResult
from ism_dask.pictures.drawing import draw_lines

# Stands after the name of a cell in which ISM loses.
_MARK = " (lost)"
_PARADIGMS = {"supervised": "accuracy", "unsupervised": "NMI"}
_TABLES = {
    "table-4": "Table 4",
    "table-5": "Table 5",
    "references": "Reference points",
}
_ABOUT = {
    "table-4": "Means and population deviations over folds. J is ours, over the training rows; "
    "its cost by the convention of the published code is -J with zeros on the diagonal of K. For "
    "the polynomial kernel the published costs follow another scale, which neither the paper nor "
    "its code tells: they stand here, but cannot be compared. Costs of clusters are those of "
    "Gamma = H U U^T H for every graph. Gamma of the published graph has degrees in it, so that "
    "its J has another scale.",
    "table-5": "ISM under other kernels. The paper has seconds and accuracies only.",
    "references": "What else there is, judged alike. Supervised PCA is ISM with the linear kernel. "
    "`all old features` are judged as they are.",
}
_ABOUT_ALTERNATIVES = (
    "Clusters, and others that avoid these segments or the persons. NMI is the agreement with "
    "labels, or with the segments; that with what is avoided should be near 0. The unit polynomial "
    "is that of rows scaled to length 1. The paper shows pictures under the polynomial, without "
    "numbers."
)
# Columns of a table on a page; `_TERMINAL_COLUMNS` are the numbers of those that a terminal shows.
COLUMNS = (
    "data, kernel, method",
    "folds",
    "seconds",
    "published",
    "J",
    "cost",
    "published",
    "score",
    "published",
    "ended",
)
_TERMINAL_COLUMNS = (0, 2, 3, 7, 8)
# Height of the drawings in points.
_HEIGHT = 360.0


def tables(result: TablesResult) -> dict[str, list[Block]]:
    """Return the tables of each part of a run, one for each paradigm that has cells, and NMI."""
    parts: dict[str, list[Block]] = {}
    for part, title in _TABLES.items():
        for paradigm, score in _PARADIGMS.items():
            cells = [c for c in result.cells if c.table == part and c.paradigm == paradigm]
            if cells:
                parts.setdefault(part, []).append(
                    _block(part, f"{title}, {paradigm}", score, cells)
                )
    if alternatives := _series_of(result, "figure-1a"):
        table = _alternatives_table(alternatives)
        parts["figure-1a"] = [Block("Figure 1a, agreement with labels", tables=(table,))]
    return parts


def _block(part: str, title: str, score: str, cells: Sequence[Cell]) -> Block:
    columns = tuple(score if name == "score" else name for name in COLUMNS)
    rows = tuple(map(_row, cells))
    return Block(
        title,
        tables=(Table(_ABOUT[part], columns, rows, terminal=_TERMINAL_COLUMNS),),
        notes_title="Where ISM loses:",
        notes=tuple(f"{_name(cell)}: {'; '.join(cell.lost)}" for cell in cells if cell.lost),
    )


def _name(cell: Cell) -> str:
    return ", ".join(filter(None, (cell.data, cell.kernel, cell.title)))


def _row(cell: Cell) -> tuple[str, ...]:
    published = cell.published
    return (
        _name(cell) + (_MARK if cell.lost else ""),
        f"{cell.folds} of {cell.of}",
        _spread(cell.seconds, _seconds),
        _published(published, "seconds", _seconds),
        _spread(cell.objective, _figure),
        _spread(cell.cost, _figure),
        _published(published, "cost", _figure),
        _spread(cell.score, _score),
        _published(published, "score", _score),
        cell.problem or cell.status,
    )


def _spread(measured: Spread | None, written: Callable[[float], str]) -> str:
    if measured is None:
        return ""
    mean = written(measured.mean)
    return f"{mean} ± {written(measured.sd)}" if measured.sd else mean


def _published(published: Mapping[str, Any], name: str, written: Callable[[float], str]) -> str:
    if name not in published:
        return (
            f"over {published['over_cap']}" if "over_cap" in published and name == "seconds" else ""
        )
    spread = published.get(f"{name}_sd")
    return written(published[name]) + (f" ± {written(spread)}" if spread else "")


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:,.1f}"


def _figure(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < 1e6 else f"{value:.5g}"


def _score(value: float) -> str:
    return f"{value:.3f}"


def figure_blocks(result: TablesResult) -> list[Block]:
    """Return the figures of each measured part of the paper."""
    return [
        Block(title, draw=partial(draw, series))
        for part, (title, draw) in _FIGURES.items()
        if (series := _series_of(result, part))
    ]


def drawings(result: TablesResult) -> dict[str, str]:
    """Return the SVG documents of the drawn figures, by part of the run."""
    return {
        part: drawn.picture.document()
        for part, (_, draw) in _FIGURES.items()
        if (series := _series_of(result, part))
        for drawn in draw(series)
        if isinstance(drawn.picture, Drawing)
    }


def _series_of(result: TablesResult, part: str) -> list[SeriesResult]:
    return [each for each in result.others if each.part == part and each.results]


def _features(series: Sequence[SeriesResult]) -> list[Figure]:
    lines = _lines(series, "count", "score")
    best = {name: dict(points.tolist()).get(3.0) for name, points in lines}
    with_three = ", ".join(
        f"{name} {value:.2f}" for name, value in best.items() if value is not None
    )
    drawn = draw_axes(
        f"Accuracy by the number of new features; with three of them: {with_three}",
        partial(draw_lines, lines=lines, axis_names=("new features", "accuracy")),
        height=_HEIGHT,
    )
    caption = (
        "The share of 5,000 MNIST images that a support vector machine classifies correctly on few "
        "new features, which were learned from 5,000 others."
    )
    return [Figure("Accuracy by the number of new features", caption, drawn)]


def _growth(series: Sequence[SeriesResult]) -> list[Figure]:
    lines = _lines(series, "rows", "seconds")
    ends = ", ".join(
        f"{name} {points[-1, 0]:,.0f} in {points[-1, 1]:.2g} s" for name, points in lines
    )
    drawn = draw_axes(
        f"Seconds by the number of rows; the last of each line: {ends}",
        partial(
            draw_lines,
            lines=lines,
            axis_names=("rows", "seconds"),
            logarithmic=True,
        ),
        height=_HEIGHT,
    )
    caption = (
        "Seconds of a fit by the number of MNIST rows, q = 20. A line that goes by all pairs of "
        "rows ends before twice its rows would take over a minute."
    )
    return [Figure("Seconds by rows", caption, drawn)]


_Line = tuple[str, NDArray[Any]]


def _lines(series: Sequence[SeriesResult], x: str, y: str) -> list[_Line]:
    return [
        (
            each.subject["line"],
            np.array([(point[x], point[y]) for point in each.results], dtype=float),
        )
        for each in series
    ]


def _alternatives(series: Sequence[SeriesResult]) -> list[Figure]:
    originals = {each.subject["data"]: each.results[0]["original"] for each in series}
    pictures = [(name, "Each of its colours is a row.", png) for name, png in originals.items()]
    pictures += [
        (f"{name}: {fit['clusters']}", f"NMI: {agreement}; {fit['ended']}", fit["png"])
        for name, agreement, fit in _alternative_fits(series)
    ]
    return [
        Figure(title, caption, Pixels(caption, base64.b64decode(png)))
        for title, caption, png in pictures
        if png
    ]


def _alternatives_table(series: Sequence[SeriesResult]) -> Table:
    rows = tuple(
        (name, fit["clusters"], agreement, fit["ended"], _seconds(fit["seconds"]))
        for name, agreement, fit in _alternative_fits(series)
    )
    columns = ("data, kernel", "clusters", "NMI", "ended", "seconds")
    return Table(_ABOUT_ALTERNATIVES, columns, rows, left=4, terminal=(0, 1, 2, 3))


def _alternative_fits(
    series: Sequence[SeriesResult],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the name, the agreement with labels in words, and the record of each fit."""
    for each in series:
        for fit in each.results[0]["fits"]:
            agreement = ", ".join(f"{name} {value:.2f}" for name, value in fit["nmi"].items())
            yield ", ".join(each.subject.values()), agreement or "-", fit


_FIGURES: Mapping[str, tuple[str, Callable[[Sequence[SeriesResult]], list[Figure]]]] = {
    "features": ("What few features are worth", _features),
    "figure-1b": ("Figure 1b: seconds against rows", _growth),
    "figure-1a": ("Figure 1a: alternative clusters", _alternatives),
}
