"""What came of the cells: means over folds, what was published, and where ISM loses."""

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
    RIVALLED,
    RIVALS,
    SUPERVISED,
    TIMED,
)
from flows.paper.series import OVER_CAP, Result, SeriesResult

Cell = dict[str, Any]

# What is averaged over folds, where a method has it.
_MEASURES = ("score", "seconds", "objective", "cost", "iterations")
# J of ISM may be below the best rival's by this share, and its seconds above by this factor.
_EQUAL, _TIMES = 1e-6, 10.0
# Published NMIs are rounded to two digits, accuracies to three.
_ROUNDING = {True: 0.0005, False: 0.005}


def cells_of(found: Sequence[SeriesResult]) -> list[Cell]:
    """Return the cells with what was published and what is lost, in the order of the tables."""
    cells = [_cell(each) for each in found]
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        key = cell["table"], cell["paradigm"], cell["data"], cell["kernel"]
        groups.setdefault(key, []).append(cell)
    for group in groups.values():
        _judge({cell["method"]: cell for cell in group})
    for cell in cells:
        # What is judged by them has been judged.
        del cell["objectives"]
    return cells


def _cell(found: SeriesResult) -> Cell:
    subject, results = found.subject, found.results
    paradigm, data = subject["paradigm"], subject["data"]
    kernel, method = subject.get("kernel", ""), subject["method"]
    known = METHODS[method]
    return {
        "table": found.part,
        "paradigm": paradigm,
        "data": data,
        "kernel": kernel,
        "method": method,
        "title": known.title,
        "rows": DATA[data].rows,
        "q": DATA[data].classes,
        "folds": len(results),
        "of": found.steps,
        **{name: _spread(results, name) for name in _MEASURES},
        "residual": max((each["residual"] for each in results if "residual" in each), default=None),
        "engine": " and ".join(dict.fromkeys(each.get("engine", "") for each in results)),
        "status": _status(results),
        "published": dict(published(paradigm, data, kernel, known.published)) if kernel else {},
        "objectives": [each.get("objective") for each in results],
        "problem": found.problem,
        "lost": [],
    }


def _spread(results: Sequence[Result], name: str) -> dict[str, float] | None:
    """Return mean and population deviation of a measure, None where there is none."""
    values = [each[name] for each in results if name in each]
    if not values:
        return None
    return {"mean": float(np.mean(values)), "sd": float(np.std(values))}


def _status(results: Sequence[Result]) -> str:
    """Return how the folds ended: what is not the same for all with its count."""
    counts: dict[str, int] = {}
    for each in results:
        counts[each["status"]] = counts.get(each["status"], 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{status} ({count})" for status, count in counts.items())


def _judge(cells: Mapping[str, Cell]) -> None:
    """Tell each of the cells with the same problem what is lost in it."""
    own = cells.get(ISM)
    if own is None or not own["folds"]:
        return
    rivals = [cells[name] for name in RIVALS if name in cells and cells[name]["folds"]]
    own["lost"] += [*_below_published(own), *_below_rivals(own, rivals)]
    # The published stopping rule where there is one with labels; it is the clusterers' own.
    for timed in (own, cells.get(ISM_PUBLISHED)):
        if timed is not None and timed["folds"]:
            timed["lost"] += _too_slow(timed, [each for each in rivals if each["method"] in TIMED])


def _below_published(own: Cell) -> list[str]:
    known = own["published"]
    if "score" not in known:
        return []
    supervised = own["paradigm"] == SUPERVISED
    least = known["score"] - known.get("score_sd", 0.0) - _ROUNDING[supervised]
    if own["score"]["mean"] >= least:
        return []
    what = "accuracy" if supervised else "NMI"
    return [f"{what} below the published {known['score']:.3f} - {known.get('score_sd', 0.0):.3f}"]


def _below_rivals(own: Cell, rivals: Sequence[Cell]) -> list[str]:
    """Say whose J is larger, over the folds that both have."""
    lost = []
    for rival in rivals:
        pairs = list(zip(own["objectives"], rival["objectives"], strict=False))
        ours, theirs = np.mean(np.array(pairs, dtype=float), axis=0)
        behind = (theirs - ours) / abs(theirs)
        if behind > _EQUAL:
            lost.append(f"J {behind:.1e} below that of {rival['title']}")
    return lost


def _too_slow(own: Cell, rivals: Sequence[Cell]) -> list[str]:
    lost = []
    for rival in rivals:
        times = rival["seconds"]["mean"] / own["seconds"]["mean"]
        if times < _TIMES and OVER_CAP not in rival["status"]:
            lost.append(f"{times:.1f} times as fast as {rival['title']}")
    return lost


def published(paradigm: str, data: str, kernel: str, method: str) -> Mapping[str, Any]:
    """Return the figures of a cell of Table 4 or 5; nothing where the paper has none.

    Accuracies are shares here, not percents.
    """
    if not method:
        return {}
    table = "table_4" if kernel in RIVALLED else "table_5"
    cell = _tables()[table][paradigm].get(data, {}).get(kernel, {})
    if kernel in RIVALLED:
        cell = cell.get(method, {})
    elif method != "ism":
        cell = {}
    return _as_shares(cell)


def _as_shares(cell: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(cell)
    if "accuracy_percent" in told:
        told["score"] = told.pop("accuracy_percent") / 100
        told["score_sd"] = told.pop("accuracy_sd") / 100
    if "nmi" in told:
        told["score"] = told.pop("nmi")
    return told


@cache
def _tables() -> dict[str, Any]:
    text = (files("flows.paper") / "published.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
