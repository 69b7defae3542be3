"""Series of measurements, measured step by step; each result is stored as soon as it is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, ClassVar

from flows.builtin.catalogue import folder_of
from flows.interface.progress import ProgressShare, progress_note
from flows.paper.settings import TablesSettings
from flows.results.paper import SeriesResult
from flows.runs.data import ensure_stored
from flows.settings.fields import deciding
from storage import DamagedStore, PartialResults, StorageError, dataset_path

Result = dict[str, Any]

# The status of a step that exceeded its time limit: the value of `ism_dask.status.Status.OVER_CAP`.
OVER_CAP = "over the cap"
_SERIES_ERRORS = (
    ArithmeticError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    StorageError,
    ValueError,
)


class Series(ABC):
    """A series of measurements: folds of a cell, points of a line, pictures of a data set.

    Attributes
    ----------
    part : str
        A name of `flows.paper.names.PARTS`.
    ends_over_cap : bool
        Whether the series ends after a step that exceeded its time limit.
    """

    part: ClassVar[str]
    ends_over_cap: ClassVar[bool] = True

    @property
    @abstractmethod
    def subject(self) -> dict[str, str]:
        """The method, data and so on, by their role; together they identify the series."""

    @property
    @abstractmethod
    def steps(self) -> Sequence[int]:
        """The keys of the measurements in their order, such as numbers of folds or of rows."""

    @property
    @abstractmethod
    def effort(self) -> float:
        """The expected time of a step relative to other series; only the progress bar uses it."""

    @property
    @abstractmethod
    def source(self) -> tuple[str, str | None]:
        """The data set and its split."""

    @abstractmethod
    def measure(self, step: int, part: ProgressShare) -> Result:
        """Measure a step, and report its progress to `part`.

        The result has `seconds` and `status`.
        """

    def ends_with(self, result: Result) -> bool:
        """Return whether the series ends with this result, before its last step."""
        return self.ends_over_cap and result["status"] == OVER_CAP

    @property
    def title(self) -> str:
        """The name of the series for people."""
        return " ".join(self.subject.values())

    @property
    def name(self) -> str:
        """The name under which the results are stored: ASCII letters, digits, `.`, `-` and `_`."""
        words = "-".join([self.part, *self.subject.values()])
        return "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "_" for c in words)


def measure_series(series: Series, settings: TablesSettings, part: ProgressShare) -> SeriesResult:
    """Measure the steps of a series that have no stored result yet, and return all results."""
    results: list[Result] = []
    problem = ""
    try:
        results.extend(_StoredSteps(series, settings).measured(part))
    except _SeriesFailed as error:
        # An error in one series must not end the others.
        problem = str(error)
        progress_note(f"{series.title}: {problem}")
    return _result(series, results, problem)


def read_measured(series: Series, settings: TablesSettings) -> SeriesResult | None:
    """Return the results of a series that earlier runs stored, None if there are none."""
    if not dataset_path(folder_of(*series.source)).exists():
        return None
    try:
        results = list(_StoredSteps(series, settings).stored())
    except _SeriesFailed:
        return None
    return _result(series, results) if results else None


def _result(series: Series, results: list[Result], problem: str = "") -> SeriesResult:
    return SeriesResult(
        part=series.part,
        subject=series.subject,
        results=results,
        steps=len(series.steps),
        problem=problem,
    )


class _SeriesFailed(Exception):  # noqa: N818 - users see its message only, not its name
    """A series cannot be measured."""


@contextmanager
def _series_errors() -> Iterator[None]:
    """Turn errors of the data or of the numbers into a `_SeriesFailed`.

    Errors of the `PartialResults` stay as they are and end the run: without it no result is stored.
    """
    try:
        yield
    except _SERIES_ERRORS as error:
        raise _SeriesFailed(f"{type(error).__name__}: {error}") from error


class _StoredSteps:
    """The steps of a series and their stored results."""

    def __init__(self, series: Series, settings: TablesSettings) -> None:
        self._series, self._settings = series, settings
        self._store = PartialResults.of_run(settings.run)
        with _series_errors():
            data = ensure_stored(*series.source)
        versions = {"data_hash": data.data_hash, "version": version("ism-dask")}
        self._conditions = {**deciding(settings), **versions}

    def measured(self, part: ProgressShare) -> Iterator[Result]:
        """Yield all results, measuring those that are not stored, until the series ends.

        It ends after its last step, by `ends_with`, or when the time limit of a cell is spent.
        """
        series, spent = self._series, 0.0
        parts = part.cut(len(series.steps))
        for step, progress in zip(series.steps, parts, strict=True):
            if spent > self._settings.budget:
                return
            result = self._find(step)
            if result is None:
                with _series_errors():
                    result = series.measure(step, progress)
                self._store.save(self._piece_name(step), self._conditions, result)
            progress.report(1.0)
            yield result
            if series.ends_with(result):
                return
            spent += result["seconds"]

    def stored(self) -> Iterator[Result]:
        """Yield the stored results, up to the first step without one."""
        for step in self._series.steps:
            result = self._find(step)
            if result is None:
                return
            yield result

    def _find(self, step: int) -> Result | None:
        try:
            found: Result | None = self._store.find(self._piece_name(step), self._conditions)
        except DamagedStore as error:
            progress_note(f"{error} It is measured again")
            return None
        return found

    def _piece_name(self, step: int) -> str:
        return f"{self._series.name}-{step}"
