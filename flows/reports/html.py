"""Render pages as HTML from the templates in this folder, and write reports into files."""

from __future__ import annotations

import json
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
from flows.reports.runs import INDEX_COLUMNS, run_cells
from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.text import byte_size, printable
from storage import StorageError, list_runs, report_path, reports_folder
from storage.atomic import make_folder, replace_synced

# The file of the index in a folder of reports.
INDEX = "index.html"


def render_view(view: View) -> str:
    """Return the report of an opened run."""
    return _render(summary_of(view), view)


def write_report(run: str, out: Path | None = None) -> Path:
    """Write the report of a run, in the format of the file's name, and return its path."""
    view = View.of(run)
    if out is None:
        return _write_page(summary_of(view), view, reports_folder())
    write_summary(out, summary_of(view), view)
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
                _write_page(summary_of(view), view, folder)
    return write_index(folder)


def publish_report(view: View, summary: Summary) -> None:
    """Write the report of a run into the folder that `ism-dask up` serves, and its index again."""
    _write_page(summary, view, reports_folder())
    write_index(reports_folder())


def write_index(folder: Path) -> Path:
    """Write the index of all saved runs, from one record for each, and return its path."""
    runs = [
        (run_cells(run, INDEX_COLUMNS), report_path(run.name, folder).exists())
        for run in list_runs()
    ]
    return _write(folder / INDEX, _page(title="Runs", columns=INDEX_COLUMNS, runs=runs))


def _write_page(summary: Summary, view: View, folder: Path) -> Path:
    return _write(report_path(view.run.name, folder), _render(summary, view))


def _write(path: Path, page: str) -> Path:
    make_folder(path.parent)
    replace_synced(path, page)
    return path


def write_summary(path: Path, summary: Summary, view: View | None = None) -> None:
    """Write a page as Markdown or JSON if the file's name ends in .md or .json, else as HTML.

    The history of a published run has no view.
    """
    if path.suffix.lower() == ".json":
        text = json.dumps(summary.to_json(), indent=1, ensure_ascii=False) + "\n"
    elif path.suffix.lower() == ".md":
        text = render_markdown(summary) + "\n"
    else:
        text = _render(summary, view)
    replace_synced(path, text)


def _render(summary: Summary, view: View | None) -> str:
    size = byte_size(view.run.bytes) if view else ""
    return _page(title=summary.run, summary=summary, view=view, size=size)


def _page(**given: Any) -> str:
    blank = dict.fromkeys(("summary", "view", "columns"))
    return _environment().get_template("page.html").render({**blank, **given}).lstrip()


@cache
def _environment() -> Environment:
    return page_templates(_finalise)


def _finalise(value: Any) -> Any:
    """Return text of an expression without characters that a terminal or browser would obey."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)
