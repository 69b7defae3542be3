"""Summarise the cells: means over folds, the published figures, and where ISM loses."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.series import OVER_CAP, Measured, Result
from benchmarks.paper.settings import (
    ISM,
    ISM_GRAPH,
    ISM_PUBLISHED,
    METHODS,
    RIVALS,
    SUPERVISED,
    TIMED_RIVALS,
)

# ISM loses if its J is below another solver's by more than this share of it, or if it is less
# than this many times as fast.
_MAX_J_SHARE_BELOW, _MIN_SPEEDUP = 1e-6, 10.0
# Half the last published digit: accuracies (True) have three decimals, NMIs (False) two.
_ROUNDING = {True: 0.0005, False: 0.005}


@dataclass(frozen=True)
class Spread:
    """Mean and population standard deviation of a measure over folds."""

    mean: float
    sd: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of the paper's tables: one method on one data set, with its published figures."""

    table: str  # a name of `PARTS`
    paradigm: str
    data: str
    kernel: str  # empty for methods without one
    method: str
    folds: int  # that were measured
    of: int  # the number of folds
    score: Spread | None  # each is None if the method has no such measure
    seconds: Spread | None
    objective: Spread | None
    cost: Spread | None
    objectives: tuple[float, ...]  # J of each fold
    status: str  # of all folds, or the error that ended the measurement
    published: Mapping[str, Any]  # the published figures, by the name of the measure
    lost: tuple[str, ...] = ()  # what ISM loses in, against published figures and other solvers

    @property
    def title(self) -> str:
        """The method for people."""
        return METHODS[self.method].title


def cells_of(measured: Sequence[Measured]) -> list[Cell]:
    """Return the cells with their published figures and losses, in the order of the tables."""
    cells = list(map(_cell, measured))
    groups: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in cells:
        groups.setdefault(_group(cell), {})[cell.method] = cell
    return [replace(cell, lost=tuple(_losses(cell, groups[_group(cell)]))) for cell in cells]


def _group(cell: Cell) -> tuple[str, ...]:
    """Return what cells have in common that are compared with each other."""
    return cell.table, cell.paradigm, cell.data, cell.kernel


def _cell(series: Measured) -> Cell:
    subject, results = series.subject, series.results
    paradigm, data = subject["paradigm"], subject["data"]
    kernel, method = subject.get("kernel", ""), METHODS[subject["method"]]
    measures = ("score", "seconds", "objective", "cost")
    spreads: dict[str, Any] = {name: _spread(results, name) for name in measures}
    return Cell(
        table=series.part,
        paradigm=paradigm,
        data=data,
        kernel=kernel,
        method=subject["method"],
        folds=len(results),
        of=series.steps,
        **spreads,
        objectives=tuple(each["objective"] for each in results if "objective" in each),
        status=series.problem or _status(results),
        published=published(paradigm, data, kernel, method.published) if kernel else {},
    )


def _spread(results: Sequence[Result], name: str) -> Spread | None:
    """Return mean and population standard deviation of a measure, None if no result has it."""
    values = [each[name] for each in results if name in each]
    if not values:
        return None
    return Spread(mean=float(np.mean(values)), sd=float(np.std(values)))


def _status(results: Sequence[Result]) -> str:
    """Return the status of the folds; if they differ, each status with its count."""
    counts = Counter(each["status"] for each in results)
    if len(counts) == 1:
        return str(next(iter(counts)))
    return ", ".join(f"{status} ({count})" for status, count in counts.items())


def _losses(cell: Cell, group: Mapping[str, Cell]) -> Iterator[str]:
    """Yield what ISM loses in, if this is a cell of ISM, given all cells of its group."""
    if cell.method in (ISM, ISM_GRAPH):
        yield from _below_published(cell)
    if ISM not in group or not group[ISM].folds or not cell.folds:
        return
    others = [group[name] for name in RIVALS if name in group and group[name].folds]
    if cell.method == ISM:
        yield from _below_other_solvers(cell, others)
    # Supervised cells are also timed with the published stopping rule. Unsupervised cells have no
    # such variant, because it is already their rule.
    if cell.method in (ISM, ISM_PUBLISHED):
        yield from _too_slow(cell, [each for each in others if each.method in TIMED_RIVALS])


def _below_published(ism: Cell) -> Iterator[str]:
    paper = ism.published
    if "score" not in paper or ism.score is None:
        return
    supervised, spread = ism.paradigm == SUPERVISED, paper.get("score_sd", 0.0)
    if ism.score.mean < paper["score"] - spread - _ROUNDING[supervised]:
        measure = "accuracy" if supervised else "NMI"
        yield f"{measure} below the published {paper['score']:.3f} - {spread:.3f}"


def _below_other_solvers(ism: Cell, others: Sequence[Cell]) -> Iterator[str]:
    """Yield a line for each solver with a larger mean J, over the folds that both have."""
    for other in others:
        pairs = list(zip(ism.objectives, other.objectives, strict=False))
        ours, theirs = np.mean(pairs, axis=0)
        behind = (theirs - ours) / abs(theirs)
        if behind > _MAX_J_SHARE_BELOW:
            yield f"J {behind:.1e} below that of {other.title}"


def _too_slow(cell: Cell, others: Sequence[Cell]) -> Iterator[str]:
    for other in others:
        if cell.seconds is None or other.seconds is None or OVER_CAP in other.status:
            continue
        times = other.seconds.mean / cell.seconds.mean
        if times < _MIN_SPEEDUP:
            yield f"{times:.1f} times as fast as {other.title}"


def published(paradigm: str, data: str, kernel: str, method: str) -> Mapping[str, Any]:
    """Return the published figures of a cell of Table 4 or 5, empty if the paper has none.

    Methods have the paper's names: dg is dimension growth, sm the Stiefel, gm the Grassmann
    manifold. Scores are shares from 0 to 1, not percentages.
    """
    return _published().get((paradigm, data, kernel, method), {})


@cache
def _published() -> dict[tuple[str, ...], dict[str, Any]]:
    """Read Tables 4 and 5 of Wu, Miller, Chang, Sznaier, Dy (NeurIPS 2019).

    Seconds are those of a dual Xeon E5-2680 v2 with 20 cores. For the NMI of Cancer, unsupervised,
    polynomial, ism the poster prints 0.80.
    """
    cells = {}
    with Path(__file__).with_name("published.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            names = tuple(row.pop(name) for name in ("paradigm", "data", "kernel", "method"))
            cells[names] = {
                name: value if name == "over_cap" else float(value)
                for name, value in row.items()
                if value
            }
    return cells
