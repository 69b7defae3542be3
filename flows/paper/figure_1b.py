"""Measure Figure 1b: seconds against rows, for ISM, the other solvers and linear-time engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.paper.methods import Request, fit_facts, fit_kernel, rows_in_memory, sampled_rows
from flows.paper.names import DELTA, METHODS, OTHER_SOLVERS
from flows.paper.series import Result, Series
from flows.paper.settings import TablesSettings
from flows.progress.watching import ProgressShare
from ism_dask.solvers import ISM, Solver, as_solver

_DATA, _SPLIT = "mnist", "train"
_ROWS = (500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000)
# The number of new features in the paper.
_Q = 20
# A line ends if the next point would take more than 60 s: twice the rows take at least 4 times as
# long, since an exact engine takes O(n^2) time.
_SECONDS, _GROWTH = 60.0, 4.0


@dataclass(frozen=True)
class Line:
    """The solver, kernel and engine of a line of the figure.

    Attributes
    ----------
    title : str
    kernel : str
    linear : bool
        Whether the time should grow with n, not with n^2. Such a line has all numbers of rows.
    engine : str
    solver : Solver
    """

    title: str
    kernel: str
    linear: bool
    engine: str
    solver: Solver = ISM(tol=DELTA)  # noqa: RUF009 - frozen


_LINES = (
    Line("ISM, all pairs", "polynomial", False, "exact"),
    *(
        Line(
            f"{METHODS[name].published.upper()}, all pairs",
            "polynomial",
            False,
            "exact",
            as_solver(name),
        )
        for name in OTHER_SOLVERS
    ),
    Line("ISM, monomials", "polynomial", True, "monomials"),
    Line("ISM, landmarks (gaussian)", "gaussian", True, "landmarks"),
)


@dataclass(frozen=True)
class GrowthLine(Series):
    """The measurement of a line of the figure; its steps are the numbers of rows."""

    line: Line
    settings: TablesSettings

    part = "figure-1b"

    @property
    def subject(self) -> dict[str, str]:
        """The title and the kernel of the line."""
        return {"line": self.line.title, "kernel": self.line.kernel}

    @property
    def steps(self) -> Sequence[int]:
        """The numbers of rows."""
        return _ROWS

    @property
    def effort(self) -> float:
        """The same for all lines."""
        return 2000.0

    @property
    def source(self) -> tuple[str, str | None]:
        """MNIST's training images."""
        return _DATA, _SPLIT

    def measure(self, step: int, part: ProgressShare) -> Result:
        """Fit W to `step` rows."""
        X, y = rows_in_memory(_DATA, _SPLIT)
        chosen, _ = sampled_rows(_DATA, _SPLIT, step, self.settings.seed)
        cap = min(_SECONDS, self.settings.cap)
        request = Request(_Q, self.line.kernel, cap, self.settings.seed)
        with part.lasting(0.0, f"{self.line.title}, {step:,} rows"):
            line = self.line
            fit = fit_kernel(request, X[chosen], y[chosen], line.solver, line.engine)
        return {"rows": step, **fit_facts(fit)}

    def ends_with(self, result: Result) -> bool:
        """Return whether twice the rows would take too long."""
        if super().ends_with(result):
            return True
        return not self.line.linear and _GROWTH * result["seconds"] > _SECONDS


def figure_1b(settings: TablesSettings) -> Iterator[Series]:
    """Return the lines of the figure."""
    return (GrowthLine(line, settings) for line in _LINES)
