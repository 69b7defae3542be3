"""Print what a command answers: text and tables, or one JSON object, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.progress import Progress
from rich.table import Table

from flows.errors import FailureAnswered
from flows.progress.watching import watch_progress
from flows.settings.fields import output_setting
from ism_dask.observe.progress import TimeLeft
from ism_dask.observe.progress_bar import bar_columns
from ism_dask.words import printable

if TYPE_CHECKING:
    from flows.reports.blocks import Fact, Summary
    from flows.reports.blocks import Table as ReportTable


@dataclass(frozen=True)
class Output:
    """The options `--json`, `--quiet` and `--debug` of every command, and its ways to print."""

    json: bool = output_setting(False, about="Print one JSON object instead of text.")
    quiet: bool = output_setting(False, about="Print nothing but errors.")
    debug: bool = output_setting(False, about="Show the traceback of an error, and Prefect's log.")

    @property
    def silent(self) -> bool:
        """Whether text for people is suppressed."""
        return self.json or self.quiet

    @property
    def live(self) -> bool:
        """Whether to show a moving bar: text is printed, and stderr is a terminal."""
        return not self.silent and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Print lines of text for people."""
        if not self.silent:
            lines = "\n".join(map(printable, text.split("\n")))
            # A console for each use: the width of stdout may change between two commands.
            Console().print(lines, soft_wrap=True, highlight=False, markup=False)

    def table(self, columns: Sequence[str], *sections: Iterable[Sequence[str]], left: int) -> None:
        """Print a table for people; all columns after the first `left` ones are aligned right.

        A line separates the sections, which are groups of rows.
        """
        if self.silent:
            return
        groups = [[[*map(printable, row)] for row in rows] for rows in sections]
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for index, column in enumerate(columns):
            # A name in the first column is never wrapped, however narrow the terminal; words are.
            whole = index == 0 and not any(" " in row[0] for rows in groups for row in rows)
            justify: JustifyMethod = "left" if index < left else "right"
            # A long path goes over several lines, rather than being cut.
            table.add_column(column, justify=justify, no_wrap=whole, overflow="fold")
        for rows in groups:
            for row in rows:
                table.add_row(*row)
            table.add_section()
        Console().print(table, markup=False)

    def show(self, table: ReportTable) -> None:
        """Print a table of a report."""
        self.table(table.columns, table.rows, table.foot, left=table.left)

    def finish(self, result: Any) -> None:
        """With `--json`, print the result as one JSON object, the last line of the output."""
        if self.json:
            # JSON has neither NaN nor infinity; pydantic writes null for them.
            from pydantic_core import to_json  # noqa: PLC0415

            sys.stdout.write(to_json(result, inf_nan_mode="null").decode() + "\n")

    def fail(self, result: dict[str, Any], problem: str) -> NoReturn:
        """Finish with a result and raise an error: the command has one, and failed all the same."""
        self.finish({**result, "error": problem, "status": FailureAnswered.status})
        raise FailureAnswered(problem)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Show the progress of the block in a bar, and print its notes and the link to its page."""
        console = Console(stderr=True)
        columns = bar_columns(console.width)
        with (
            Progress(*columns, console=console, disable=not self.live, transient=True) as progress,
            watch_progress(_Bar(self, progress)),
        ):
            yield


class _Bar:
    """A progress watcher that moves the bar on the terminal."""

    def __init__(self, output: Output, progress: Progress) -> None:
        self._output = output
        self._progress = progress
        self._task = progress.add_task("", total=1.0)
        self._time_left = TimeLeft()

    def tick(self, share: float, text: str) -> None:
        self._time_left.tick(share)
        self._progress.update(self._task, completed=share, description=self._time_left.after(text))

    def noted(self, text: str) -> None:
        if self._output.live:
            # Printed by the console of the bar, above it: output of another would break the bar.
            self._progress.console.print(text, soft_wrap=True, markup=False)
        else:
            self._output.say(text)

    def logged(self, text: str) -> None:
        """Do nothing: the bar shows the same as it happens."""


def print_summary(summary: Summary, output: Output, *, ending: bool = False) -> None:
    """Print a summary with the meaning of each figure.

    At the `ending` of a command, details are left out, and notes stand in place of meanings.
    """
    output.say(f"{summary.run}: {summary.subject}" if ending else summary.subject)
    _print_facts("figure", summary.facts, output)
    for block in summary.blocks:
        if ending and block.detail:
            continue
        _print_facts(
            block.title[:1].lower() + block.title[1:], block.facts, output, full=not ending
        )
        if block.command:
            output.say(block.command)
        if block.tables:
            output.say(block.title)
        for each in block.tables:
            output.show(each)
        if block.notes:
            output.say(block.notes_title)
        for note in block.notes:
            output.say(note)


def _print_facts(title: str, facts: Sequence[Fact], output: Output, *, full: bool = False) -> None:
    if full and facts:
        rows = [
            (each.name, each.value, " ".join([each.meaning, *each.notes, *each.warnings]).strip())
            for each in facts
        ]
        output.table((title, "value", "meaning"), rows, left=3)
    elif facts:
        output.table((title, "value"), [(each.name, each.value) for each in facts], left=2)
        for each in facts:
            for note in (*each.notes, *(f"Warning: {warning}" for warning in each.warnings)):
                output.say(note)
