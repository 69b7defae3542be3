"""Plan, measure and save the paper's tables and figures, without Prefect."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from math import fsum

from dask.system import CPU_COUNT

from flows.compute.places import Local
from flows.compute.session import open_session
from flows.errors import FlowError, SettingsError
from flows.paper.cells import table_cells
from flows.paper.figures import features, figure_1a, figure_1b
from flows.paper.series import SERIES_ERRORS, Series, measure_series, read_measured
from flows.paper.settings import ALL, TablesSettings
from flows.paper.verdicts import cells_of
from flows.progress.watching import (
    ProgressShare,
    progress_note,
    repeated,
    report_progress,
    run_step,
)
from flows.results.paper import SeriesResult, TablesResult
from flows.runs.data import ensure_stored
from flows.runs.fitting import saved_record
from flows.runs.published import dated_name, publish_newest
from flows.runs.resumable import check_name_is_free
from flows.services.leases import hold_lease
from ism_dask.rows.worker import prepare_worker
from storage import PartialResults, save_results

Plan = list[tuple[Series, ProgressShare]]
KIND = TablesResult.command
# Seconds between two looks at the results that processes have stored.
_LOOK_SECONDS = 2.0
# Below this sum of the efforts of series, a minute or so, processes are not worth their start.
_LITTLE_WORK = 1e5
_PARTS: Mapping[str, Callable[[TablesSettings], Iterator[Series]]] = {
    **{part: partial(table_cells, part) for part in ("table-4", "table-5", "references")},
    "features": features,
    "figure-1a": figure_1a,
    "figure-1b": figure_1b,
}


def run_tables(settings: TablesSettings) -> TablesResult:
    """Measure the tables and figures of the paper again, with ISM and the other solvers.

    Measurements that an earlier run of that name has saved are reused.
    """
    if settings.keep_runs is not None:
        settings = replace(settings, run=dated_name(settings.run, force=settings.force))
    stored = PartialResults.of_run(settings.run)
    measured = list[SeriesResult]()
    with hold_lease(settings.run, KIND, settings.to_json(), lambda: bool(stored.keys())) as lease:
        with closing(_measured(plan(settings), settings)) as results:
            for result in results:
                measured.append(result)
                lease.check()
        return save(settings, measured)


def plan(settings: TablesSettings) -> Plan:
    """Return the series to measure, each with its share of the progress.

    Those that can be measured side by side come first.
    Raise an error if there is none, if the run cannot be saved, or if pymanopt is missing.
    """
    check_name_is_free(settings.run, force=settings.force, replaces=KIND)
    _check_extras(settings)
    chosen = _chosen_series(settings)
    _check_choice(settings, chosen)
    if settings.force:
        PartialResults.of_run(settings.run).clear()
    chosen.sort(key=lambda series: not series.side_by_side)
    parts = ProgressShare().cut([series.work for series in chosen])
    return [(each, part.named(each.title)) for each, part in zip(chosen, parts, strict=True)]


def _measured(planned: Plan, settings: TablesSettings) -> Generator[SeriesResult]:
    """Yield the results of the series: first of those that can be measured side by side."""
    shared = [each for each in planned if each[0].side_by_side]
    stored = PartialResults.of_run(settings.run).keys()
    missing = [each for each, _ in shared if each.key(each.steps[0]) not in stored]
    if sum(each.work for each in missing) < _LITTLE_WORK:
        shared = []
    else:
        yield from _measured_side_by_side(shared, settings)
    for series, part in planned[len(shared) :]:
        yield run_step(part.name, measure_series, series, settings, part)


def _measured_side_by_side(planned: Plan, settings: TablesSettings) -> Iterator[SeriesResult]:
    """Yield the results of the series as they come, from a process for each core."""
    for source in dict.fromkeys(series.source for series, _ in planned):
        with suppress(*SERIES_ERRORS):  # each of its series reports the error
            ensure_stored(*source)
    results, ended = PartialResults.of_run(settings.run), set[str]()
    shares = {
        series.key(step): (part.stop - part.start) / len(series.steps)
        for series, part in planned
        for step in series.steps
    }

    def report() -> None:
        done = shares.keys() & {*ended, *results.keys()}
        words = f"{len(done)} of {len(shares)} fits, side by side"
        report_progress(fsum(shares[key] for key in done), words)

    place = Local(workers=min(CPU_COUNT, len(planned)), threads=1)
    with open_session(place) as session, repeated(report, _LOOK_SECONDS):
        # The longest first: none is left to one core at the end.
        longest = sorted(planned, key=lambda each: -each[0].work)
        submit = session.executor.submit
        begun = {submit(_measured_by_worker, one, settings, part): one for one, part in longest}
        for future in as_completed(begun):
            series = begun[future]
            result: SeriesResult = run_step(series.title, future.result)
            if result.problem:
                progress_note(f"{series.title}: {result.problem}")
            ended.update(map(series.key, series.steps))
            report()
            yield result


def _measured_by_worker(
    series: Series, settings: TablesSettings, part: ProgressShare
) -> SeriesResult:
    """Return the results of a series, measured in a process of Dask."""
    prepare_worker()  # without it Dask lets fits take twice as long
    return measure_series(series, settings, part)


def save(settings: TablesSettings, measured: Sequence[SeriesResult]) -> TablesResult:
    """Save what was measured as a run, with all earlier results of that run."""
    every = _with_earlier(settings, measured)
    result = TablesResult(
        run=settings.run,
        cells=tuple(cells_of([each for each in every if "method" in each.subject])),
        others=tuple(each for each in every if "method" not in each.subject),
        problems=tuple(
            f"{' '.join(each.subject.values())}: {each.problem}"
            for each in measured
            if each.problem
        ),
    )
    path = save_results(settings.run, KIND, **saved_record(settings, result))
    publish_newest(settings.run, settings.keep_runs)
    return replace(result, path=str(path))


def _chosen_series(settings: TablesSettings) -> list[Series]:
    return [series for name in settings.chosen("parts") for series in _PARTS[name](settings)]


def _with_earlier(settings: TablesSettings, measured: Sequence[SeriesResult]) -> list[SeriesResult]:
    """Return the results of this run and of earlier ones, in the order of the tables."""
    current = {(each.part, *each.subject.values()): each for each in measured}
    every = _chosen_series(replace(settings, parts=ALL, data=ALL, methods=ALL))
    results = (
        current.get((series.part, *series.subject.values())) or read_measured(series, settings)
        for series in every
    )
    return [each for each in results if each is not None]


def _check_choice(settings: TablesSettings, chosen: Sequence[Series]) -> None:
    """Raise a SettingsError if nothing is chosen, or a method that no chosen part measures."""
    if not chosen:
        raise SettingsError(
            f"`parts` is {settings.parts!r} and `methods` is {settings.methods!r}, which have "
            "nothing in common; choose others"
        )
    measured = {series.subject.get("method") for series in chosen}
    idle = [name for name in settings.chosen("methods") if name not in measured]
    if settings.methods != ALL and idle:
        every = _chosen_series(replace(settings, parts=ALL))
        parts = {each.part: None for each in every if each.subject.get("method") == idle[0]}
        raise SettingsError(
            f"`methods` has {idle[0]!r}, which `parts` {settings.parts!r} does not measure; add "
            f"{' or '.join(parts)} to `parts`, or leave the method out"
        )


def _check_extras(settings: TablesSettings) -> None:
    """Raise a FlowError if a chosen method needs pymanopt, which is missing."""
    parts = settings.chosen("parts")
    grassmann = "table-4" in parts and "grassmann" in settings.chosen("methods")
    if (grassmann or "figure-1b" in parts) and find_spec("pymanopt") is None:
        raise FlowError(
            "the solver 'grassmann' needs pymanopt, which is not installed: pip install "
            "'ism-dask[rivals]', or leave it out with --methods and figure-1b with --parts"
        )
