"""The paper's tables and figures as Markdown and pictures: ours beside the published values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.paper.cluster_pictures import sheet_of_pictures
from benchmarks.paper.series import Measured
from benchmarks.paper.verdicts import Cell, Spread
from benchmarks.pictures import line_plot
from benchmarks.results import grid

_SCORES = {"supervised": "accuracy", "unsupervised": "NMI"}
_TABLES = {
    "table-4": (
        "Table 4",
        "Means and population deviations over folds. The cost follows the convention of the "
        "published code: -J with zeros on the diagonal of K. Published costs of the polynomial "
        "kernel follow another scale, and cannot be compared. Costs of clusters are those of "
        "Gamma = H U U^T H for every graph.",
    ),
    "table-5": (
        "Table 5",
        "ISM under other kernels. The paper has seconds and accuracies only.",
    ),
    "references": (
        "Reference points",
        "What else there is, judged alike. Supervised PCA is ISM with the linear kernel. `all old "
        "features` are judged as they are.",
    ),
}
_ALTERNATIVES = (
    "Clusters, and others that avoid these segments or the persons. NMI is the agreement with "
    "labels, or with the segments; that with what is avoided should be near 0. The unit "
    "polynomial is that of rows scaled to length 1. The paper shows pictures under the "
    "polynomial, without numbers."
)
# The pictures of figure 1a on the page of the published system, in lines.
_SHEET = (
    ("flower.png", "flower-gaussian-2-segments.png", "flower-gaussian-2-others.png"),
    ("face-gaussian-4-others.png",),
)


def write_report(folder: Path, cells: Sequence[Cell], others: Sequence[Measured]) -> list[Path]:
    """Write a page for each table, and the drawings and pictures of the figures."""
    contents: dict[str, str | bytes] = dict(_pages(cells))
    if series := [each for each in others if each.part == "features" and each.results]:
        contents["features.svg"] = line_plot(
            _lines(series, "count", "score"), ("new features", "accuracy")
        )
    if series := [each for each in others if each.part == "figure-1b" and each.results]:
        contents["figure-1b.svg"] = line_plot(
            _lines(series, "rows", "seconds"), ("rows", "seconds"), logarithmic=True
        )
    if series := [each for each in others if each.part == "figure-1a" and each.results]:
        contents |= _alternatives(series)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [folder / name for name in contents]


def _pages(cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    for part, (title, about) in _TABLES.items():
        blocks = [f"# {title}\n", f"{about}\n"]
        for paradigm, score in _SCORES.items():
            chosen = [each for each in cells if (each.table, each.paradigm) == (part, paradigm)]
            if not chosen:
                continue
            blocks += [f"## {title}, {paradigm}\n", grid([_row(cell, score) for cell in chosen])]
        if len(blocks) > 2:
            yield f"{part}.md", "\n".join(blocks)


def _row(cell: Cell, score: str) -> dict[str, str]:
    name = ", ".join(filter(None, (cell.data, cell.kernel, cell.title)))
    return {
        "data, kernel, method": name + (" (lost)" if cell.lost else ""),
        "folds": f"{cell.folds} of {cell.of}",
        "seconds": _spread(cell.seconds, _seconds),
        "published seconds": _published(cell, "seconds", _seconds),
        "cost": _spread(cell.cost, _figure),
        "published cost": _published(cell, "cost", _figure),
        score: _spread(cell.score, "{:.3f}".format),
        f"published {score}": _published(cell, "score", "{:.3f}".format),
        "ended": cell.status,
    }


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


def _lines(series: Sequence[Measured], x: str, y: str) -> list[tuple[str, np.ndarray]]:
    """Return the points (m, 2) of each line by its name."""
    return [
        (each.subject["line"], np.array([(point[x], point[y]) for point in each.results], float))
        for each in series
    ]


def _alternatives(series: Sequence[Measured]) -> dict[str, str | bytes]:
    """Return the page of figure 1a, and its pictures by file name."""
    rows, pictures = [], {}
    for each in series:
        result, name = each.results[0], ", ".join(each.subject.values())
        pictures[f"{each.subject['data']}.png"] = result["original"]
        for fit in result["fits"]:
            agreement = ", ".join(f"{label} {value:.2f}" for label, value in fit["nmi"].items())
            cells = (name, fit["clusters"], agreement or "-", fit["ended"])
            titles = ("data, kernel", "clusters", "NMI", "ended")
            rows.append({**dict(zip(titles, cells, strict=True)), "seconds": fit["seconds"]})
            words = f"{name} {fit['clusters']}".replace(",", "").split()
            pictures["-".join(words) + ".png"] = fit["png"]
    page = f"# Figure 1a, agreement with labels\n\n{_ALTERNATIVES}\n\n{grid(rows)}"
    drawings = {name: base64.b64decode(png) for name, png in pictures.items() if png}
    if drawings.keys() >= {name for line in _SHEET for name in line}:
        drawings["figure-1a.png"] = sheet_of_pictures([[drawings[x] for x in y] for y in _SHEET])
    return {"figure-1a.md": page, **drawings}
