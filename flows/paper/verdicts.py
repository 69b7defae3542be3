"""Summarise the cells: means over folds, the published figures, and where ISM loses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from flows.paper.names import (
    DATA,
    ISM,
    ISM_PUBLISHED,
    METHODS,
    OTHER_SOLVERS,
    SUPERVISED,
    TABLE_4_KERNELS,
    TIMED_SOLVERS,
)
from flows.paper.series import OVER_CAP, Result, SeriesResult

Cell = dict[str, Any]

# Measures that are averaged over folds, if the method has them.
_MEASURES = ("score", "seconds", "objective", "cost", "iterations")
# ISM loses if its J is below another solver's by more than this share of it, or if it is less
# than this many times as fast.
_MAX_J_SHARE_BELOW, _MIN_SPEEDUP = 1e-6, 10.0
# Half the last published digit: accuracies (True) have three decimals, NMIs (False) two.
_ROUNDING = {True: 0.0005, False: 0.005}


def cells_of(found: Sequence[SeriesResult]) -> list[Cell]:
    """Return the cells with their published figures and losses, in the order of the tables."""
    cells = [_cell(each) for each in found]
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        key = cell["table"], cell["paradigm"], cell["data"], cell["kernel"]
        groups.setdefault(key, []).append(cell)
    for group in groups.values():
        _add_losses({cell["method"]: cell for cell in group})
    for cell in cells:
        # Only the comparisons above need the J of each fold.
        del cell["objectives"]
    return cells


def _cell(series: SeriesResult) -> Cell:
    subject, results = series.subject, series.results
    paradigm, data = subject["paradigm"], subject["data"]
    kernel, method = subject.get("kernel", ""), subject["method"]
    described = METHODS[method]
    return {
        "table": series.part,
        "paradigm": paradigm,
        "data": data,
        "kernel": kernel,
        "method": method,
        "title": described.title,
        "rows": DATA[data].rows,
        "q": DATA[data].classes,
        "folds": len(results),
        "of": series.steps,
        **{name: _spread(results, name) for name in _MEASURES},
        "residual": max((each["residual"] for each in results if "residual" in each), default=None),
        "engine": " and ".join(dict.fromkeys(each.get("engine", "") for each in results)),
        "status": _status(results),
        "published": dict(published(paradigm, data, kernel, described.published)) if kernel else {},
        "objectives": [each.get("objective") for each in results],
        "problem": series.problem,
        "lost": [],
    }


def _spread(results: Sequence[Result], name: str) -> dict[str, float] | None:
    """Return mean and population standard deviation of a measure, None if no result has it."""
    values = [each[name] for each in results if name in each]
    if not values:
        return None
    return {"mean": float(np.mean(values)), "sd": float(np.std(values))}


def _status(results: Sequence[Result]) -> str:
    """Return the status of the folds; if they differ, each status with its count."""
    counts: dict[str, int] = {}
    for each in results:
        counts[each["status"]] = counts.get(each["status"], 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{status} ({count})" for status, count in counts.items())


def _add_losses(cells: Mapping[str, Cell]) -> None:
    """Add the losses of ISM to its cells, given all cells of one table, data set and kernel."""
    ism = cells.get(ISM)
    if ism is None or not ism["folds"]:
        return
    others = [cells[name] for name in OTHER_SOLVERS if name in cells and cells[name]["folds"]]
    ism["lost"] += [*_below_published(ism), *_below_other_solvers(ism, others)]
    # Supervised cells are also timed with the published stopping rule. Unsupervised cells have no
    # such variant, because it is already their rule.
    for cell in (ism, cells.get(ISM_PUBLISHED)):
        if cell is not None and cell["folds"]:
            cell["lost"] += _too_slow(
                cell, [each for each in others if each["method"] in TIMED_SOLVERS]
            )


def _below_published(ism: Cell) -> list[str]:
    paper = ism["published"]
    if "score" not in paper:
        return []
    supervised = ism["paradigm"] == SUPERVISED
    lowest = paper["score"] - paper.get("score_sd", 0.0) - _ROUNDING[supervised]
    if ism["score"]["mean"] >= lowest:
        return []
    measure = "accuracy" if supervised else "NMI"
    return [
        f"{measure} below the published {paper['score']:.3f} - {paper.get('score_sd', 0.0):.3f}"
    ]


def _below_other_solvers(ism: Cell, others: Sequence[Cell]) -> list[str]:
    """Return a line for each solver with a larger mean J, over the folds that both have."""
    lost = []
    for other in others:
        pairs = list(zip(ism["objectives"], other["objectives"], strict=False))
        ours, theirs = np.mean(np.array(pairs, dtype=float), axis=0)
        behind = (theirs - ours) / abs(theirs)
        if behind > _MAX_J_SHARE_BELOW:
            lost.append(f"J {behind:.1e} below that of {other['title']}")
    return lost


def _too_slow(ism: Cell, others: Sequence[Cell]) -> list[str]:
    lost = []
    for other in others:
        times = other["seconds"]["mean"] / ism["seconds"]["mean"]
        if times < _MIN_SPEEDUP and OVER_CAP not in other["status"]:
            lost.append(f"{times:.1f} times as fast as {other['title']}")
    return lost


def published(paradigm: str, data: str, kernel: str, method: str) -> Mapping[str, Any]:
    """Return the published figures of a cell of Table 4 or 5, empty if the paper has none.

    Accuracies are shares from 0 to 1, not percentages.
    """
    if not method:
        return {}
    table = "table_4" if kernel in TABLE_4_KERNELS else "table_5"
    cell = _tables()[table][paradigm].get(data, {}).get(kernel, {})
    if kernel in TABLE_4_KERNELS:
        cell = cell.get(method, {})
    elif method != "ism":
        cell = {}
    return _as_shares(cell)


def _as_shares(cell: Mapping[str, Any]) -> dict[str, Any]:
    figures = dict(cell)
    if "accuracy_percent" in figures:
        figures["score"] = figures.pop("accuracy_percent") / 100
        figures["score_sd"] = figures.pop("accuracy_sd") / 100
    if "nmi" in figures:
        figures["score"] = figures.pop("nmi")
    return figures


@cache
def _tables() -> dict[str, Any]:
    text = (files("flows.paper") / "published.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
