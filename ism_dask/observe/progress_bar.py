"""A progress bar for fits in a terminal or a notebook: `with progress_bar(): model.fit(X, y)`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from ism_dask.observe.fit_events import FitPlan, FitWatcher, watching_fits
from ism_dask.observe.progress import converged_share, log_progress, watching_passes

if TYPE_CHECKING:
    from ism_dask.records.checkpoint import Round
    from ism_dask.records.iteration import Record, State
    from ism_dask.records.stopping_rule import Stopping

# A pass of fewer seconds is not shown: it is over before anybody can read of it.
_LONG = 1.0
# The share of a fit that its iterations or rounds take. The rest is the check of the solution, or
# k-means.
_ITERATIONS = 0.8
# The largest share of the rounds that is shown as done before the last one ends.
_ALMOST = 0.9
# Iterations or rounds from which the time left is estimated. One does not show how many there will
# be, and the first of two may differ because of the start.
_ENOUGH = 3
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


def bar_columns(width: int, clock: ProgressColumn) -> list[ProgressColumn]:
    """Return the columns of a bar on a terminal of `width` characters, with `clock` at the end."""
    fixed = Column(no_wrap=True)
    return [
        # The only column that shrinks if the line is too long.
        _Description("{task.description}", markup=False, table_column=Column()),
        BarColumn(min(40, width // 8), table_column=fixed),
        TaskProgressColumn(table_column=fixed.copy()),
        clock,
    ]


class _Line:
    """The line of the bar in a terminal, which rich refreshes by itself."""

    def __init__(self, console: Console) -> None:
        clock = _Clock(table_column=Column(no_wrap=True))
        self._progress = Progress(*bar_columns(console.width, clock), console=console)
        self._task = self._progress.add_task("", total=1.0, visible=False, began=None, ends=None)

    def shown(self) -> AbstractContextManager[object]:
        """Return a context in which the line is shown; it stays on the screen at the end."""
        return self._progress

    def update(self, text: str, **fields: Any) -> None:
        """Change the text, and the given fields of the task."""
        self._progress.update(self._task, description=text, visible=True, **fields)


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

    def update(self, text: str, **fields: Any) -> None:
        super().update(text, **fields)
        # Updates with fields move the bar and are rare. Tasks, whose updates have none, may be
        # thousands: they are shown at most once per interval.
        if not fields and time.monotonic() < self._next_update:
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
        self._fits, self._began = 0, time.monotonic()

    def begun(self, plan: FitPlan) -> None:
        self._fits += 1
        self._plan, self._outer = plan, plan.rounds or plan.iterations
        self._changes: list[float] = []
        self._stage, self._text = "preparing", "preparing"
        self._pass_began = time.monotonic()
        self._show(self._text, completed=0.0, began=self._began, ends=None)

    def on_selection(self, done: int, total: int) -> None:
        self._show(f"choosing the width, {done} of {total} tried")

    def on_iteration(self, state: State) -> None:
        record, stopping = state.history[-1], self._plan.iterations
        number = record.iteration
        text = f"iteration {number}, {_measures(record, stopping)}"
        self._stage = "checking" if stopping.reached(record) else f"iteration {number + 1}"
        if self._plan.rounds is None:
            self._advance(text, converged_share(state, stopping), number, record.seconds)
        else:
            within = f"round {len(self._changes) + 1}, "
            self._stage = within + self._stage
            self._show(within + text)

    def on_round(self, done: Round) -> None:
        self._changes.append(done.change)
        share = max(
            done.number / self._outer.max_iter, log_progress(self._changes, self._outer.limit)
        )
        # When the embedding has converged, W is still solved fully: the bar waits for that.
        share = 1.0 if done.last else min(share, _ALMOST)
        self._stage = "clusters" if done.last else f"round {done.number + 1}"
        text = f"round {done.number}, {_measures(done, self._outer)}"
        self._advance(text, share, done.number, done.seconds)

    def on_task(self, done: int, total: int) -> None:
        """Show the progress of the current pass; computing threads call this after each task."""
        now = time.monotonic()
        if done == 1:
            self._pass_began = now
        if now - self._pass_began > _LONG:
            self._show(f"{self._stage}, rows {100 * done / total:.0f}%")

    def ended(self) -> None:
        self._show(self._text, completed=1.0, ends=None)

    def _advance(self, text: str, share: float, number: int, seconds: float) -> None:
        """Move the bar after `number` iterations or rounds, which took so many seconds."""
        self._text = text
        share *= _ITERATIONS
        can_estimate = number >= _ENOUGH and share < _ITERATIONS
        ends = time.monotonic() + seconds * (1.0 / share - 1.0) if can_estimate else None
        self._show(text, completed=share, ends=ends)

    def _show(self, text: str, **fields: Any) -> None:
        number = f"fit {self._fits}" if self._fits > 1 else ""
        text = ", ".join(filter(None, (self._description, number, text)))
        self._line.update(text, **fields)


class _Description(TextColumn):
    """The text, cut off with an ellipsis if the line has no room for all of it."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class _Clock(ProgressColumn):
    """Time since the block began, and the time left of the fit if that can be estimated."""

    def render(self, task: Task) -> Text:
        now = time.monotonic()
        spent = _clock(now - task.fields["began"])
        ends = task.fields["ends"]
        remaining = f", {_clock(max(ends - now, 1.0))} left" if ends is not None else ""
        return Text(spent + remaining, style="progress.elapsed")


def _measures(done: Record | Round, stopping: Stopping) -> str:
    """Return a text with the objective and the convergence of an iteration or a round."""
    measured, limit = stopping.measured(done), stopping.limit
    sign = "<" if measured < limit else ">"
    return f"objective {done.objective:.5g}, {stopping.measure} {measured:.2g} {sign} {limit:g}"


def _clock(seconds: float) -> str:
    """Return seconds as mm:ss or h:mm:ss."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:")
