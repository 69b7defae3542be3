"""Open runs by name, and write their reports and tables into files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.errors import FlowError, SettingsError
from flows.reports.html import render_view
from flows.reports.markdown import render_markdown, table_files
from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.results.paper import TablesResult
from storage import RunNotFound, UnsafeName, report_path
from storage.atomic import open_replacement


def _markdown(view: View) -> str:
    return render_markdown(summary_of(view)) + "\n"


def _json(view: View) -> str:
    return json.dumps(summary_of(view).to_json(), indent=1, ensure_ascii=False) + "\n"


# By the suffix of the file, if it is not HTML.
_RENDERERS: Mapping[str, Callable[[View], str]] = {".json": _json, ".md": _markdown}


def view_of(name: str) -> View:
    """Open a run; raise a SettingsError if there is none of that name."""
    try:
        return View.of(name)
    except (RunNotFound, UnsafeName) as error:
        raise SettingsError(str(error)) from error


def write_report(run: str, out: Path | None = None) -> Path:
    """Write the report of a run, whole or not at all, and return its path.

    It is written as Markdown or JSON if the name of the file ends in .md or .json, else as HTML.
    """
    view = view_of(run)
    path = report_path(run) if out is None else out
    render = _RENDERERS.get(path.suffix.lower(), render_view)
    write_page(path, render(view), "-o")
    return path


def write_tables(name: str, folder: Path) -> list[Path]:
    """Write the paper's tables of a run into a folder as Markdown, SVG and HTML files."""
    view = view_of(name)
    if not isinstance(view.result, TablesResult):
        raise SettingsError(f"{name!r} is a run of {view.run.kind}, which has no tables")
    files = {**table_files(view.result), "tables.html": render_view(view)}
    with _explained_write_errors(folder, "--out"):
        folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        write_page(folder / file, content, "--out")
    return [folder / file for file in files]


def write_page(path: Path, content: str, option: str) -> None:
    """Write a file, whole or not at all; `option` names another place in the error."""
    with _explained_write_errors(path, option), open_replacement(path) as handle:
        handle.write(content.encode())


@contextmanager
def _explained_write_errors(path: Path, option: str) -> Iterator[None]:
    """Turn an OSError while writing into a FlowError that names the option for another place."""
    try:
        yield
    except OSError as error:
        raise FlowError(
            f"cannot write {path}: {error.strerror or error}; name another place with {option}"
        ) from error
