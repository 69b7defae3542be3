"""Measure the tables and figures of the paper again, as a Prefect flow with a task for each cell.

Usage: python -m benchmarks.paper [--quick] [--plain] [--parts table-4,...] [--out FOLDER] ...

Each fold is stored in bench-results/paper as soon as it is measured, so that the same command goes
on after an interruption, and what was measured earlier stays in the tables. Wine, Cancer and Face
take some ten minutes, MNIST hours.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.utilities.annotations import quote

from benchmarks.measure import in_processes
from benchmarks.paper.cells import table_cells
from benchmarks.paper.figures import features, figure_1a, figure_1b
from benchmarks.paper.report import write_report
from benchmarks.paper.series import STORE, Measured, Series, measure_series
from benchmarks.paper.settings import ALL, CHOICES, PaperSettings
from benchmarks.paper.verdicts import cells_of

# The settings of `--quick`: some seconds.
_QUICK = {"parts": "table-4", "data": "wine", "folds": 2}
_PARTS: Mapping[str, Callable[[PaperSettings], Iterator[Series]]] = {
    **{part: partial(table_cells, part) for part in ("table-4", "table-5", "references")},
    "features": features,
    "figure-1a": figure_1a,
    "figure-1b": figure_1b,
}
# Runs a function as a step with a title, as a task of Prefect or not.
Step = Callable[[str, Callable[[], Any]], Any]


def plan(settings: PaperSettings) -> list[Series]:
    """Return the series to measure; raise ValueError if a chosen method is in no chosen part."""
    chosen = [each for part in settings.chosen("parts") for each in _PARTS[part](settings)]
    measured = {each.subject.get("method") for each in chosen}
    idle = [name for name in settings.chosen("methods") if name not in measured]
    if not chosen or (settings.methods != ALL and idle):
        raise ValueError(
            f"`parts` is {settings.parts!r}, which do not measure {' or '.join(idle)} of "
            "`methods`; choose others"
        )
    return chosen


def measure(settings: PaperSettings, step: Step = lambda _, work: work()) -> list[Measured]:
    """Measure the chosen series, and return them with all that earlier runs have stored.

    Series of few rows are measured side by side, in a process for each core.
    """
    chosen = plan(settings)
    shared = [each for each in chosen if each.side_by_side]
    together = in_processes(measure_series, [(each, settings) for each in shared])
    measured = {each.path(0): step(each.title, partial(next, together)) for each in shared}
    for each in chosen:
        if not each.side_by_side:
            measured[each.path(0)] = step(each.title, partial(measure_series, each, settings))
    every = [
        measured.get(each.path(0)) or measure_series(each, settings, stored=True)
        for each in plan(replace(settings, parts=ALL, data=ALL, methods=ALL))
    ]
    return [each for each in every if each.results or each.problem]


@task(task_run_name="{title}", cache_policy=NO_CACHE, persist_result=False)
def _step(title: str, work: Callable[[], Any]) -> Any:  # noqa: ARG001 - the name of its runs
    return work()


@flow(name="paper", flow_run_name="paper {settings.parts} {settings.data}", persist_result=False)
def paper(settings: PaperSettings, folder: Path) -> list[str]:
    """Measure the tables and figures of the paper again; return what could not be measured."""
    problems = write(measure(settings, lambda title, work: _step(title, quote(work))), folder)
    for page in sorted(folder.glob("*.md")):
        create_markdown_artifact(page.read_text(), key=f"paper-{page.stem}")
    return problems


def write(measured: Sequence[Measured], folder: Path) -> list[str]:
    """Write the tables and figures into a folder; return what could not be measured."""
    cells = cells_of([each for each in measured if "method" in each.subject])
    others = [each for each in measured if "method" not in each.subject]
    for path in write_report(folder, cells, others):
        print(path)
    lost = sum(bool(cell.lost) for cell in cells)
    print(f"{len(cells)} cells, of which ISM loses something in {lost}; {len(others)} others")
    return [
        f"{' '.join(each.subject.values())}: {each.problem}" for each in measured if each.problem
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if something could not be measured."""
    parser = argparse.ArgumentParser("python -m benchmarks.paper", description=__doc__)
    for each in fields(PaperSettings):
        names = CHOICES.get(each.name, ())
        about = f"some of {', '.join(names)}, with commas between" if names else None
        parser.add_argument(f"--{each.name}", type=type(each.default), help=about)
    parser.add_argument("--quick", action="store_true", help="Wine in two folds: some seconds")
    parser.add_argument("--plain", action="store_true", help="without Prefect")
    parser.add_argument("--force", action="store_true", help="measure everything again")
    parser.add_argument("--out", type=Path, default=STORE / "report", help="folder of the tables")
    options = vars(parser.parse_args(arguments))
    quick, plain, force, folder = (options.pop(key) for key in ("quick", "plain", "force", "out"))
    given = {key: value for key, value in options.items() if value is not None}
    try:
        settings = PaperSettings(**{**(_QUICK if quick else {}), **given})
        plan(settings)
    except ValueError as error:
        parser.error(str(error))
    if force:
        shutil.rmtree(STORE, ignore_errors=True)
    problems = write(measure(settings), folder) if plain else paper(settings, folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
