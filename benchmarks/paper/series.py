"""Series of measurements: each result is a file of JSON as soon as it is measured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import say
from benchmarks.paper.settings import PaperSettings
from benchmarks.results import RESULTS
from ism_dask.status import Status

# Seconds, status and measures of one step.
Result = dict[str, Any]
STORE = RESULTS / "paper"
OVER_CAP = Status.OVER_CAP.value
# Errors of the data or of the numbers, which end a series and leave the others.
_ERRORS = (ArithmeticError, ImportError, LookupError, MemoryError, OSError, ValueError)


def is_over_cap(result: Result) -> bool:
    """Return whether a step exceeded its time limit."""
    return bool(result["status"] == OVER_CAP)


@dataclass(frozen=True)
class Series:
    """A series of measurements: folds of a cell, points of a line, pictures of a data set."""

    part: str  # a name of `PARTS`
    subject: Mapping[str, str]  # the method, data and others, by their role, which identify it
    measure: Callable[[int], Result]  # measures a step
    steps: Sequence[int] = (0,)  # their keys in order, such as numbers of folds or of rows
    # Whether others may be measured at the same time: no step needs more than one core.
    side_by_side: bool = False
    # Returns whether the series ends with a result, before its last step.
    ends_with: Callable[[Result], bool] = is_over_cap

    @property
    def title(self) -> str:
        """The name of the series for people."""
        return " ".join(self.subject.values())

    def path(self, step: int) -> Path:
        """Return the path of the result of a step."""
        words = "-".join([self.part, *self.subject.values(), str(step)])
        name = "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "_" for c in words)
        return STORE / f"{name}.json"


@dataclass(frozen=True)
class Measured:
    """The results of a series."""

    part: str
    subject: Mapping[str, str]
    results: list[Result]
    steps: int  # of the series
    problem: str = ""  # the message of the error that ended the series, empty if there was none


def measure_series(series: Series, settings: PaperSettings, *, stored: bool = False) -> Measured:
    """Return the results of a series, measuring those that are not stored, until it ends.

    It ends after its last step, by `ends_with`, when the budget of a cell is spent, or with an
    error. With `stored`, nothing is measured, and the first step without a result ends the series.
    """
    conditions = {
        "cap": settings.cap,
        "folds": settings.folds,
        "seed": settings.seed,
        "version": version("ism-dask"),
    }
    results, problem = list[Result](), ""
    for step in series.steps:
        path = series.path(step)
        known = json.loads(path.read_text()) if path.exists() else {}
        if known.get("conditions") == conditions:
            result = known["result"]
        elif stored:
            break
        else:
            try:
                result = series.measure(step)
            except _ERRORS as error:
                problem = f"{type(error).__name__}: {error}"
                say(f"{series.title}: {problem}")
                break
            say(f"{series.part}, {series.title}, {step}: {result['seconds']:.2f} s")
            _write(path, {"conditions": conditions, "result": result})
        results.append(result)
        spent = sum(each["seconds"] for each in results)
        if series.ends_with(result) or spent > settings.budget:
            break
    return Measured(series.part, dict(series.subject), results, len(series.steps), problem)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(content))
    beside.replace(path)
