"""Render finished runs as Markdown pages, which the Prefect UI shows as artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flows.reports import figures, paper_tables
from flows.reports.figures import Figure
from flows.reports.pictures import escape
from flows.reports.summary import (
    FOLD_COLUMNS,
    Fact,
    fold_rows,
    key_figures,
    run_subject,
    trust_figures,
)
from flows.reports.view import View

Links = Mapping[str, str]

# Most characters of pictures on a page: the UI loads all pages with its list of artifacts.
_ROOM = 250_000
# How many weights the table lists for each new feature.
_WEIGHTS = 5


def fit_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return the page of a saved fit; `links` are addresses by title, shown at its end."""
    view = View.of(summary["run"])
    return _page(view, [_features(view)], _fitted_figures(view), links)


def cluster_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return the page of a saved clustering; `links` are addresses by title."""
    view = View.of(summary["run"])
    metrics = view.metrics
    sizes = [(str(k), f"{size:,}") for k, size in enumerate(metrics["sizes"])]
    agreement = [(name, f"{value:.3f}") for name, value in metrics["nmi"].items()]
    tables = [_table(("label", "NMI"), agreement), _table(("cluster", "rows"), sizes)]
    drawn = [*figures.stored_pictures(view), *_fitted_figures(view)]
    return _page(view, [*tables, _features(view)], drawn, links)


def crossval_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return the page of a saved cross-validation; `links` are addresses by title."""
    view = View.of(summary["run"])
    folds = _table(FOLD_COLUMNS, fold_rows(view.metrics))
    return _page(view, [folds], [figures.accuracy(view)], links)


def tables_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return the page of the paper's tables; `links` are addresses by title."""
    view = View.of(summary["run"])
    tables = [_paper_table(each) for each in paper_tables.tables(view.metrics)]
    drawn = [figure for _, part in paper_tables.figure_sections(view.metrics) for figure in part]
    return _page(view, tables, drawn, links)


def table_files(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return the contents of files with the paper's tables and drawings, by file name."""
    all_tables = paper_tables.tables(metrics)
    texts = {}
    for part in dict.fromkeys(each.part for each in all_tables):
        tables = [_paper_table(each) for each in all_tables if each.part == part]
        texts[f"{part}.md"] = "\n\n".join(tables) + "\n"
    drawings = paper_tables.drawings(metrics)
    return {**texts, **{f"{name}.svg": text for name, text in drawings.items()}}


def _paper_table(table: paper_tables.PaperTable) -> str:
    lost = "\n".join(f"- {_escaped(line)}" for line in table.lost)
    parts = [
        f"## {table.title}",
        _escaped(table.about),
        _table(table.columns, table.rows),
        "Where ISM loses:" if lost else "",
        lost,
    ]
    return "\n\n".join(filter(None, parts))


def ingest_page(summary: Mapping[str, Any]) -> str:
    """Return the page of an ingested data set."""
    labels = [(name, str(classes or "numbers")) for name, classes in summary["labels"].items()]
    parts = [
        f"# {_escaped(summary['dataset'])} ({_escaped(summary['split'])})",
        f"{summary['rows']:,} rows, {summary['columns']:,} columns.",
        _table(("label", "classes"), labels),
        f"Stored in {_escaped(summary['path'])}, with the hash {summary['data_hash']}.",
    ]
    return "\n\n".join(filter(None, parts))


def _fitted_figures(view: View) -> list[Figure]:
    return [
        *figures.iteration_figures(view),
        *figures.result_figures(view),
        *figures.components(view),
    ]


def _page(view: View, tables: Sequence[str], drawn: Sequence[Figure], links: Links | None) -> str:
    facts = [(fact.name, fact.value) for fact in (*key_figures(view.run), *trust_figures(view.run))]
    parts = [
        f"# {view.run.name}",
        _escaped(run_subject(view.run)),
        _table(("", ""), facts),
        _escaped(_note(trust_figures(view.run))),
        *tables,
        *_pictures(drawn),
        *(f"- [{_escaped(title)}]({address})" for title, address in (links or {}).items()),
    ]
    return "\n\n".join(filter(None, parts))


def _note(facts: Iterable[Fact]) -> str:
    """Return the note of the engine, or an empty string."""
    return next((fact.meaning for fact in facts if fact.name == "Engine"), "")


def _features(view: View) -> str:
    if view.model is None:
        return ""
    rows = [
        (
            f"feature_{number}",
            f"{value:.4g}",
            ", ".join(f"{name} {weight:+.2f}" for name, weight in view.ranked(number, _WEIGHTS)),
        )
        for number, value in enumerate(view.model.eigenvalues)
    ]
    return _table(("new feature", "eigenvalue", "largest weights"), rows)


def _pictures(drawn: Sequence[Figure]) -> list[str]:
    """Return pictures up to `_ROOM` characters, and a line that names those left out."""
    parts, room, omitted = [], _ROOM, []
    for figure in drawn:
        address = figure.picture.data_uri()
        if len(address) > room:
            omitted.append(figure.title)
            continue
        room -= len(address)
        picture = f"![{_escaped(figure.picture.alt)}]({address})"
        parts.append(f"## {figure.title}\n\n{picture}\n\n{_escaped(figure.caption)}")
    if omitted:
        parts.append(f"Not shown here, but in the report of the run: {', '.join(omitted)}.")
    return parts


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
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
