"""Look after the Prefect server of this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.commands.prefecting import with_prefect
from flows.console import Output

EXAMPLE = "Example: ism-dask server --stop"
HIDDEN = True


def run(
    *,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the server started here.")] = False,
    output: Output,
) -> None:
    """Start the Prefect server of this machine if none answers, or stop it."""
    result = _stop(output) if stop else _start(output)
    output.finish({"command": "server", **result})


def _start(output: Output) -> dict[str, Any]:
    from flows.services.server import ui_address  # noqa: PLC0415

    address = ui_address(with_prefect(output))
    output.say(f"Prefect answers at {address}")
    return {"address": address}


def _stop(output: Output) -> dict[str, Any]:
    from flows.services.server import stop_server  # noqa: PLC0415

    server = stop_server()
    output.say(f"stopped process {server.pid}" if server else "no server of ours runs")
    return {"stopped": server.pid if server else None}
