"""Render the report of a run as one HTML page that loads no other file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flows.reports import figures, paper_tables
from flows.reports.figures import Figure
from flows.reports.pictures import Pixels, escape
from flows.reports.style import STYLE
from flows.reports.summary import (
    FOLD_COLUMNS,
    Fact,
    fold_rows,
    key_figures,
    run_settings,
    run_subject,
    trust_figures,
)
from flows.reports.view import View
from flows.text import byte_size

# The browser loads nothing and runs no script, whatever the names in the page contain.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# How many clusters a table lists at most.
_LISTED = 40


def render_run(run_name: str) -> str:
    """Return the report of a run as an HTML page, made from its stored files alone."""
    return page_of(View.of(run_name))


def page_of(view: View) -> str:
    """Return the report of an opened run."""
    name, subject = escape(view.run.name), escape(run_subject(view.run))
    body = "\n".join(filter(None, (section(view) for section in _SECTIONS)))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="generator" content="ism-dask">
<title>{name} - ism-dask</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{name}</h1>
<p>{subject}</p>
<p>{_when(view)}</p>
{_glance(view)}
</header>
<main>
{body}
</main>
<footer>Made from the saved run: {byte_size(view.run.bytes)}.</footer>
</body>
</html>
"""


def _when(view: View) -> str:
    moment = view.run.created
    shown = moment.strftime("%Y-%m-%d %H:%M UTC")
    return f'Kept on <time datetime="{moment.isoformat()}">{shown}</time>'


def _glance(view: View) -> str:
    facts = ((escape(fact.name), escape(fact.value)) for fact in key_figures(view.run))
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="glance">{cells}</dl>'


def _folds(view: View) -> str:
    if view.run.kind != "crossval":
        return ""
    rows = fold_rows(view.metrics)
    caption = "Each fold; in the end mean and population standard deviation."
    table = _numbers(caption, FOLD_COLUMNS, rows[:-2], rows[-2:])
    return _section("Folds", table, _figures([figures.accuracy(view)]))


def _course(view: View) -> str:
    return _section("How it went", _figures(figures.iteration_figures(view)))


def _rounds(view: View) -> str:
    rounds = view.metrics.get("rounds")
    if not rounds:
        return ""
    rows = [_round(str(k), each) for k, each in enumerate(rounds, start=1)]
    columns = ("round", "objective", "affinity", "change", "iterations")
    return _section("Rounds", _numbers("W and the embedding in turns.", columns, rows))


def _round(number: str, each: Mapping[str, Any]) -> tuple[str, ...]:
    measured = (f"{each['objective']:.6g}", f"{each['affinity']:.4g}", f"{each['change']:.2g}")
    return number, *measured, str(each["iterations"])


def _clusters(view: View) -> str:
    sizes = view.metrics.get("sizes")
    if not sizes:
        return ""
    rows = [(str(k), f"{count:,}") for k, count in enumerate(sizes[:_LISTED])]
    tables = [_numbers("Rows of each cluster.", ("cluster", "rows"), rows)]
    if view.metrics["nmi"]:
        agreement = [(name, f"{value:.3f}") for name, value in view.metrics["nmi"].items()]
        caption = "Agreement with known labels, from 0 to 1 (normalised mutual information)."
        tables.append(_numbers(caption, ("label", "NMI"), agreement))
    content = f'<div class="columns">{"".join(tables)}</div>'
    return _section("Clusters", content, _figures(figures.stored_pictures(view)))


def _findings(view: View) -> str:
    return _section("What was found", _figures(figures.result_figures(view)))


def _components(view: View) -> str:
    if view.model is None:
        return ""
    shown = list(figures.components(view))
    rest = len(view.model.components) - len(shown)
    images = isinstance(shown[0].picture, Pixels)
    description = (
        "Each new feature is a weighted sum of pixels: blue weighs above zero, red below, white "
        "not at all; all images have one scale."
        if images
        else "Each new feature is a weighted sum of the standardised old ones. The largest "
        "weights, ranked; blue above zero, red below."
    )
    more = f" The first {len(shown)} are shown, {rest} more are stored." if rest else ""
    kind = "images" if images else "weights"
    return _section("New features", f"<p>{description}{more}</p>", _figures(shown, kind))


def _paper(view: View) -> str:
    if view.run.kind != "tables":
        return ""
    tables = "\n".join(
        _section(each.title, _numbers(escape(each.about), each.columns, each.rows), _losses(each))
        for each in paper_tables.tables(view.metrics)
    )
    sections = paper_tables.figure_sections(view.metrics)
    drawings = "\n".join(
        _section(title, _figures(section_figures)) for title, section_figures in sections
    )
    return f"{tables}\n{drawings}"


def _losses(table: paper_tables.PaperTable) -> str:
    """Return the list of cells of a table in which ISM loses."""
    items = "".join(f"<li>{escape(line)}</li>" for line in table.lost)
    return f"<p>Where ISM loses:</p><ul>{items}</ul>" if items else ""


def _trust(view: View) -> str:
    facts = "".join(map(_definition, trust_figures(view.run)))
    return _section("How far to trust it", f'<dl class="trust">{facts}</dl>') if facts else ""


def _definition(fact: Fact) -> str:
    meaning = f"<small>{escape(fact.meaning)}</small>" if fact.meaning else ""
    return f"<dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}{meaning}</dd>"


def _configuration(view: View) -> str:
    settings = _pairs("Settings.", run_settings(view.run))
    facts = [Fact(name, str(version)) for name, version in view.run.versions.items()]
    versions = _pairs("What it was computed with.", facts)
    return _section("Configuration", f'<div class="columns">{settings}{versions}</div>')


def _use(view: View) -> str:
    if view.model is None:
        return ""
    name = escape(view.run.name)
    return _section(
        "Use it",
        f"<pre><code>ism-dask transform {name} rows.csv -o new.csv</code></pre>",
        f"<p>In Python, where neither Dask nor Prefect need be there:</p>"
        f"<pre><code>from storage import load_model\n\n"
        f"new = load_model(&quot;{name}&quot;).transform(rows)</code></pre>",
    )


_SECTIONS: tuple[Callable[[View], str], ...] = (
    _paper,
    _folds,
    _clusters,
    _findings,
    _components,
    _course,
    _rounds,
    _trust,
    _configuration,
    _use,
)


def _section(title: str, *contents: str) -> str:
    """Return a section, or an empty string if it has no content."""
    content = "\n".join(filter(None, contents))
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>" if content else ""


def _figures(drawn: Sequence[Figure], kind: str = "") -> str:
    content = "\n".join(map(_figure, drawn))
    return f'<div class="{f"figures {kind}".strip()}">\n{content}\n</div>' if content else ""


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    return f"<figure><h3>{escape(figure.title)}</h3>{figure.picture.to_html()}{caption}</figure>"


def _numbers(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    ends: Iterable[Sequence[str]] = (),
) -> str:
    """Return a table whose first column names the row; `ends` are the rows of its foot."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    foot = f"<tfoot>{''.join(map(_row, ends))}</tfoot>" if ends else ""
    return (
        f'<div class="wide"><table class="numbers"><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, rows))}</tbody>{foot}"
        "</table></div>"
    )


def _row(cells: Sequence[str]) -> str:
    name, *values = map(escape, cells)
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{value}</td>" for value in values)}</tr>'


def _pairs(caption: str, facts: Sequence[Fact]) -> str:
    rows = "".join(_row((fact.name, fact.value)) for fact in facts)
    return f'<table class="pairs"><caption>{caption}</caption><tbody>{rows}</tbody></table>'
