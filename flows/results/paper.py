"""Result of the flow that measures the paper's tables and figures again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flows.results.base import JsonRecord, RunResult


@dataclass(frozen=True, kw_only=True)
class Spread(JsonRecord):
    """Mean and population standard deviation of a measure over folds."""

    mean: float
    sd: float


@dataclass(frozen=True, kw_only=True)
class Cell(JsonRecord):
    """A cell of the paper's tables: one method on one data set, with its published figures."""

    table: str  # the part of the run: a name of `flows.paper.settings.PARTS`
    paradigm: str
    data: str
    kernel: str  # empty for methods without one
    method: str
    title: str  # the method for people
    folds: int  # that were measured
    of: int  # the number of folds
    score: Spread | None  # each is None if the method has no such measure
    seconds: Spread | None
    objective: Spread | None
    cost: Spread | None
    objectives: tuple[float, ...] = ()  # J of each fold
    status: str  # of all folds
    published: Mapping[str, Any]  # the published figures, by the name of the measure
    problem: str  # the error that ended the measurement, empty if there was none
    lost: tuple[str, ...] = ()  # what ISM loses in, against published figures and other solvers


@dataclass(frozen=True, kw_only=True)
class SeriesResult(JsonRecord):
    """The results of a series of measurements."""

    part: str  # a name of `flows.paper.settings.PARTS`
    subject: Mapping[str, str]  # the method, data and others, by their role
    # One for each step that was measured, as stored; each part has entries of its own.
    results: list[dict[str, Any]]
    steps: int = 0  # of the series
    problem: str = ""  # the message of the error that ended the series, empty if there was none


@dataclass(frozen=True, kw_only=True)
class TablesResult(RunResult):
    """The result of `tables`."""

    command: ClassVar[str] = "tables"
    cells: tuple[Cell, ...]  # of the tables, in their order
    others: tuple[SeriesResult, ...] = ()  # the lines and pictures of the figures
    problems: tuple[str, ...] = ()  # what could not be measured to the end

    @property
    def failure(self) -> str:
        """The parts that could not be measured; empty if all could."""
        if not self.problems:
            return ""
        return (
            f"{len(self.problems)} of the cells and lines could not be measured to the end; the "
            f"first: {self.problems[0]}. The others are saved as {self.run}"
        )
