"""List the runs."""

from __future__ import annotations

from flows.console import Output

EXAMPLE = "Example: ism-dask runs"
HIDDEN = False


def run(*, output: Output) -> None:
    """List the runs that are kept, the newest first, and those that were cut off.

    Damaged ones say what is wrong with them.
    """
    from flows.reports.listing import COLUMNS, cells, line  # noqa: PLC0415
    from flows.work.lease import list_leases, unfinished_line  # noqa: PLC0415
    from storage import list_runs  # noqa: PLC0415

    runs = list_runs()
    if runs:
        output.table(COLUMNS, [cells(each) for each in runs], left=4)
    else:
        output.say("no runs yet; try `ism-dask fit wine` or `ism-dask crossval wine`")
    for each in runs:
        if each.problem:
            output.say(each.problem)
    unfinished = [unfinished_line(lease) for lease in list_leases()]
    for told in unfinished:
        output.say(f"{told['name']}: {told['told']}")
    answer = {"runs": [line(each) for each in runs], "unfinished": unfinished}
    output.finish({"command": "runs", **answer})
