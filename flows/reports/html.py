"""Render pages as HTML from the templates in this folder; a page loads no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.text import byte_size, printable

if TYPE_CHECKING:
    from flows.reports.blocks import Summary
    from flows.reports.picture_elements import Picture
    from storage import Run


def render_run(run: str) -> str:
    """Return the report of a run as a page, made from its stored files alone."""
    return render_view(View.of(run))


def render_view(view: View) -> str:
    """Return the report of an opened run."""
    return _render(
        "report.html",
        title=view.run.name,
        summary=summary_of(view),
        created=view.run.created,
        loader=view.loader,
        size=byte_size(view.run.bytes),
    )


def render_history(summary: Summary) -> str:
    """Return the history of a published run."""
    return _render("history.html", title=summary.run, summary=summary)


def render_index(runs: Sequence[Run]) -> str:
    """Return the list of runs, which a script sorts, with pictures of dated ones over time."""
    # They import matplotlib, which the other pages import when they draw.
    from flows.reports.run_index import COLUMNS, figures_over_time, index_cells  # noqa: PLC0415

    return _render(
        "index.html",
        title="Runs",
        columns=COLUMNS,
        rows=[index_cells(run) for run in runs],
        figures=list(figures_over_time(runs)),
        script=Markup(_script()),  # noqa: S704 - a file of ours
        script_source=script_source(),
    )


def script_source() -> str:
    """Return the source of the one script that a page may run, for its security policy."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest())
    return f"'sha256-{digest.decode()}'"


@cache
def _script() -> str:
    """Return the script that sorts the list of runs."""
    return _environment().get_template("sort.js").render()


def render_notice(message: str) -> str:
    """Return a page that says why there is no other."""
    return _render("notice.html", title="No page", message=message)


def _render(template: str, **given: Any) -> str:
    return _environment().get_template(template).render(**given)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("flows.reports"),
        autoescape=True,
        finalize=_finalise,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["picture"] = _picture
    return environment


def _finalise(value: Any) -> Any:
    """Return text of an expression without characters that a terminal or browser would obey."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)


def _picture(picture: Picture) -> Markup:
    """Return a picture as an HTML element; the drawing code has escaped what is in it."""
    return Markup(picture.to_html())  # noqa: S704
