"""A progress bar for fits in a terminal or a notebook: `with progress_bar(): model.fit(X, y)`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from ism_dask.observe.fit_events import FitPlan, FitWatcher, watching_fits
from ism_dask.observe.fit_progress import FitProgress
from ism_dask.observe.progress import watching_passes
from ism_dask.observe.time_left import TimeLeft

if TYPE_CHECKING:
    from ism_dask.records.checkpoint import Round
    from ism_dask.records.iteration import Record, State
    from ism_dask.records.stopping_rule import Stopping

# Seconds between two updates of the bar in a notebook: each is a message to the browser.
_INTERVAL = 0.2


@contextmanager
def progress_bar(description: str = "", *, console: Console | None = None) -> Iterator[None]:
    """Show how far each fit in the block is: iteration, objective, change, time left.

    Clusterers, pipelines and searches are shown too, one fit after the other; fits that run in
    other processes (`n_jobs=2`) are not. Without a terminal or a notebook nothing is shown, so
    that logs stay clean.

    Parameters
    ----------
    description : str
        A text that stands before all others on the line.
    console : rich.console.Console, optional
        The console to write to; by default standard error.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> from ism_dask import progress_bar
    >>> X, y = load_wine(return_X_y=True)
    >>> with progress_bar("Wine"):
    ...     fitted = SupervisedIKDR(2).fit(X, y)
    """
    # With FORCE_COLOR rich takes every stream for a terminal: a CI log would get a line per update.
    console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
    if not (console.is_terminal or console.is_jupyter):
        yield
        return
    line = (_Cell if console.is_jupyter else _Line)(console)
    bar = _Bar(line, description)
    with line.shown(), watching_fits(bar), watching_passes(bar.on_task):
        yield


def bar_columns(width: int) -> list[ProgressColumn]:
    """Return the columns of a bar on a terminal of `width` characters."""
    fixed = Column(no_wrap=True)
    return [
        # The only column that shrinks if the line is too long.
        _Description("{task.description}", markup=False, table_column=Column()),
        BarColumn(min(40, width // 8), table_column=fixed),
        TaskProgressColumn(table_column=fixed.copy()),
        TimeElapsedColumn(table_column=fixed.copy()),
    ]


class _Line:
    """The line of the bar in a terminal, which rich refreshes by itself."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(*bar_columns(console.width), console=console)
        self._task = self._progress.add_task("", total=1.0, visible=False)

    def shown(self) -> AbstractContextManager[object]:
        """Return a context in which the line is shown; it stays on the screen at the end."""
        return self._progress

    def restart(self) -> None:
        """Set the bar and its clock back to 0."""
        self._progress.reset(self._task)

    def update(self, share: float, text: str) -> None:
        """Show the share that is done, and a text."""
        self._progress.update(self._task, completed=share, description=text, visible=True)


class _Cell(_Line):
    """The line of the bar in the output of a notebook cell.

    Each update is displayed in the place of the last one, because the live display of rich needs
    widgets in notebooks.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._handle: Any = None
        self._next_update = 0.0

    def shown(self) -> AbstractContextManager[object]:
        return nullcontext()

    def update(self, share: float, text: str) -> None:
        super().update(share, text)
        # Tasks may be thousands: they are shown at most once per interval.
        if share < 1 and time.monotonic() < self._next_update:
            return
        self._next_update = time.monotonic() + _INTERVAL
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(self._progress, display_id=True)
        else:
            self._handle.update(self._progress)


class _Bar(FitWatcher):
    """Shows the events of fits on a line.

    Parameters
    ----------
    line : _Line
    description : str
        A text that stands before all others on the line.
    """

    def __init__(self, line: _Line, description: str) -> None:
        self._line, self._description = line, description
        self._fits = 0

    def begun(self, plan: FitPlan) -> None:
        self._fits += 1
        self._plan, self._progress = plan, FitProgress(plan)
        self._restart()
        self._report(self._progress.stage)

    def on_selection(self, done: int, total: int) -> None:
        stage = self._progress.on_selection(done, total)
        self._show(self._progress.share, stage)

    def on_steps(self, unit: str) -> None:
        self._progress.on_steps(unit)

    def on_iteration(self, state: State) -> None:
        name = self._progress.on_iteration(state)
        self._report(f"{name}, {_measures(state.history[-1], self._plan.iterations)}")

    def on_round(self, done: Round) -> None:
        name = self._progress.on_round(done)
        self._report(f"{name}, {_measures(done, self._plan.rounds or self._plan.iterations)}")

    def on_task(self, done: int, total: int) -> None:
        """Show the progress of the current pass; computing threads call this after each task."""
        if not self._fits:
            return
        self._progress.on_task(done, total)
        text = self._progress.advance_by_pass()
        if text is not None:
            self._show(self._progress.share, text)

    def on_refit(self, done: int, total: int) -> None:
        if done == 0:
            self._restart()
        self._update(done / total, f"refit {done} of {total}")

    def ended(self) -> None:
        self._show(1.0, self._result)

    def _restart(self) -> None:
        self._time_left = TimeLeft()
        self._line.restart()

    def _report(self, text: str) -> None:
        """Show a text that stays on the line if the fit ends with this event."""
        self._result = text
        self._show(self._progress.share, text)

    def _show(self, share: float, text: str) -> None:
        """Show the share of the present fit that is done, and a text on it."""
        self._update(share, f"fit {self._fits}, {text}" if self._fits > 1 else text)

    def _update(self, share: float, text: str) -> None:
        self._time_left.tick(share)
        text = ", ".join(filter(None, (self._description, text)))
        self._line.update(share, self._time_left.after(text))


class _Description(TextColumn):
    """The text, cut off with an ellipsis if the line has no room for all of it."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


def _measures(done: Record | Round, stopping: Stopping) -> str:
    """Return a text with the objective and the convergence of an iteration or a round."""
    measured, limit = stopping.measured(done), stopping.limit_of(done)
    sign = "<" if measured < limit else ">"
    return f"objective {done.objective:.5g}, {stopping.measure} {measured:.2g} {sign} {limit:.2g}"
