"""Series of measurements, measured step by step; each result is stored as soon as it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import repeat
from typing import Any

from flows.builtin.catalogue import folder_of
from flows.paper.settings import TablesSettings
from flows.progress.watching import ProgressShare, progress_note
from flows.results.paper import SeriesResult
from flows.runs.data import ensure_stored
from flows.runs.resumable import saved_part
from flows.settings.fields import deciding
from ism_dask.status import Status
from storage import PartialResults, StorageError, dataset_path

# Seconds, status and measures of one step.
Result = dict[str, Any]

OVER_CAP = Status.OVER_CAP.value
SERIES_ERRORS = (
    ArithmeticError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    StorageError,
    ValueError,
)


def is_over_cap(result: Result) -> bool:
    """Return whether a step exceeded its time limit."""
    return bool(result["status"] == OVER_CAP)


@dataclass(frozen=True)
class Series:
    """A series of measurements: folds of a cell, points of a line, pictures of a data set."""

    part: str  # a name of `flows.paper.settings.PARTS`
    subject: Mapping[str, str]  # the method, data and others, by their role, which identify it
    source: tuple[str, str | None]  # the data set and its split
    effort: float  # the expected time of a step beside other series, for the progress bar
    measure: Callable[[int, ProgressShare], Result]  # measures a step
    steps: Sequence[int] = (0,)  # their keys in order, such as numbers of folds or of rows
    # Whether others may be measured at the same time: no step needs more than one core.
    side_by_side: bool = False
    # Returns whether the series ends with a result, before its last step.
    ends_with: Callable[[Result], bool] = is_over_cap

    @property
    def title(self) -> str:
        """The name of the series for people."""
        return " ".join(self.subject.values())

    @property
    def name(self) -> str:
        """The name under which the results are stored: ASCII letters, digits, `.`, `-` and `_`."""
        words = "-".join([self.part, *self.subject.values()])
        return "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "_" for c in words)

    @property
    def work(self) -> float:
        """The expected time of all steps beside other series."""
        return self.effort * len(self.steps)

    def key(self, step: int) -> str:
        """Return the key under which the result of a step is stored."""
        return f"{self.name}-{step}"

    def result(self, results: list[Result], error: Exception | None = None) -> SeriesResult:
        """Return the results of the steps, and the error that ended the series, if there is one."""
        problem = f"{type(error).__name__}: {error}" if error else ""
        if problem:
            progress_note(f"{self.title}: {problem}")
        return SeriesResult(
            part=self.part,
            subject=dict(self.subject),
            results=results,
            steps=len(self.steps),
            problem=problem,
        )


def read_measured(series: Series, settings: TablesSettings) -> SeriesResult | None:
    """Return the results of a series that earlier runs stored, None if there are none."""
    if not dataset_path(folder_of(*series.source)).exists():
        return None
    measured = measure_series(series, settings, None)
    return measured if measured.results else None


def measure_series(
    series: Series, settings: TablesSettings, part: ProgressShare | None
) -> SeriesResult:
    """Return the results of a series, measuring those that are not stored, until it ends.

    It ends after its last step, by `ends_with`, when the time limit of a cell is spent, or with an
    error of the data or of the numbers, which must not end the other series. Errors of the
    `PartialResults` end the run: without them no result is stored. Without a `part` of the progress
    nothing is measured, and the first step without a result ends the series.
    """
    results = list[Result]()
    try:
        data_hash = ensure_stored(*series.source).data_hash
    except SERIES_ERRORS as error:
        return series.result([], error)
    versions = {"data_hash": data_hash, "version": version("ism-dask")}
    conditions = {**deciding(settings), **versions}
    parts = repeat(None) if part is None else part.cut([1.0] * len(series.steps))
    for step, progress in zip(series.steps, parts, strict=False):
        key = series.key(step)
        result = saved_part(settings.run, key, conditions)
        if result is None:
            if progress is None:
                break
            try:
                result = series.measure(step, progress)
            except SERIES_ERRORS as error:
                return series.result(results, error)
            PartialResults.of_run(settings.run).save(key, conditions, result)
        if progress is not None:
            progress.report(1.0)
        results.append(result)
        spent = sum(each["seconds"] for each in results)
        if series.ends_with(result) or spent > settings.budget:
            break
    return series.result(results)
