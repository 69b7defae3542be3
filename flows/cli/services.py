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

    A Prefect server that PREFECT_API_URL names is used. All services listen on 127.0.0.1 only. If
    one ends, the command ends with an error: systemd or Compose start it again (deploy/).
    """
    from flows import supervisor  # noqa: PLC0415

    actions = {"--detach": detach, "--stop": stop, "--status": status}
    chosen = [flag for flag, given in actions.items() if given]
    if len(chosen) > 1:
        raise SettingsError(f"{' and '.join(chosen)} exclude each other; give one of them")
    if stop:
        ended = supervisor.stop_all()
        names = ", ".join(f"{each.name} (process {each.pid})" for each in ended)
        output.say(f"ended: {names}" if ended else "no service of ism-dask runs")
        output.finish({"command": "up", "stopped": [each.to_json() for each in ended]})
    elif status:
        _list_services(output)
    elif detach:
        output.say("starting all services ...")
        _list_services(output, supervisor.start_detached(settings))
    else:
        supervisor.run_supervised(settings, output.say, partial(_list_services, output))


def _list_services(output: Output, already: bool | None = None) -> None:
    """Print where all services are and, once they have started, how to end them."""
    from flows import supervisor  # noqa: PLC0415
    from flows.tracking.server import SERVER  # noqa: PLC0415

    links, records = supervisor.running_services(), supervisor.service_records()
    if not records:
        why = supervisor.why_ended()
        output.say(f"nothing runs: {why}" if why else "nothing runs; start it with `ism-dask up`")
        output.finish({"command": "up", "running": False, "ended": why or None, "services": []})
        return
    if already:
        output.say("runs already:")
    # Not a table: a terminal of 80 columns would cut the links.
    for record in records:
        output.say(f"{record.name:<16}{record.page or record.address:<36}process {record.pid}")
    if links["ui"] and SERVER not in [record.name for record in records]:
        output.say(f"the Prefect server at {links['ui']} was not started by ism-dask here")
    if already is False:
        output.say("end all of it with `ism-dask up --stop`")
    services = [each.to_json() for each in records]
    more = {} if already is None else {"already": already}
    output.finish({"command": "up", "running": True, **links, "services": services, **more})
    sys.stdout.flush()  # a program that reads a pipe gets the lines now, not at the end
