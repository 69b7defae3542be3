"""Write what a run file says: projected rows, and the report of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.reports.html import write_report
from flows.runs.transform import transform_rows
from flows.settings.run_file import RunFile


@dataclass(frozen=True)
class Written:
    """A file or folder that was written.

    Attributes
    ----------
    path : str
    counts : dict
        For projected rows: the result of `transform_rows`; empty for a report.
    """

    path: str
    counts: dict[str, Any]


def write_outputs(plan: RunFile, run: str) -> Iterator[Written]:
    """Project rows and write the report of a run, one after the other."""
    for each in plan.transforms:
        counts = transform_rows(run, each.source, each.out, each.split, unseen=each.unseen)
        yield Written(str(each.out), counts)
    if plan.report is not None:
        yield Written(str(write_report(run, plan.report)), {})
