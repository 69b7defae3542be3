"""See what `--scheduler` would compute on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.console import Output
from flows.wording import counted

EXAMPLE = "Example: ism-dask check-cluster slurm.toml"
HIDDEN = False


def run(
    where: Annotated[str, typer.Argument(help="An address, up, or a cluster file (.toml).")],
    *,
    output: Output,
) -> None:
    """Check a cluster file and show what it would start, or the workers of a running cluster."""
    from flows.compute.clusters import place_of  # noqa: PLC0415
    from flows.compute.place import Planned  # noqa: PLC0415

    place = place_of(where)
    facts = _planned(place, output) if isinstance(place, Planned) else _running(place, output)
    output.finish({"command": "check-cluster", "cluster": where, **facts})


def _planned(place: Any, output: Output) -> dict[str, Any]:
    plan = place.plan()
    for line in plan.lines:
        output.say(line)
    return {"kind": type(place).__name__.lower(), **plan.facts}


def _running(place: Any, output: Output) -> dict[str, Any]:
    from flows.compute.joining import joined_place  # noqa: PLC0415
    from flows.compute.workers import VERSIONS, workers_of  # noqa: PLC0415

    with output.watched(), joined_place(place) as client:
        address, workers = client.scheduler.address, workers_of(client)
    columns = ("worker", "threads", "memory", *VERSIONS)
    output.table(columns, [each.cells() for each in workers], left=1)
    output.say(f"{counted(len(workers), 'worker')} at {address}, with versions that go with ours")
    return {"kind": "address", "address": address, "workers": [w.to_json() for w in workers]}
