"""A progress bar for fits in a terminal or a notebook: `with progress_bar(): model.fit(X, y)`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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

from ism_dask.observe import watching_fits
from ism_dask.observe.progress import FitProgress, TimeLeft

if TYPE_CHECKING:
    from ism_dask.records.iteration import Stopping

# Seconds between two updates of the bar in a notebook: each is a message to the browser.
_INTERVAL = 0.2


@contextmanager
def progress_bar(description: str = "", *, console: Console | None = None) -> Iterator[None]:
    """Show how far each fit in the block is: iteration, objective, nearness of the end, time left.

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
    line = Progress(*bar_columns(console.width), console=console)
    bar = _Bar(line, description, in_cell=console.is_jupyter)
    # The live display of rich needs widgets in notebooks: there, the bar displays itself.
    with nullcontext() if console.is_jupyter else line, watching_fits(bar):
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


class _Description(TextColumn):
    """The text, cut off with an ellipsis if the line has no room for all of it."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class _Bar(FitProgress):
    """Shows fits, one after the other, on a line in a terminal or in the output of a cell."""

    def __init__(self, line: Progress, description: str, in_cell: bool) -> None:
        self._line, self._description, self._in_cell = line, description, in_cell
        self._task = line.add_task("", total=1.0, visible=False)
        self._fits = 0
        self._handle: Any = None
        self._next_update = 0.0

    def begun(self, iterations: Stopping, rounds: Stopping | None = None) -> None:
        self._fits += 1
        self._time_left = TimeLeft()
        self._line.reset(self._task)
        super().begun(iterations, rounds)
        self.show(self.stage)

    def on_task(self, done: int, total: int) -> None:
        if self._fits:
            super().on_task(done, total)
            self.show_pass()

    def ended(self) -> None:
        self.share = 1.0
        self.show(self.result)

    def show(self, text: str) -> None:
        self._time_left.tick(self.share)
        fit = f"fit {self._fits}" if self._fits > 1 else ""
        text = self._time_left.after(", ".join(filter(None, (self._description, fit, text))))
        self._line.update(self._task, completed=self.share, description=text, visible=True)
        # Tasks may be thousands: a cell shows them at most once per interval.
        if self._in_cell and (self.share == 1 or time.monotonic() >= self._next_update):
            self._next_update = time.monotonic() + _INTERVAL
            if self._handle is None:
                display = import_module("IPython.display").display
                self._handle = display(self._line, display_id=True)
            else:
                self._handle.update(self._line)
