"""Render pages as HTML from the templates in this folder, and write reports into files."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from flows.errors import FlowError
from flows.progress.watching import ProgressShare
from flows.reports.blocks import Summary
from flows.reports.markdown import page_templates, render_markdown
from flows.reports.runs import INDEX_COLUMNS, ListedRun
from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.text import byte_size, printable
from storage import StorageError, list_runs, report_path, reports_folder
from storage.atomic import make_folder, replace_synced

# The file of the index in a folder of reports.
INDEX = "index.html"


def render_view(view: View, summary: Summary | None = None) -> str:
    """Return the report of an opened run, whose summary may be known."""
    return _render(
        view.run.name,
        summary=summary or summary_of(view),
        created=view.run.created,
        has_model=view.model is not None,
        size=byte_size(view.run.bytes),
    )


def render_history(summary: Summary) -> str:
    """Return the history of a published run."""
    return _render(summary.run, summary=summary)


def write_report(run: str, out: Path | None = None) -> Path:
    """Write the report of a run, in the format of the file's name, and return its path."""
    view = View.of(run)
    if out is None:
        return _write_page(view, summary_of(view), reports_folder())
    write_summary(out, summary_of(view), lambda: render_view(view))
    return out


def write_all_reports(folder: Path) -> Path:
    """Write the report of each saved run, and an index of all; return the path of the index.

    A run whose files are damaged, or that is not of this program, is in the index without a report.
    """
    runs, part = list_runs(), ProgressShare()
    for number, run in enumerate(runs):
        part.report(number / len(runs), run.name)
        if not run.problem:
            with suppress(FlowError, StorageError):
                view = View.of(run.name)
                _write_page(view, summary_of(view), folder)
    return write_index(folder)


def publish_report(view: View, summary: Summary) -> None:
    """Write the report of a run into the folder that `ism-dask up` serves, and its index again."""
    _write_page(view, summary, reports_folder())
    write_index(reports_folder())


def write_index(folder: Path) -> Path:
    """Write the index of all saved runs, from one record for each, and return its path."""
    runs = [(ListedRun.of(run), report_path(run.name, folder).exists()) for run in list_runs()]
    _write(folder / INDEX, _render("Runs", columns=INDEX_COLUMNS, runs=runs))
    return folder / INDEX


def _write_page(view: View, summary: Summary, folder: Path) -> Path:
    path = report_path(view.run.name, folder)
    _write(path, render_view(view, summary))
    return path


def _write(path: Path, page: str) -> None:
    make_folder(path.parent)
    replace_synced(path, page)


def write_summary(path: Path, summary: Summary, to_html: Callable[[], str]) -> None:
    """Write a page as Markdown or JSON if the file's name ends in .md or .json, else as HTML."""
    if path.suffix.lower() == ".json":
        text = json.dumps(summary.to_json(), indent=1, ensure_ascii=False) + "\n"
    elif path.suffix.lower() == ".md":
        text = render_markdown(summary) + "\n"
    else:
        text = to_html()
    replace_synced(path, text)


def _render(title: str, **given: Any) -> str:
    blank = dict.fromkeys(("summary", "created", "has_model", "columns"))
    page = _environment().get_template("page.html").render({**blank, "title": title, **given})
    return page.lstrip()


@cache
def _environment() -> Environment:
    return page_templates(_finalise)


def _finalise(value: Any) -> Any:
    """Return text of an expression without characters that a terminal or browser would obey."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)
