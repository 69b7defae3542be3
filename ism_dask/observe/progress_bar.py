"""A bar for fits in a terminal or a notebook: `with progress_bar(): model.fit(X, y)`."""

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
from ism_dask.observe.pass_progress import converged_share, log_progress, watching_passes

if TYPE_CHECKING:
    from ism_dask.records.checkpoint import Round
    from ism_dask.records.iteration import Record, State
    from ism_dask.records.stopping import Stopping

# A pass of fewer seconds is over before anybody has read of it.
_LONG = 1.0
# How much of a fit its iterations or rounds are; the check of the answer, or k-means, is the rest.
_ITERATIONS = 0.8
# How much of the rounds are at most done before the last.
_ALMOST = 0.9
# One alone says nothing of how many there will be, and two may differ by what the start is worth.
_TELLING = 3
# Seconds between two pictures of the bar in a notebook: each is a message to the browser.
_EVERY = 0.2


@contextmanager
def progress_bar(description: str = "", *, console: Console | None = None) -> Iterator[None]:
    """Show how far each fit in the block is: iteration, objective, change, time left.

    Clusterers, pipelines and searches are shown too, one fit after the other; fits that run in
    other processes (`n_jobs=2`) are not. Without a terminal or a notebook nothing is shown, so
    that logs stay clean.

    Parameters
    ----------
    description : str
        What stands before all that is told.
    console : rich.console.Console, optional
        Where to; the error stream unless given.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> from ism_dask.bar import progress_bar
    >>> X, y = load_wine(return_X_y=True)
    >>> with progress_bar("Wine"):
    ...     fitted = SupervisedIKDR(2).fit(X, y)
    """
    # FORCE_COLOR makes every stream a terminal to rich: logs of CI would have a line a picture.
    console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
    if not (console.is_terminal or console.is_jupyter):
        yield
        return
    line = (_Cell if console.is_jupyter else _Line)(console)
    bar = _Bar(line, description)
    with line.shown(), watching_fits(bar), watching_passes(bar.on_task):
        yield


def bar_columns(width: int, clock: ProgressColumn) -> list[ProgressColumn]:
    """Return what a bar consists of on a terminal of that width, with `clock` at its end."""
    fixed = Column(no_wrap=True)
    return [
        # Alone to give way.
        _Said("{task.description}", markup=False, table_column=Column()),
        BarColumn(min(40, width // 8), table_column=fixed),
        TaskProgressColumn(table_column=fixed.copy()),
        clock,
    ]


class _Line:
    """The line that the bar is, which rich keeps up to date in a terminal by itself."""

    def __init__(self, console: Console) -> None:
        clock = _Clock(table_column=Column(no_wrap=True))
        self._progress = Progress(*bar_columns(console.width, clock), console=console)
        self._task = self._progress.add_task("", total=1.0, visible=False, began=None, ends=None)

    def shown(self) -> AbstractContextManager[object]:
        """Show it while the block lasts, and leave it as it is in the end."""
        return self._progress

    def update(self, text: str, **fields: Any) -> None:
        """Change the text, and others of its fields."""
        self._progress.update(self._task, description=text, visible=True, **fields)


class _Cell(_Line):
    """The line in the output of a notebook's cell.

    It is displayed anew in its own place; what rich does in notebooks by itself needs widgets.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._place: Any = None
        self._next = 0.0

    def shown(self) -> AbstractContextManager[object]:
        return nullcontext()

    def update(self, text: str, **fields: Any) -> None:
        super().update(text, **fields)
        # What moves the bar is seldom; tasks may be thousands.
        if not fields and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        if self._place is None:
            display = import_module("IPython.display").display
            self._place = display(self._progress, display_id=True)
        else:
            self._place.update(self._progress)


class _Bar(FitWatcher):
    """What is told of fits, put on a line.

    Parameters
    ----------
    line : _Line
    description : str
        What stands before all that is told.
    """

    def __init__(self, line: _Line, description: str) -> None:
        self._line, self._description = line, description
        self._fits, self._began = 0, time.monotonic()

    def begun(self, plan: FitPlan) -> None:
        self._fits += 1
        self._plan, self._outer = plan, plan.rounds or plan.iterations
        self._changes: list[float] = []
        self._stage, self._told = "preparing", "preparing"
        self._pass_began = time.monotonic()
        self._tell(self._told, completed=0.0, began=self._began, ends=None)

    def on_selection(self, done: int, total: int) -> None:
        self._tell(f"choosing the width, {done} of {total} tried")

    def on_iteration(self, state: State) -> None:
        record, stopping = state.history[-1], self._plan.iterations
        number = record.iteration
        told = f"iteration {number}, {_account(record, stopping)}"
        self._stage = "checking" if stopping.reached(record) else f"iteration {number + 1}"
        if self._plan.rounds is None:
            self._move(told, converged_share(state, stopping), number, record.seconds)
        else:
            within = f"round {len(self._changes) + 1}, "
            self._stage = within + self._stage
            self._tell(within + told)

    def on_round(self, done: Round) -> None:
        self._changes.append(done.change)
        share = max(
            done.number / self._outer.max_iter, log_progress(self._changes, self._outer.limit)
        )
        # Once the embedding stays, W is solved for to the end.
        share = 1.0 if done.last else min(share, _ALMOST)
        self._stage = "clusters" if done.last else f"round {done.number + 1}"
        told = f"round {done.number}, {_account(done, self._outer)}"
        self._move(told, share, done.number, done.seconds)

    def on_task(self, done: int, total: int) -> None:
        """Take note, in a thread that computes, of a task of a pass; passes follow each other."""
        now = time.monotonic()
        if done == 1:
            self._pass_began = now
        if now - self._pass_began > _LONG:
            self._tell(f"{self._stage}, rows {100 * done / total:.0f}%")

    def ended(self) -> None:
        self._tell(self._told, completed=1.0, ends=None)

    def _move(self, told: str, share: float, number: int, seconds: float) -> None:
        """Tell how far the fit is after `number` iterations or rounds in so many seconds."""
        self._told = told
        share *= _ITERATIONS
        known = number >= _TELLING and share < _ITERATIONS
        ends = time.monotonic() + seconds * (1.0 / share - 1.0) if known else None
        self._tell(told, completed=share, ends=ends)

    def _tell(self, told: str, **fields: Any) -> None:
        number = f"fit {self._fits}" if self._fits > 1 else ""
        text = ", ".join(filter(None, (self._description, number, told)))
        self._line.update(text, **fields)


class _Said(TextColumn):
    """The text, on one line: what the line has no room for is left out."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class _Clock(ProgressColumn):
    """Time since the block began, and what is left of the fit where that can be told."""

    def render(self, task: Task) -> Text:
        now = time.monotonic()
        spent = _clock(now - task.fields["began"])
        ends = task.fields["ends"]
        left = f", {_clock(max(ends - now, 1.0))} left" if ends is not None else ""
        return Text(spent + left, style="progress.elapsed")


def _account(done: Record | Round, stopping: Stopping) -> str:
    """Return what is told of an iteration or a round: how far it is from being the last."""
    measured, limit = stopping.measured(done), stopping.limit
    sign = "<" if measured < limit else ">"
    return f"objective {done.objective:.5g}, {stopping.measure} {measured:.2g} {sign} {limit:g}"


def _clock(seconds: float) -> str:
    """Return such as 01:05, or 1:01:05."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:")
