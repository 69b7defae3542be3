"""The summary of a run as data: figures, tables, notes and pictures, which renderers lay out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.reports.figures import Figure


@dataclass(frozen=True)
class Fact:
    """A figure of a run, such as its objective.

    Attributes
    ----------
    name, value : str
    meaning : str
        What the figure means, for readers who see it for the first time.
    notes : tuple of str
        What every reader has to know: sentences that can stand alone.
    warnings : tuple of str
        What speaks against the result, with advice: sentences that can stand alone.
    """

    name: str
    value: str
    meaning: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def explanation(self) -> str:
        """Meaning, notes and warnings in one text."""
        return " ".join(filter(None, (self.meaning, *self.notes, *self.warnings)))


@dataclass(frozen=True)
class Table:
    """A table whose first column names the row.

    Attributes
    ----------
    caption : str
    columns : tuple of str
    rows, foot : tuple of tuple of str
        The rows of `foot` sum up the others.
    left : int
        Number of leading columns with words; the others have numbers, aligned right.
    terminal : tuple of int
        The numbers of the columns that a terminal has room for; all if empty.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    foot: tuple[tuple[str, ...], ...] = ()
    left: int = 1
    terminal: tuple[int, ...] = ()

    def for_terminal(self) -> Table:
        """Return the table with the columns that a terminal has room for."""
        if not self.terminal:
            return self

        def cut(row: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(row[number] for number in self.terminal)

        return replace(
            self,
            columns=cut(self.columns),
            rows=tuple(map(cut, self.rows)),
            foot=tuple(map(cut, self.foot)),
            terminal=(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the table as plain JSON."""
        return {
            "caption": self.caption,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "foot": [list(row) for row in self.foot],
        }


@dataclass(frozen=True)
class Block:
    """A part of a summary with a title. A page shows its contents in the order of the attributes.

    Attributes
    ----------
    title : str
    about : str
        A paragraph for pages.
    facts : tuple of Fact
    command : str
        A command to copy.
    tables : tuple of Table
    notes_title : str
        The line before the notes.
    notes : tuple of str
    draw : callable, optional
        Draws the pictures. It is called for pages only, because drawing takes time.
    style : str
        Style of the pictures on a page: "", "images" or "weights".
    drawable : int
        Number of pictures that there could be, if a page may show fewer.
    files : tuple of str
        Paths of stored pictures, for the terminal.
    detail : bool
        Whether the block is left out at the end of a command.
    """

    title: str
    about: str = ""
    facts: tuple[Fact, ...] = ()
    command: str = ""
    tables: tuple[Table, ...] = ()
    notes_title: str = ""
    notes: tuple[str, ...] = ()
    draw: Callable[[], Sequence[Figure]] | None = None
    style: str = ""
    drawable: int = 0
    files: tuple[str, ...] = ()
    detail: bool = False

    @cached_property
    def pictures(self) -> tuple[Figure, ...]:
        """The pictures with their titles and captions, drawn at the first use."""
        return tuple(self.draw()) if self.draw is not None else ()

    @property
    def introduction(self) -> str:
        """The paragraph for pages, which also says how many pictures are not shown."""
        shown = len(self.pictures)
        if self.drawable <= shown:
            return self.about
        rest = self.drawable - shown
        return f"{self.about} The first {shown} are shown, {rest} more are stored."

    @property
    def is_empty(self) -> bool:
        """Whether a page has nothing to show below the title; the template asks."""
        return not (self.facts or self.command or self.tables or self.notes or self.pictures)

    def to_json(self) -> dict[str, Any]:
        """Return the block as plain JSON, with titles and captions for pictures."""
        return {
            "title": self.title,
            "facts": [_fact_json(fact) for fact in self.facts],
            "command": self.command,
            "tables": [table.to_json() for table in self.tables],
            "notes": list(self.notes),
            "pictures": [{"title": each.title, "caption": each.caption} for each in self.pictures],
        }


@dataclass(frozen=True)
class Summary:
    """The summary of a run, the same for the terminal, for pages and for programs.

    Attributes
    ----------
    run, kind : str
    subject : str
        Data and settings of the run in a line.
    facts : tuple of Fact
        Its main figures.
    blocks : tuple of Block
        In the order in which they are shown.
    """

    run: str
    kind: str
    subject: str
    facts: tuple[Fact, ...]
    blocks: tuple[Block, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all facts, which a page shows at its top."""
        blocks = (fact for block in self.blocks for fact in block.facts)
        return tuple(each for fact in (*self.facts, *blocks) for each in fact.warnings)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        return {
            "run": self.run,
            "kind": self.kind,
            "subject": self.subject,
            "facts": [_fact_json(fact) for fact in self.facts],
            "blocks": [block.to_json() for block in self.blocks],
        }


def _fact_json(fact: Fact) -> dict[str, Any]:
    return {
        "name": fact.name,
        "value": fact.value,
        "meaning": fact.meaning,
        "notes": list(fact.notes),
        "warnings": list(fact.warnings),
    }
