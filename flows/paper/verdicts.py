"""Summarise the cells: means over folds, the published figures, and where ISM loses."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from flows.paper.series import OVER_CAP, Result
from flows.paper.settings import (
    DATA,
    ISM,
    ISM_GRAPH,
    ISM_PUBLISHED,
    METHODS,
    OTHER_SOLVERS,
    SUPERVISED,
    TIMED_SOLVERS,
)
from flows.results.paper import Cell, SeriesResult, Spread

# ISM loses if its J is below another solver's by more than this share of it, or if it is less
# than this many times as fast.
_MAX_J_SHARE_BELOW, _MIN_SPEEDUP = 1e-6, 10.0
# Half the last published digit: accuracies (True) have three decimals, NMIs (False) two.
_ROUNDING = {True: 0.0005, False: 0.005}


@dataclass(frozen=True)
class _Measured:
    """A cell with the J of each of its folds, None where a method has none."""

    cell: Cell
    objectives: list[float | None]


def cells_of(measured: Sequence[SeriesResult]) -> list[Cell]:
    """Return the cells with their published figures and losses, in the order of the tables."""
    every = [_measured(each) for each in measured]
    groups: dict[tuple[str, ...], dict[str, _Measured]] = {}
    for each in every:
        groups.setdefault(_group(each.cell), {})[each.cell.method] = each
    return [
        replace(each.cell, lost=tuple(_losses(each, groups[_group(each.cell)]))) for each in every
    ]


def _group(cell: Cell) -> tuple[str, ...]:
    """Return what cells have in common that are compared with each other."""
    return cell.table, cell.paradigm, cell.data, cell.kernel


def _measured(series: SeriesResult) -> _Measured:
    subject, results = series.subject, series.results
    paradigm, data = subject["paradigm"], subject["data"]
    kernel, method = subject.get("kernel", ""), subject["method"]
    described = METHODS[method]
    cell = Cell(
        table=series.part,
        paradigm=paradigm,
        data=data,
        kernel=kernel,
        method=method,
        title=described.title,
        rows=DATA[data].rows,
        q=DATA[data].classes,
        folds=len(results),
        of=series.steps,
        score=_spread(results, "score"),
        seconds=_spread(results, "seconds"),
        objective=_spread(results, "objective"),
        cost=_spread(results, "cost"),
        iterations=_spread(results, "iterations"),
        residual=max((each["residual"] for each in results if "residual" in each), default=None),
        engine=" and ".join(dict.fromkeys(each.get("engine", "") for each in results)),
        status=_status(results),
        published=dict(published(paradigm, data, kernel, described.published)) if kernel else {},
        problem=series.problem,
    )
    return _Measured(cell, [each.get("objective") for each in results])


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


def _losses(this: _Measured, group: Mapping[str, _Measured]) -> Iterator[str]:
    """Yield what ISM loses in, if `this` is a cell of ISM, given all cells of its group."""
    ism = group.get(ISM)
    if this.cell.method in (ISM, ISM_GRAPH):
        yield from _below_published(this.cell)
    if ism is None or not ism.cell.folds or not this.cell.folds:
        return
    others = [group[name] for name in OTHER_SOLVERS if name in group and group[name].cell.folds]
    if this is ism:
        yield from _below_other_solvers(this, others)
    # Supervised cells are also timed with the published stopping rule. Unsupervised cells have no
    # such variant, because it is already their rule.
    if this.cell.method in (ISM, ISM_PUBLISHED):
        timed = [each.cell for each in others if each.cell.method in TIMED_SOLVERS]
        yield from _too_slow(this.cell, timed)


def _below_published(ism: Cell) -> Iterator[str]:
    paper = ism.published
    if "score" not in paper or ism.score is None:
        return
    supervised = ism.paradigm == SUPERVISED
    lowest = paper["score"] - paper.get("score_sd", 0.0) - _ROUNDING[supervised]
    if ism.score.mean < lowest:
        measure = "accuracy" if supervised else "NMI"
        spread = paper.get("score_sd", 0.0)
        yield f"{measure} below the published {paper['score']:.3f} - {spread:.3f}"


def _below_other_solvers(ism: _Measured, others: Sequence[_Measured]) -> Iterator[str]:
    """Yield a line for each solver with a larger mean J, over the folds that both have."""
    for other in others:
        pairs = list(zip(ism.objectives, other.objectives, strict=False))
        ours, theirs = np.mean(np.array(pairs, dtype=float), axis=0)
        behind = (theirs - ours) / abs(theirs)
        if behind > _MAX_J_SHARE_BELOW:
            yield f"J {behind:.1e} below that of {other.cell.title}"


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
    with (files("flows.paper") / "published.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            names = tuple(row.pop(name) for name in ("paradigm", "data", "kernel", "method"))
            cells[names] = {
                name: value if name == "over_cap" else float(value)
                for name, value in row.items()
                if value
            }
    return cells
