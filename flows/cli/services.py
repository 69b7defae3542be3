"""The command `up`, for the services of this machine."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from flows.cli.output import Output
from flows.errors import SettingsError
from flows.settings.base import ServiceSettings


def up(
    settings: ServiceSettings,
    *,
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave all services running in the background.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End all services.")] = False,
    status: Annotated[bool, typer.Option("--status", help="List the services that run.")] = False,
    output: Output,
) -> None:
    """Run a Prefect server and worker, a Dask cluster and a server of reports until Ctrl-C.

    If PREFECT_API_URL names a Prefect server, that one is used. All services listen on 127.0.0.1
    only. If one ends, all end with an error, and systemd can start them again (deploy/systemd).
    """
    from flows import supervisor  # noqa: PLC0415

    if detach + stop + status > 1:
        raise SettingsError("--detach, --stop and --status exclude each other; give one of them")
    if stop:
        ended = supervisor.stop_all()
        names = ", ".join(f"{each.name} (process {each.pid})" for each in ended)
        output.say(f"ended: {names}" if ended else "no service of ism-dask runs")
        output.finish({"command": "up", "stopped": [each.to_json() for each in ended]})
    elif status:
        _list_services(output)
    elif detach:
        output.say("starting all services ...")
        supervisor.start_detached(settings)
        _list_services(output)
    else:
        output.say("starting all services ...")
        supervisor.run_supervised(settings, partial(_list_services, output))


def _list_services(output: Output) -> None:
    """Print where all services are, and how to end them."""
    from flows.supervisor import service_records  # noqa: PLC0415

    # Not a table: a terminal of 80 columns would cut the links.
    for each in (records := service_records()):
        output.say(f"{each.name:<16}{each.page or each.address:<36}process {each.pid}")
    more = "end all of it with `ism-dask up --stop`"
    output.say(more if records else "nothing runs; start it with `ism-dask up`")
    output.finish({"command": "up", "services": [each.to_json() for each in records]})
    sys.stdout.flush()  # a program that reads a pipe gets the lines now, not at the end
