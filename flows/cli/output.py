"""What a command shows: tables and notes for people, one JSON object for programs, a bar."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Column, Table

from flows.interface.fields import setting
from flows.interface.progress import TimeLeft, watch_progress
from flows.text import printable
from ism_dask.observe.progress_bar import bar_columns


@dataclass(frozen=True)
class Output:
    """How a command answers; an option of every command for each field."""

    json: bool = setting(
        False, about="Print one JSON object, and nothing for people.", flags=("--json",)
    )
    quiet: bool = setting(False, about="Print nothing but errors.", flags=("--quiet",))
    debug: bool = setting(
        False, about="Show the traceback of an error, and Prefect's log.", flags=("--debug",)
    )

    @property
    def silent(self) -> bool:
        """Whether people are shown nothing."""
        return self.json or self.quiet

    @property
    def live(self) -> bool:
        """Whether somebody watches who can be shown a moving bar."""
        return not self.silent and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not self.silent:
            shown = "\n".join(map(printable, text.split("\n")))
            _console().print(shown, soft_wrap=True, highlight=False, markup=False)

    def table(self, columns: Sequence[str], *sections: Sequence[Sequence[str]], left: int) -> None:
        """Print sections of rows for people, all but the `left` first columns flush right."""
        if self.silent:
            return
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for index, column in enumerate(columns):
            # The first names the row, whatever room is left for the others.
            justify: JustifyMethod = "left" if index < left else "right"
            table.add_column(column, justify=justify, no_wrap=index == 0)
        for rows in sections:
            for row in rows:
                table.add_row(*map(printable, row))
            table.add_section()
        _console().print(table, markup=False)

    def finish(self, result: Any) -> None:
        """Print the result for programs, where they asked for it: the last line of all."""
        if self.json:
            sys.stdout.write(json.dumps(_strict(result), allow_nan=False) + "\n")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Show people how far the block is, and where else they can see it."""
        console = Console(stderr=True)
        # What is left the text tells, once it can be told.
        clock = TimeElapsedColumn(table_column=Column(no_wrap=True))
        columns = bar_columns(console.width, clock)
        with (
            Progress(*columns, console=console, disable=not self.live, transient=True) as progress,
            watch_progress(_Bar(self, progress)),
        ):
            yield

    def waiting(self, text: str) -> AbstractContextManager[object]:
        """Show people that the block takes a while."""
        self.say(text)
        return Console(stderr=True).status("waiting for it") if self.live else nullcontext()


class _Bar:
    """A watcher that moves the bar of a terminal."""

    def __init__(self, output: Output, progress: Progress) -> None:
        self._output = output
        self._progress = progress
        self._task = progress.add_task("", total=1.0)
        self._left = TimeLeft()

    def tick(self, share: float, text: str) -> None:
        self._left.tick(share)
        self._progress.update(self._task, completed=share, description=self._left.after(text))

    def linked(self, url: str) -> None:
        self.noted(f"run: {url}")

    def noted(self, text: str) -> None:
        if self._output.live:  # above the bar, which another stream would tear apart
            self._progress.console.print(text, soft_wrap=True, markup=False)
        else:
            self._output.say(text)


def _console() -> Console:
    # Made when needed: the stream and its width may change between two commands of one process.
    return Console()


def _strict(value: Any) -> Any:
    """Return `value` without NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
