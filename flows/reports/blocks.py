"""The summary of a run as data: figures, tables, notes and pictures, which renderers lay out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ism_dask.words import count_noun

if TYPE_CHECKING:
    from flows.reports.pictures import Figure


@dataclass(frozen=True)
class Fact:
    """A figure of a run, such as its objective."""

    name: str
    value: str
    # What the figure means, for readers who see it for the first time.
    meaning: str = ""
    # What every reader has to know, and what speaks against the result, with advice: sentences.
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table whose first column names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    # Rows that sum up the others.
    foot: tuple[tuple[str, ...], ...] = ()
    # Number of leading columns with words; the others have numbers, aligned right.
    left: int = 1


@dataclass(frozen=True)
class Block:
    """A part of a summary with a title. A page shows its contents in the order of the fields."""

    title: str
    # A paragraph for pages.
    about: str = ""
    facts: tuple[Fact, ...] = ()
    # A command to copy.
    command: str = ""
    tables: tuple[Table, ...] = ()
    # The line before the notes, and the notes.
    notes_title: str = ""
    notes: tuple[str, ...] = ()
    pictures: tuple[Figure, ...] = ()
    # Style of the pictures on a page: "", "images" or "weights".
    style: str = ""
    # Whether the block is left out at the end of a command.
    detail: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the block as plain JSON, with titles and captions for pictures."""
        return {
            "title": self.title,
            "facts": list(map(asdict, self.facts)),
            "command": self.command,
            "tables": list(map(asdict, self.tables)),
            "notes": self.notes,
            "pictures": [{"title": each.title, "caption": each.caption} for each in self.pictures],
        }


@dataclass(frozen=True)
class Summary:
    """The summary of a run, the same for the terminal, for pages and for programs."""

    # Data and settings of the run in a line.
    subject: str
    # Its main figures.
    facts: tuple[Fact, ...]
    # In the order in which they are shown.
    blocks: tuple[Block, ...]
    # What was found, in a sentence without its end.
    finding: str = ""
    # Data and settings of the run in a few words, and its main figure.
    short: str = ""
    headline: str = ""
    # What `summarise` gives the summary of a run, which its words need not.
    run: str = ""
    kind: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all facts, which a page shows at its top."""
        blocks = (fact for block in self.blocks for fact in block.facts)
        return tuple(each for fact in (*self.facts, *blocks) for each in fact.warnings)

    @property
    def opening(self) -> str:
        """One sentence for the top of a page: what was found, and how far to trust it."""
        if not self.finding:
            return ""
        count = len(self.warnings)
        who = count_noun(count, "warning") if count else "no check"
        return f"{self.finding}; {who} speak{'s' * (count < 2)} against it."

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        return {
            "run": self.run,
            "kind": self.kind,
            "subject": self.subject,
            "opening": self.opening,
            "facts": list(map(asdict, self.facts)),
            "blocks": [block.to_json() for block in self.blocks],
        }


def say(name: str, **values: object) -> str:
    """Return the sentence of a part and name, such as "error.unknown", with values in braces."""
    part, _, key = name.partition(".")
    return sentences()[part][key].format(**values)


@cache
def sentences() -> Mapping[str, Mapping[str, str]]:
    """Return the sentences of `sentences.toml` by part and name."""
    return tomllib.loads((files("flows.reports") / "sentences.toml").read_text(encoding="utf-8"))
