"""Render summaries as Markdown: pages for the Prefect UI, and files of the paper's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from flows.reports.blocks import Block, Fact, Summary
from flows.reports.paper_tables import drawings, tables_by_part
from flows.reports.pictures import Figure, escape
from flows.reports.summary import summarise
from flows.reports.view import View
from flows.results.base import RunResult
from flows.results.paper import TablesResult

Links = Mapping[str, str]

# Most characters of pictures on a page: the UI loads all pages with its list of artifacts.
_ROOM = 250_000


def run_page(result: RunResult, links: Links | None = None) -> str:
    """Return the page of a run with this result, which has been saved, pictures included."""
    return render_markdown(summarise(result, View.of(result.run)), links)


def render_markdown(summary: Summary, links: Links | None = None) -> str:
    """Return a summary as a page; `links` are addresses or words by title, shown at its end."""
    pictures = _Pictures()
    parts = [
        f"# {_escaped(summary.run)}",
        _escaped(summary.opening),
        _escaped(summary.subject),
        *(f"> **Warning:** {_escaped(each)}" for each in summary.warnings),
        *_facts(summary.facts),
        *(part for block in summary.blocks for part in _block(block, pictures)),
    ]
    if pictures.omitted:
        titles = ", ".join(pictures.omitted)
        parts.append(f"Not shown here, but in the report of the run: {titles}.")
    for title, place in (links or {}).items():
        is_address = place.startswith(("http://", "https://"))
        parts.append(f"- [{title}]({place})" if is_address else f"- {title}: {_escaped(place)}")
    return "\n\n".join(filter(None, parts))


def table_files(result: TablesResult) -> dict[str, str]:
    """Return the contents of files with the paper's tables and drawings, by file name."""
    texts = {
        f"{part}.md": "\n\n".join(part for block in blocks for part in _block(block)) + "\n"
        for part, blocks in tables_by_part(result).items()
    }
    return {**texts, **{f"{name}.svg": text for name, text in drawings(result).items()}}


class _Pictures:
    """The pictures of a page, as many as it has room for, and the titles of the others."""

    def __init__(self) -> None:
        self._room = _ROOM
        self.omitted: list[str] = []

    def shown(self, figures: Sequence[Figure]) -> Iterator[str]:
        """Yield the figures that there is room for, each with its title and caption."""
        for figure in figures:
            address = figure.data_uri()
            if len(address) > self._room:
                self.omitted.append(figure.title)
                continue
            self._room -= len(address)
            picture = f"![{_escaped(figure.alt)}]({address})"
            yield f"### {_escaped(figure.title)}\n\n{picture}\n\n{_escaped(figure.caption)}"


def _block(block: Block, pictures: _Pictures | None = None) -> list[str]:
    """Return the paragraphs of a block, with its pictures if `pictures` are given."""
    content = [
        _escaped(block.about),
        *_facts(block.facts),
        f"    {escape(block.command)}" if block.command else "",
    ]
    for table in block.tables:
        rows = _rows(table.columns, (*table.rows, *table.foot))
        content += [_escaped(table.caption), rows] if rows else []
    if block.notes:
        content += [block.notes_title, "\n".join(f"- {_escaped(note)}" for note in block.notes)]
    if pictures:
        content += pictures.shown(block.pictures)
    content = list(filter(None, content))
    return [f"## {_escaped(block.title)}", *content] if content else []


def _facts(facts: Sequence[Fact]) -> list[str]:
    """Return names and values as a table, and the notes below; the report has the meanings."""
    rows = [(fact.name, fact.value) for fact in facts]
    return [_rows(("", ""), rows), *(_escaped(note) for fact in facts for note in fact.notes)]


def _rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or an empty string if it has no rows."""
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    head = [f"| {' | '.join(map(_escaped, columns))} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *lines]) if lines else ""


def _escaped(text: str) -> str:
    """Return text escaped for Markdown, so that nothing in it acts as markup."""
    safe = escape(text)
    for mark in "\\`*[]|":
        safe = safe.replace(mark, f"\\{mark}")
    return safe
