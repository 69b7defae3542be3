"""See whether all that is kept is as it was written."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.console import Output
from flows.errors import FlowError
from flows.wording import counted

EXAMPLE = "Example: ism-dask check mnist wine-gaussian-q2"
HIDDEN = False


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Data sets and runs. Default: all of them."),
    ] = None,
    *,
    output: Output,
) -> None:
    """Read every file of data sets and runs, and name all that are not as they were written."""
    from flows.reports.facts import size  # noqa: PLC0415
    from flows.work.checking import check  # noqa: PLC0415

    with output.watched():
        checked = check(names or [])
    rows = [
        [each.kept.name, each.kept.kind, each.verdict, str(each.files), size(each.bytes)]
        for each in checked
    ]
    if rows:
        output.table(("name", "kind", "files are", "files", "size"), rows, left=3)
    else:
        output.say("nothing is kept yet; try `ism-dask ingest wine` or `ism-dask fit wine`")
    problems = [problem for each in checked for problem in each.problems]
    for problem in problems:
        output.say(str(problem))
    output.finish({"command": "check", "checked": [each.to_json() for each in checked]})
    if problems:
        damaged = [each.kept.name for each in checked if each.problems]
        raise FlowError(
            f"{counted(len(problems), 'file')} of {', '.join(damaged)} "
            f"{'is' if len(problems) == 1 else 'are'} damaged, the first {problems[0]}; ingest a "
            "data set again with --force, compute a run again"
        )
