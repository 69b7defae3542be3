"""Print the summary of a run on the terminal: whole for `show`, shorter at the end of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.cli.output import Output

if TYPE_CHECKING:
    from flows.reports.blocks import Block, Fact, Summary


def print_summary(summary: Summary, output: Output) -> None:
    """Print a summary with all its blocks, and with the meaning of each figure."""
    output.say(summary.subject)
    _print_facts("figure", summary.facts, output)
    for block in summary.blocks:
        columns = (block.title.lower(), "value", "meaning")
        if block.facts:
            rows = [(each.name, each.value, each.explanation) for each in block.facts]
            output.table(columns, rows, left=3)
        if block.command:
            output.say(block.command)
        _print_tables(block, output)


def print_ending(summary: Summary, output: Output) -> None:
    """Print a summary without its details, and with notes in place of meanings."""
    output.say(f"{summary.run}: {summary.subject}")
    _print_facts("figure", summary.facts, output)
    for block in summary.blocks:
        if not block.detail:
            _print_facts(block.title.lower(), block.facts, output)
            _print_tables(block, output)


def _print_facts(title: str, facts: Sequence[Fact], output: Output) -> None:
    if facts:
        output.table((title, "value"), [(each.name, each.value) for each in facts], left=2)
    for each in facts:
        for note in (*each.notes, *(f"Warning: {warning}" for warning in each.warnings)):
            output.say(note)


def _print_tables(block: Block, output: Output) -> None:
    if block.tables:
        output.say(block.title)
    for each in block.tables:
        table = each.for_terminal()
        output.table(table.columns, table.rows, table.foot, left=table.left)
    if block.notes:
        output.say(block.notes_title)
    for note in (*block.notes, *(f"picture {file}" for file in block.files)):
        output.say(note)
