"""Render summaries as HTML and Markdown by the templates in this folder, and write reports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from flows.errors import FlowError
from flows.progress.watching import ProgressShare
from flows.reports.blocks import Block, Summary
from flows.reports.pictures import Figure, escape
from flows.reports.summary import INDEX_COLUMNS, View, run_cells, summary_of
from flows.results.runs import FitResult
from flows.settings.fields import check_suffix
from ism_dask.words import byte_size, printable
from storage import Model, StorageError, list_runs, report_path, reports_folder
from storage.atomic import make_folder, replace_synced

# The file of the index in a folder of reports.
INDEX = "index.html"
# Most characters of pictures on a Markdown page: the UI loads all pages with its list of artifacts.
_ROOM = 250_000


def write_report(run: str, out: Path | None = None, model: Model | None = None) -> Path:
    """Write the report of a run, in the format of the file's name, and return its path."""
    view = View.of(run, model)
    path = out or _page_path(run, reports_folder())
    write_summary(path, summary_of(view), view)
    return path


def write_card(run: str, out: Path | None = None) -> Path:
    """Write the model card of a run, which hubs of models read, and return its path."""
    view = View.of(run)
    if view.model is None:
        raise FlowError(f"{run!r} has no model; name a run of `ism-dask fit` or `cluster`")
    path = out or _page_path(run, reports_folder()).with_suffix(".md")
    check_suffix(path, "out", (".md",))
    summary = summary_of(view)
    use = Block("How to use it", command=f"ism-dask transform {run} TABLE --out NEW.csv")
    # Details, such as rows and the name of the machine, are not for everyone.
    blocks = (use, *(replace(each, pictures=()) for each in summary.blocks if not each.detail))
    header = "".join(
        f"{name}: {printable(json.dumps(each, ensure_ascii=False))}\n"
        for name, each in _card_header(view).items()
    )
    text = render_markdown(replace(summary, blocks=blocks))
    replace_synced(path, f"---\nlibrary_name: ism-dask\n{header}---\n\n{text}\n")
    return path


def _card_header(view: View) -> Mapping[str, Any]:
    """Return tags and metrics of a run by the names that hubs of models read."""
    result, run = view.result, view.run
    measured = {"objective": run.metrics["objective"]}
    measured |= {f"nmi_{label}": value for label, value in run.metrics.get("nmi", {}).items()}
    if isinstance(result, FitResult) and result.selection and result.selection.tried:
        measured["explained_in_unseen_rows"] = result.selection.tried[0].explained
    metrics = [{"type": name, "value": each} for name, each in measured.items() if isfinite(each)]
    data = {"type": result.dataset, "name": result.dataset, "split": result.split}
    results = {"task": {"type": "feature-extraction"}, "dataset": data, "metrics": metrics}
    return {
        "tags": ["dimensionality-reduction", "interpretability", "tabular", run.kind],
        "metrics": [each["type"] for each in metrics],
        "model-index": [{"name": run.name, "results": [results]}],
    }


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
                write_summary(_page_path(run.name, folder), summary_of(view), view)
    return write_index(folder)


def publish_report(view: View, summary: Summary) -> None:
    """Write the report of a run into the folder that `ism-dask up` serves, and its index again."""
    write_summary(_page_path(view.run.name, reports_folder()), summary, view)
    write_index(reports_folder())


def write_index(folder: Path) -> Path:
    """Write the index of all saved runs, from one record for each, and return its path."""
    runs = [
        (run_cells(run, INDEX_COLUMNS), report_path(run.name, folder).exists())
        for run in list_runs()
    ]
    make_folder(folder)
    replace_synced(folder / INDEX, _page(title="Runs", columns=INDEX_COLUMNS, runs=runs))
    return folder / INDEX


def _page_path(run: str, folder: Path) -> Path:
    path = report_path(run, folder)
    make_folder(path.parent)
    return path


def write_summary(path: Path, summary: Summary, view: View | None = None) -> None:
    """Write a page as HTML, Markdown or JSON, as the end of the file's name says.

    The history of a published run has no view.
    """
    check_suffix(path, "out")
    if path.suffix.lower() == ".json":
        text = json.dumps(summary.to_json(), indent=1, ensure_ascii=False) + "\n"
    elif path.suffix.lower() == ".md":
        text = render_markdown(summary) + "\n"
    else:
        size = byte_size(view.run.bytes) if view else ""
        text = _page(title=summary.run, summary=summary, view=view, size=size)
    replace_synced(path, text)


def render_markdown(summary: Summary, links: Mapping[str, str] | None = None) -> str:
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
    text = _template("page.md", _escaped).render(**given, shown=shown, omitted=omitted)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _escaped(value: Any) -> Markup:
    """Return text escaped for Markdown, so that nothing in it acts as markup."""
    if isinstance(value, Markup):
        return value
    marked = re.sub(r"[\\`*\[\]|]", r"\\\g<0>", escape(value))
    return Markup(marked)  # noqa: S704 - escaped here


def _page(**given: Any) -> str:
    blank = dict.fromkeys(("summary", "view", "columns"))
    return _template("page.html", _printable).render({**blank, **given}).lstrip()


def _printable(value: Any) -> Any:
    """Return text of an expression without characters that a terminal or browser would obey."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)


@cache
def _template(name: str, finalise: Callable[[Any], Any]) -> Template:
    """Return the template of a page; each value that it shows goes through `finalise`."""
    environment = Environment(
        loader=PackageLoader("flows.reports"),
        autoescape=True,
        finalize=finalise,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["verbatim"] = lambda text: Markup(printable(text))  # noqa: S704 - code
    return environment.get_template(name)
