"""Render pages as HTML from the templates in this folder, and write reports into files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from flows.reports.blocks import Summary
from flows.reports.markdown import page_templates, render_markdown
from flows.reports.runs import PAGE_COLUMNS, ListedRun, figures_over_time, unfinished_runs
from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.text import byte_size, printable
from storage import Run, report_path
from storage.atomic import replace_synced


def render_run(run: str) -> str:
    """Return the report of a run as a page, made from its stored files alone."""
    return render_view(View.of(run))


def render_view(view: View) -> str:
    """Return the report of an opened run."""
    return _render(
        view.run.name,
        summary=summary_of(view),
        created=view.run.created,
        has_model=view.model is not None,
        size=byte_size(view.run.bytes),
    )


def render_history(summary: Summary) -> str:
    """Return the history of a published run."""
    return _render(summary.run, summary=summary)


def render_index(runs: Sequence[Run]) -> str:
    """Return the list of runs, which a script sorts and filters, with dated ones over time."""
    saved = list(map(ListedRun.of, runs))
    unfinished = unfinished_runs()
    return _render(
        "Runs",
        columns=PAGE_COLUMNS,
        # A run that is computed anew has an earlier result until it ends.
        unfinished=unfinished,
        saved=saved,
        figures=list(figures_over_time(saved)),
        script=Markup(_script()),  # noqa: S704 - a file of ours
        script_source=script_source(),
    )


def render_notice(message: str) -> str:
    """Return a page that says why there is no other."""
    return _render("No page", message=message)


def script_source() -> str:
    """Return the source of the one script that a page may run, for its security policy."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest())
    return f"'sha256-{digest.decode()}'"


def write_report(run: str, out: Path | None = None) -> Path:
    """Write the report of a run, in the format of the file's name, and return its path."""
    view = View.of(run)
    path = report_path(run) if out is None else out
    write_summary(path, summary_of(view), lambda: render_view(view))
    return path


def write_summary(path: Path, summary: Summary, to_html: Callable[[], str]) -> None:
    """Write a page as Markdown or JSON if the file's name ends in .md or .json, else as HTML."""
    if path.suffix.lower() == ".json":
        text = json.dumps(summary.to_json(), indent=1, ensure_ascii=False) + "\n"
    elif path.suffix.lower() == ".md":
        text = render_markdown(summary) + "\n"
    else:
        text = to_html()
    replace_synced(path, text)


@cache
def _script() -> str:
    """Return the script of the list of runs."""
    return _environment().get_template("list.js").render()


def _render(title: str, **given: Any) -> str:
    blank = dict.fromkeys(
        ("summary", "created", "has_model", "columns", "message", "script_source")
    )
    page = _environment().get_template("page.html").render({**blank, "title": title, **given})
    return page.lstrip()


@cache
def _environment() -> Environment:
    return page_templates(_finalise)


def _finalise(value: Any) -> Any:
    """Return text of an expression without characters that a terminal or browser would obey."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)
