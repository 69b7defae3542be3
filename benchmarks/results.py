"""Store results as JSON, print them on a terminal, and write them into the documentation."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure
from benchmarks.registry import all_figures

# Pieces of long measurements, which go on after an interruption.
RESULTS = Path("bench-results")
# The latest result of every figure, and the page of the documentation that is made of them.
RECORD = Path("docs/measured/bench.json")
PAGE = Path("docs/measured/figures.md")
# What was tried where a figure misses its target, by the name of the figure.
TRIED = Path("docs/measured/tried.toml")
# Width in characters of tables printed into a file or a pipe.
_FILE_WIDTH = 200
# Keys of a figure that are shown in places of their own, not among its numbers.
_SHOWN_APART = {
    "must",
    "met",
    "peak_limit_gb",
    "peak_gb",
    "wall_seconds",
    "table",
    "more_tables",
    "picture",
    "notes",
}
# Larger tables are in `RECORD` alone, as are those of figures that are met and have numbers.
_TABLE_LINES, _TABLE_COLUMNS = 12, 9
_HEAD = """\
# Figures

Every measured figure, the target that was set beforehand, whether it was met, and what was tried if
it was not.
`python -m benchmarks NAME` measures a figure again, and `make bench` most of them; both write
[bench.json](bench.json) and this page from it. Ratios are medians of runs in turn. Other tables
are in `bench.json` alone.
"""


@dataclass(frozen=True)
class Result:
    """A figure and the machine on which it was measured."""

    name: str
    machine: dict[str, Any]
    figure: Figure

    def save(self) -> None:
        """Write the result into the record of all figures."""
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        record[self.name] = plain({"machine": self.machine, "figure": self.figure})
        RECORD.write_text(json.dumps(record, indent=1) + "\n")

    @classmethod
    def saved(cls) -> list[Result]:
        """Return the latest results of the figures that still exist, by name."""
        record = json.loads(RECORD.read_text())
        return [cls(name, **record[name]) for name in sorted(record) if name in all_figures()]


def plain(value: Any) -> Any:
    """Return `value` as JSON can hold it: Python numbers, with infinities and NaN as strings."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    return number


def print_figures(figures: Mapping[str, Figure]) -> None:
    """Print a summary of all figures, then the table of each."""
    console = Console()
    if not console.is_terminal:  # the 80 columns that rich assumes would cut numbers off
        console = Console(width=_FILE_WIDTH)
    table = Table("figure", "measured", "peak GB", "must be", "met", show_lines=True)
    for name, figure in figures.items():
        numbers = "\n".join(f"{_words(key)} {short(value)}" for key, value in _numbers(figure))
        met = "yes" if figure["met"] else "NO"
        table.add_row(name, numbers or "below", short(figure["peak_gb"]), figure["must"], met)
    console.print(table)
    for name, figure in figures.items():
        for title, lines in _tables(name, figure).items():
            columns, rows = _cells(lines)
            grid = Table(*columns, title=title)
            for row in rows:
                grid.add_row(*row)
            console.print(grid)


def write_page() -> None:
    """Write the page of the documentation from the record of all figures."""
    PAGE.write_text(page(Result.saved()))


def page(results: list[Result]) -> str:
    """Return the page in Markdown: the machines, then every figure."""
    machines = _machines(results)
    *few, (most, _) = sorted(machines.items(), key=lambda entry: len(entry[1]))
    parts = [_HEAD, *(f"{machine}: {', '.join(names)}.\n" for machine, names in few)]
    parts.append(f"{most}: {'all others' if few else 'all'}.\n")
    return "\n".join([*parts, *(_section(result) for result in results)])


def short(value: Any) -> str:
    """Return a number with four digits, and anything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " to ".join(short(item) for item in value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _machines(results: list[Result]) -> dict[str, list[str]]:
    """Return the description of each machine, with the names of the figures measured on it."""
    figures_by_machine: dict[str, list[str]] = {}
    for result in results:
        figures_by_machine.setdefault(_machine(result.machine), []).append(f"`{result.name}`")
    return figures_by_machine


def _machine(machine: Mapping[str, Any]) -> str:
    if "processor" not in machine:  # results that were copied from notes
        return f"{machine['cores']} cores, other details not recorded; {machine['when']}"
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gb']} GB, Python "
        f"{machine['python']}, {packages}; {machine['when']}"
    )


def _section(result: Result) -> str:
    figure = result.figure
    numbers = "; ".join(f"{_words(key)} {short(value)}" for key, value in _numbers(figure))
    about = (getdoc(all_figures()[result.name]) or "").split("\n\n")[0].replace("\n", " ")
    met = "met." if figure["met"] else f"**missed**. {tried().get(result.name, '')}"
    judged = f"{about} Required: {figure['must']}; {met}"
    lines = [f"## {result.name}\n", f"{judged}{f' Measured: {numbers}.' if numbers else ''}\n"]
    is_told = figure["met"] and numbers  # without its table
    for title, table in {} if is_told else _tables(result.name, figure).items():
        if len(table) <= _TABLE_LINES and len(table[0]) <= _TABLE_COLUMNS:
            lines += [*([f"{title}:\n"] if title != result.name else []), grid(table)]
    if "picture" in figure:
        picture_path = Path("..") / Path(figure["picture"]).relative_to("docs")
        lines.append(f"![{result.name}]({picture_path})\n")
    return "\n".join(lines)


def tried() -> dict[str, str]:
    """Return what was tried for each figure that misses its target."""
    return dict(tomllib.loads(TRIED.read_text()))


def _numbers(figure: Figure) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in figure.items() if key not in _SHOWN_APART]


def _tables(name: str, figure: Figure) -> dict[str, list[Figure]]:
    """Return the tables of a figure that have lines, by title; that of the first is its name."""
    tables = {name: figure.get("table", []), **figure.get("more_tables", {})}
    return {title: lines for title, lines in tables.items() if lines}


def _words(key: str) -> str:
    return key.replace("_", " ")


def grid(lines: list[Figure]) -> str:
    """Return lines as a Markdown table."""
    if not lines:
        return ""
    names, rows = _cells(lines)
    every = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in every) + "\n"


def _cells(lines: list[Figure]) -> tuple[list[str], list[list[str]]]:
    """Return the titles of the columns, the keys of all lines but "ok", and the rows as text."""
    names = list(dict.fromkeys(name for line in lines for name in line if name != "ok"))
    return [_words(name) for name in names], [
        [short(line.get(name)) for name in names] for line in lines
    ]
