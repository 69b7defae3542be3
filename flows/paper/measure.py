"""Plan, measure and save the paper's tables and figures, without Prefect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from flows.errors import FlowError, SettingsError
from flows.interface.progress import ProgressShare
from flows.paper.accuracy_by_features import features
from flows.paper.cells import comparison_cells, table_4, table_5
from flows.paper.figure_1a import figure_1a
from flows.paper.figure_1b import figure_1b
from flows.paper.series import Series, measure_series, read_measured
from flows.paper.settings import ALL, TablesSettings
from flows.paper.verdicts import cells_of
from flows.results.paper import SeriesResult, TablesResult
from flows.runs.lease import HeldLease, hold_lease
from flows.runs.published import dated_name, publish_newest
from flows.runs.saving import check_name_is_free, versions
from storage import PartialResults, save_results

KIND = TablesResult.command
_PARTS: Mapping[str, Callable[[TablesSettings], Iterator[Series]]] = {
    "table-4": table_4,
    "table-5": table_5,
    "references": comparison_cells,
    "features": features,
    "figure-1a": figure_1a,
    "figure-1b": figure_1b,
}
_TABLES = ("table-4", "table-5", "references")


def plan(settings: TablesSettings) -> list[tuple[Series, ProgressShare]]:
    """Return the series to measure, each with its share of the progress.

    Raise an error if there is none, if the run cannot be saved, or if pymanopt is missing.
    """
    _check_can_save(settings)
    chosen = _chosen_series(settings)
    if not chosen:
        raise SettingsError(
            f"`parts` is {settings.parts!r} and `methods` is {settings.methods!r}, which have "
            "nothing in common; choose others"
        )
    _check_methods(settings, chosen)
    if settings.force:
        PartialResults.of_run(settings.run).clear()
    efforts = [series.effort * len(series.steps) for series in chosen]
    ends = np.cumsum(efforts) / sum(efforts)
    starts = [0.0, *ends[:-1]]
    return [
        (series, ProgressShare(float(start), float(end), series.title))
        for series, start, end in zip(chosen, starts, ends, strict=True)
    ]


def _check_methods(settings: TablesSettings, chosen: Sequence[Series]) -> None:
    """Raise a SettingsError if a method is named that no chosen part measures."""
    measured = {series.subject.get("method") for series in chosen}
    idle = [name for name in settings.chosen_methods if name not in measured]
    if settings.methods != ALL and idle:
        every = _chosen_series(replace(settings, parts=ALL))
        parts = {each.part: None for each in every if each.subject.get("method") == idle[0]}
        raise SettingsError(
            f"`methods` has {idle[0]!r}, which `parts` {settings.parts!r} does not measure; add "
            f"{' or '.join(parts)} to `parts`, or leave the method out"
        )


def save(settings: TablesSettings, measured: Sequence[SeriesResult]) -> TablesResult:
    """Save what was measured as a run, with all earlier results of that run."""
    every = _with_earlier(settings, measured)
    result = TablesResult(
        run=settings.run,
        cells=tuple(cells_of([each for each in every if each.part in _TABLES])),
        others=tuple(each for each in every if each.part not in _TABLES),
        problems=tuple(
            f"{' '.join(each.subject.values())}: {each.problem}"
            for each in measured
            if each.problem
        ),
    )
    path = save_results(
        settings.run, KIND, config=settings.to_json(), metrics=result.metrics, versions=versions()
    )
    publish_newest(settings.run, settings.keep_runs)
    return replace(result, path=str(path))


def with_date(settings: TablesSettings) -> TablesSettings:
    """Return the settings with the date in the name of the run, if earlier runs stay."""
    if settings.keep_runs is None:
        return settings
    return replace(settings, run=dated_name(settings.run, force=settings.force))


@contextmanager
def resumable_tables(settings: TablesSettings) -> Iterator[HeldLease]:
    """Hold the lease of the run in the block: `runs` lists it, and a second process is refused.

    An interrupted run can be resumed from the results that it has stored.
    """
    run = settings.run

    def has_results() -> bool:
        return bool(PartialResults.of_run(run).keys())

    with hold_lease(run, KIND, settings.to_json(), has_results) as lease:
        yield lease


def tables_plain(settings: TablesSettings) -> TablesResult:
    """Measure and save all chosen parts, without Prefect."""
    settings = with_date(settings)
    with resumable_tables(settings) as lease:
        results = []
        for series, part in plan(settings):
            results.append(measure_series(series, settings, part))
            lease.check()
        return save(settings, results)


def _chosen_series(settings: TablesSettings) -> list[Series]:
    return [series for name in settings.chosen_parts for series in _PARTS[name](settings)]


def _with_earlier(settings: TablesSettings, measured: Sequence[SeriesResult]) -> list[SeriesResult]:
    """Return the results of this run and of earlier ones, in the order of the tables."""
    current = {(each.part, *each.subject.values()): each for each in measured}
    every = _chosen_series(replace(settings, parts=ALL, data=ALL, methods=ALL))
    results = (
        current.get((series.part, *series.subject.values())) or read_measured(series, settings)
        for series in every
    )
    return [each for each in results if each is not None]


def _check_can_save(settings: TablesSettings) -> None:
    """Raise an error if a run of another kind has the name, or its folder cannot be written.

    Also raise one if a chosen method needs pymanopt, which is missing.
    """
    check_name_is_free(settings.run, settings, KIND)
    _check_extras(settings)


def _check_extras(settings: TablesSettings) -> None:
    fits_other_solvers = {"table-4", "figure-1b"} & set(settings.chosen_parts)
    grassmann_chosen = (
        "grassmann" in settings.chosen_methods or "figure-1b" in settings.chosen_parts
    )
    if fits_other_solvers and grassmann_chosen and find_spec("pymanopt") is None:
        raise FlowError(
            "the solver 'grassmann' needs pymanopt, which is not installed: pip install "
            "'ism-dask[rivals]', or leave it out with --methods and figure-1b with --parts"
        )
