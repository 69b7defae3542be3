"""Measure all of it, or what is not measured yet, and keep it; knows nothing of Prefect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from flows.errors import FlowError, SettingsError
from flows.interface.progress import ProgressShare
from flows.paper.accuracy_by_features import features
from flows.paper.cells import references, table_4, table_5
from flows.paper.figure_1a import figure_1a
from flows.paper.figure_1b import figure_1b
from flows.paper.series import Series, SeriesResult, measure_series, read_measured
from flows.paper.settings import ALL, TablesSettings
from flows.paper.verdicts import cells_of
from flows.runs.saving import check_name_is_free, versions
from storage import RESULTS, PieceStore, open_run, save_results, saved_run_path

KIND = "tables"
_PARTS: Mapping[str, Callable[[TablesSettings], Iterator[Series]]] = {
    "table-4": table_4,
    "table-5": table_5,
    "references": references,
    "features": features,
    "figure-1a": figure_1a,
    "figure-1b": figure_1b,
}
_TABLES = ("table-4", "table-5", "references")


def plan(settings: TablesSettings) -> list[tuple[Series, ProgressShare]]:
    """Return what there is to do, each with the part it makes of all; an error if it cannot be."""
    _refuse(settings)
    strands = _strands(settings)
    if not strands:
        raise SettingsError(
            f"`parts` is {settings.parts!r} and `methods` is {settings.methods!r}, which have "
            "nothing in common; choose others"
        )
    if settings.force:
        PieceStore.of_run(settings.run).clear()
    efforts = [strand.effort * len(strand.steps) for strand in strands]
    ends = np.cumsum(efforts) / sum(efforts)
    starts = [0.0, *ends[:-1]]
    return [
        (strand, ProgressShare(float(start), float(end), strand.title))
        for strand, start, end in zip(strands, starts, ends, strict=True)
    ]


def summarise(settings: TablesSettings, found: Sequence[SeriesResult]) -> dict[str, Any]:
    """Keep what was found as a run, with all that the run knew before; return it as plain JSON."""
    known = _with_earlier(settings, found)
    cells = cells_of([each for each in known if each.part in _TABLES])
    others = [asdict(each) for each in known if each.part not in _TABLES]
    problems = [
        f"{' '.join(each.subject.values())}: {each.problem}" for each in found if each.problem
    ]
    metrics = {"cells": cells, "others": others, "problems": problems}
    path = save_results(
        settings.run, KIND, config=settings.to_json(), metrics=metrics, versions=versions()
    )
    return {"command": KIND, "run": settings.run, "path": str(path), **metrics}


def tables_plain(settings: TablesSettings) -> dict[str, Any]:
    """Do all of it without Prefect."""
    found = [measure_series(strand, settings, part) for strand, part in plan(settings)]
    return summarise(settings, found)


def _strands(settings: TablesSettings) -> list[Series]:
    return [strand for name in settings.chosen_parts for strand in _PARTS[name](settings)]


def _with_earlier(settings: TablesSettings, found: Sequence[SeriesResult]) -> list[SeriesResult]:
    """Return what was found now or before, in the order of the tables."""
    now = {(each.part, *each.subject.values()): each for each in found}
    every = _strands(replace(settings, parts=ALL, data=ALL, methods=ALL))
    both = (
        now.get((strand.part, *strand.subject.values())) or read_measured(strand, settings)
        for strand in every
    )
    return [each for each in both if each is not None]


def _refuse(settings: TablesSettings) -> None:
    """Raise an error where a run of another kind would be lost, or nothing can be kept."""
    kept = saved_run_path(settings.run)
    own = kept is not None and open_run(settings.run).kind == KIND
    check_name_is_free(settings.run, settings, RESULTS if own else "")
    _check_extras(settings)


def _check_extras(settings: TablesSettings) -> None:
    needed = {"table-4", "figure-1b"} & set(settings.chosen_parts)
    asked = "grassmann" in settings.chosen_methods or "figure-1b" in settings.chosen_parts
    if needed and asked and find_spec("pymanopt") is None:
        raise FlowError(
            "the solver 'grassmann' needs pymanopt, which is not installed: pip install "
            "'ism-dask[rivals]', or leave it out with --methods and figure-1b with --parts"
        )
