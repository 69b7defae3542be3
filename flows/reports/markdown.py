"""Render summaries as Markdown, for the Prefect UI and for files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from flows.reports.blocks import Summary
from flows.reports.pictures import Figure, escape

Links = Mapping[str, str]

# Most characters of pictures on a page: the UI loads all pages with its list of artifacts.
_ROOM = 250_000


def render_markdown(summary: Summary, links: Links | None = None) -> str:
    """Return a summary as a page; `links` are addresses or words by title, shown at its end.

    It has as many pictures as there is room for, and the titles of the others.
    """
    used, omitted = 0, list[str]()

    def shown(figures: Sequence[Figure]) -> Iterator[Figure]:
        nonlocal used
        for figure in figures:
            size = len(figure.data_uri())
            if used + size > _ROOM:
                omitted.append(figure.title)
                continue
            used += size
            yield figure

    given = {"blocks": summary.blocks, "summary": summary, "links": links or {}}
    text = _environment().get_template("page.md").render(**given, shown=shown, omitted=omitted)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def page_templates(finalise: Callable[[Any], Any]) -> Environment:
    """Return the templates of pages; each value that they show goes through `finalise`."""
    return Environment(
        loader=PackageLoader("flows.reports"),
        autoescape=True,
        finalize=finalise,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _environment() -> Environment:
    environment = page_templates(_escaped)
    environment.filters["verbatim"] = lambda text: Markup(escape(text))  # noqa: S704 - code
    return environment


def _escaped(value: Any) -> Markup:
    """Return text escaped for Markdown, so that nothing in it acts as markup."""
    if isinstance(value, Markup):
        return value
    marked = re.sub(r"[\\`*\[\]|]", r"\\\g<0>", escape(value))
    return Markup(marked)  # noqa: S704 - escaped here
