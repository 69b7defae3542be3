"""Runs by the names that people give: what is kept of them, and their reports as files."""

from __future__ import annotations

from pathlib import Path

from flows.errors import FlowError, SettingsError
from flows.reports.page import page_of
from flows.reports.view import View
from flows.work.matrices import replacing
from storage import RunNotFound, UnsafeName, report_path


def view_of(name: str) -> View:
    """Open a run; a SettingsError where there is none of that name."""
    try:
        return View.of(name)
    except (RunNotFound, UnsafeName) as error:
        raise SettingsError(str(error)) from error


def write_report(name: str, out: Path | None = None) -> Path:
    """Write the report of a run, whole or not at all, and return where."""
    page = page_of(view_of(name))
    path = report_path(name) if out is None else out
    try:
        with replacing(path) as handle:
            handle.write(page.encode())
    except OSError as error:
        raise FlowError(
            f"cannot write {path}: {error.strerror or error}; name another place with -o"
        ) from error
    return path
