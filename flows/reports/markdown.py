"""Pages of runs, in Markdown: what the Prefect UI shows of a run that is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flows.reports import figures, paper_tables
from flows.reports.figures import Figure
from flows.reports.summary import (
    FOLD_COLUMNS,
    Fact,
    fold_rows,
    key_figures,
    run_subject,
    trust_figures,
)
from flows.reports.svg import escape
from flows.reports.view import View

Links = Mapping[str, str]

# Characters of pictures that a page may hold: the UI loads all of them with its list of artifacts.
_ROOM = 250_000
# Weights that the table names of each new feature.
_WEIGHTS = 5


def fit_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return a page of a fit that was kept; `links` are addresses by title, shown in the end."""
    view = View.of(summary["run"])
    return _page(view, [_features(view)], _fitted_figures(view), links)


def cluster_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return a page of clusters that were kept; `links` are addresses by title."""
    view = View.of(summary["run"])
    told = view.metrics
    sizes = [(str(k), f"{size:,}") for k, size in enumerate(told["sizes"])]
    agreement = [(name, f"{value:.3f}") for name, value in told["nmi"].items()]
    tables = [_table(("label", "NMI"), agreement), _table(("cluster", "rows"), sizes)]
    shown = [*figures.kept_pictures(view), *_fitted_figures(view)]
    return _page(view, [*tables, _features(view)], shown, links)


def crossval_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return a page of a cross-validation that was kept; `links` are addresses by title."""
    view = View.of(summary["run"])
    folds = _table(FOLD_COLUMNS, fold_rows(view.metrics))
    return _page(view, [folds], [figures.accuracy(view)], links)


def tables_page(summary: Mapping[str, Any], links: Links | None = None) -> str:
    """Return a page of the paper's tables; `links` are addresses by title."""
    view = View.of(summary["run"])
    tables = [_paper_table(each) for each in paper_tables.tables(view.metrics)]
    drawn = [figure for _, part in paper_tables.figure_sections(view.metrics) for figure in part]
    return _page(view, tables, drawn, links)


def table_files(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return the paper's tables and drawings as files, by name."""
    made = paper_tables.tables(metrics)
    texts = {}
    for part in dict.fromkeys(each.part for each in made):
        own = [_paper_table(each) for each in made if each.part == part]
        texts[f"{part}.md"] = "\n\n".join(own) + "\n"
    drawings = paper_tables.drawings(metrics)
    return {**texts, **{f"{name}.svg": text for name, text in drawings.items()}}


def _paper_table(made: paper_tables.PaperTable) -> str:
    lost = "\n".join(f"- {_words(line)}" for line in made.lost)
    parts = [
        f"## {made.title}",
        _words(made.about),
        _table(made.columns, made.rows),
        "Where ISM loses:" if lost else "",
        lost,
    ]
    return "\n\n".join(filter(None, parts))


def ingest_page(summary: Mapping[str, Any]) -> str:
    """Return a page of a data set that was stored."""
    labels = [(name, str(classes or "numbers")) for name, classes in summary["labels"].items()]
    parts = [
        f"# {_words(summary['dataset'])} ({_words(summary['split'])})",
        f"{summary['rows']:,} rows, {summary['columns']:,} columns.",
        _table(("label", "classes"), labels),
        f"Stored in {_words(summary['path'])}, with the hash {summary['data_hash']}.",
    ]
    return "\n\n".join(filter(None, parts))


def _fitted_figures(view: View) -> list[Figure]:
    return [*figures.course(view), *figures.findings(view), *figures.components(view)]


def _page(view: View, tables: Sequence[str], shown: Sequence[Figure], links: Links | None) -> str:
    known = [(fact.name, fact.value) for fact in (*key_figures(view.run), *trust_figures(view.run))]
    parts = [
        f"# {view.run.name}",
        _words(run_subject(view.run)),
        _table(("", ""), known),
        _words(_note(trust_figures(view.run))),
        *tables,
        *_pictures(shown),
        *(f"- [{_words(title)}]({address})" for title, address in (links or {}).items()),
    ]
    return "\n\n".join(filter(None, parts))


def _note(facts: Iterable[Fact]) -> str:
    """Return what the engine had to note."""
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


def _pictures(shown: Sequence[Figure]) -> list[str]:
    """Return pictures as long as there is room, and tell of those for which there is none."""
    parts, room, left = [], _ROOM, []
    for figure in shown:
        address = figure.picture.address()
        if len(address) > room:
            left.append(figure.title)
            continue
        room -= len(address)
        picture = f"![{_words(figure.picture.alt)}]({address})"
        parts.append(f"## {figure.title}\n\n{picture}\n\n{_words(figure.caption)}")
    if left:
        parts.append(f"Not shown here, but in the report of the run: {', '.join(left)}.")
    return parts


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or nothing where it has no rows."""
    lines = [f"| {' | '.join(map(_words, row))} |" for row in rows]
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *lines]) if lines else ""


def _words(text: str) -> str:
    """Return words as Markdown shows them: whatever they are, they are no markup."""
    safe = escape(text)
    for mark in "\\`*[]|":
        safe = safe.replace(mark, f"\\{mark}")
    return safe
