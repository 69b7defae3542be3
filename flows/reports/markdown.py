"""Render summaries as Markdown: pages for the Prefect UI, and files of the paper's tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flows.interface.columns_read import SCHEMA_COLUMNS, schema_cells
from flows.reports import paper_tables
from flows.reports.blocks import Block, Fact, Summary, Table
from flows.reports.figures import Figure
from flows.reports.picture_elements import escape
from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.results.base import IngestResult
from flows.results.paper import TablesResult
from storage.tables.schema import TableSchema

Links = Mapping[str, str]

# Most characters of pictures on a page: the UI loads all pages with its list of artifacts.
_ROOM = 250_000
# Pictures in a row of a gallery.
_GALLERY = 4


def run_page(run: str, links: Links | None = None) -> str:
    """Return the page of a saved run; `links` are addresses or words by title, shown at its end."""
    return render_markdown(summary_of(View.of(run)), links)


def render_markdown(summary: Summary, links: Links | None = None) -> str:
    """Return a summary as a page; `links` are addresses by title, shown at its end."""
    pictures = _Pictures(_ROOM)
    parts = [
        f"# {summary.run}",
        _escaped(summary.subject),
        *(f"> **Warning:** {_escaped(each)}" for each in summary.warnings),
        *_facts(summary.facts),
        *(part for block in summary.blocks for part in _block(block, pictures)),
    ]
    if pictures.omitted:
        titles = ", ".join(pictures.omitted)
        parts.append(f"Not shown here, but in the report of the run: {titles}.")
    parts += [_link(title, place) for title, place in (links or {}).items()]
    return "\n\n".join(filter(None, parts))


def table_files(result: TablesResult) -> dict[str, str]:
    """Return the contents of files with the paper's tables and drawings, by file name."""
    texts = {
        f"{part}.md": "\n\n".join(part for block in blocks for part in _block(block)) + "\n"
        for part, blocks in paper_tables.tables(result).items()
    }
    drawings = paper_tables.drawings(result)
    return {**texts, **{f"{name}.svg": text for name, text in drawings.items()}}


def ingest_page(result: IngestResult) -> str:
    """Return the page of an ingested data set."""
    labels = [(name, str(classes or "numbers")) for name, classes in result.labels.items()]
    parts = [
        f"# {_escaped(result.dataset)} ({_escaped(result.split)})",
        f"{result.rows:,} rows, {result.columns:,} columns.",
        _rows(("label", "classes"), labels),
        _columns_read(result),
        f"Stored in {_escaped(result.path)}, with the hash {result.data_hash}."
        if result.path
        else "A dry run: nothing was stored.",
    ]
    return "\n\n".join(filter(None, parts))


def _columns_read(result: IngestResult) -> str:
    """Return the table of how columns were read, for a data set made from a table."""
    if result.schema is None:
        return ""
    return _rows(SCHEMA_COLUMNS, schema_cells(TableSchema.from_json(result.schema)))


class _Pictures:
    """The pictures of a page, as many as it has room for, and the titles of the others."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.omitted: list[str] = []

    def render(self, figure: Figure) -> str:
        """Return a picture, or an empty string without room."""
        address = figure.picture.data_uri()
        if len(address) > self._room:
            self.omitted.append(figure.title)
            return ""
        self._room -= len(address)
        return f"![{_escaped(figure.picture.alt)}]({address})"

    def sections(self, figures: Sequence[Figure]) -> list[str]:
        """Return the pictures one below the other, each with its title and caption."""
        return [
            f"### {each.title}\n\n{picture}\n\n{_escaped(each.caption)}"
            for each in figures
            if (picture := self.render(each))
        ]

    def gallery(self, figures: Sequence[Figure]) -> list[str]:
        """Return small pictures side by side in a table, each above its title and caption."""
        shown = [(each, picture) for each in figures if (picture := self.render(each))]
        lines = []
        for start in range(0, len(shown), _GALLERY):
            row = shown[start : start + _GALLERY]
            lines.append(f"| {' | '.join(picture for _, picture in row)} |")
            words = [_escaped(f"{each.title}: {each.caption}") for each, _ in row]
            lines.append(f"| {' | '.join(words)} |")
        columns = min(len(shown), _GALLERY)
        head = [f"|{' |' * columns}", f"|{'---|' * columns}"]
        return ["\n".join([*head, *lines])] if lines else []


def _link(title: str, place: str) -> str:
    """Return a line with a link, or with words if the place is no address."""
    is_address = place.startswith(("http://", "https://"))
    return f"- [{_escaped(title)}]({place})" if is_address else f"- {title}: {_escaped(place)}"


def _block(block: Block, pictures: _Pictures | None = None) -> list[str]:
    """Return the paragraphs of a block, with its pictures if `pictures` are given."""
    parts = [
        _escaped(block.introduction if pictures else block.about),
        *_facts(block.facts),
        f"    {escape(block.command)}" if block.command else "",
        *(part for table in block.tables for part in _table(table)),
        *_notes(block),
        *(_laid_out(block, pictures) if pictures else []),
    ]
    content = [part for part in parts if part]
    return [f"## {block.title}", *content] if content else []


def _laid_out(block: Block, pictures: _Pictures) -> list[str]:
    lay_out = pictures.gallery if block.style == "images" else pictures.sections
    return lay_out(block.pictures)


def _facts(facts: Sequence[Fact]) -> list[str]:
    """Return names and values as a table, and the notes below; the report has the meanings."""
    rows = [(fact.name, fact.value) for fact in facts]
    return [_rows(("", ""), rows), *(_escaped(note) for fact in facts for note in fact.notes)]


def _table(table: Table) -> list[str]:
    """Return the caption and the table, or nothing if it has no rows."""
    rows = _rows(table.columns, (*table.rows, *table.foot))
    return [_escaped(table.caption), rows] if rows else []


def _notes(block: Block) -> list[str]:
    lines = "\n".join(f"- {_escaped(note)}" for note in block.notes)
    return [block.notes_title, lines] if lines else []


def _rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or an empty string if it has no rows."""
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *lines]) if lines else ""


def _escaped(text: str) -> str:
    """Return text escaped for Markdown, so that nothing in it acts as markup."""
    safe = escape(text)
    for mark in "\\`*[]|":
        safe = safe.replace(mark, f"\\{mark}")
    return safe
