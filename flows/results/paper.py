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
    """A cell of the paper's tables: one method on one data set, with its published figures.

    Attributes
    ----------
    table : str
        The part of the run that it belongs to, a name of `flows.paper.settings.PARTS`.
    paradigm, data, kernel, method : str
        What was measured; `kernel` is empty for methods without one.
    title : str
        The method for people.
    rows, q : int
    folds, of : int
        Number of folds that were measured, and of all.
    score, seconds, objective, cost, iterations : Spread or None
        None if the method has no such measure.
    residual : float or None
        The largest one over folds.
    engine, status : str
        Over all folds.
    published : Mapping
        The published figures, by the name of the measure.
    problem : str
        The error that ended the measurement, empty if there was none.
    lost : tuple of str
        What ISM loses in, against the published figures and other solvers.
    """

    table: str
    paradigm: str
    data: str
    kernel: str
    method: str
    title: str
    rows: int
    q: int
    folds: int
    of: int
    score: Spread | None
    seconds: Spread | None
    objective: Spread | None
    cost: Spread | None
    iterations: Spread | None
    residual: float | None
    engine: str
    status: str
    published: Mapping[str, Any]
    problem: str
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SeriesResult(JsonRecord):
    """The results of a series of measurements.

    Attributes
    ----------
    part : str
        A name of `flows.paper.settings.PARTS`.
    subject : Mapping
        The method, data and so on, by their role.
    results : list of dict
        One result for each step that was measured, as stored; each part has entries of its own.
    steps : int
        Number of steps of the series.
    problem : str
        The message of the error that ended the series, empty if there was none.
    """

    part: str
    subject: Mapping[str, str]
    results: list[dict[str, Any]]
    steps: int = 0
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class TablesResult(RunResult):
    """The result of `tables`.

    Attributes
    ----------
    cells : tuple of Cell
        The cells of the tables, in their order.
    others : tuple of SeriesResult
        The lines and pictures of the figures.
    problems : tuple of str
        What could not be measured to the end.
    """

    command: ClassVar[str] = "tables"
    cells: tuple[Cell, ...]
    others: tuple[SeriesResult, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def failure(self) -> str:
        """The parts that could not be measured; empty if all could."""
        if not self.problems:
            return ""
        return (
            f"{len(self.problems)} of the cells and lines could not be measured to the end; the "
            f"first: {self.problems[0]}. The others are saved as {self.run}"
        )
