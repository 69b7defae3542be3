"""Keep up what runs need and people look at: Prefect, Dask, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.console import Output
from flows.errors import SettingsError
from flows.services.wishes import Wishes

if TYPE_CHECKING:
    from flows.services.records import Record
    from flows.services.service import Telling
    from flows.services.up import Running

EXAMPLE = "Example: ism-dask up --workers 4 --memory 4GB"
HIDDEN = False

_LINKS = {
    "ui": "Prefect",
    "dashboard": "Dask dashboard",
    "reports": "reports",
    "scheduler": "Dask scheduler",
    "pool": "work pool",
}


def run(
    wishes: Wishes,
    *,
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave everything running in the background.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End everything.")] = False,
    status: Annotated[bool, typer.Option("--status", help="List what runs.")] = False,
    output: Output,
) -> None:
    """Keep a Prefect server and worker, a Dask cluster and the reports up, until Ctrl-C.

    What runs already is used. All of it listens on 127.0.0.1 only.
    """
    actions = {"--detach": (detach, _detach), "--stop": (stop, _stop), "--status": (status, _list)}
    asked = {flag: action for flag, (given, action) in actions.items() if given}
    if len(asked) > 1:
        raise SettingsError(f"{' and '.join(asked)} exclude each other; give one of them")
    action: Callable[[Wishes, Output], None] = next(iter(asked.values()), _keep)
    action(wishes, output)


def _keep(wishes: Wishes, output: Output) -> None:
    from flows.services.conductor import keep_up  # noqa: PLC0415

    def shown(found: Running, already: bool) -> None:
        _show(found, already, output)
        if not already:
            output.say("Ctrl-C ends all of it, and so does `ism-dask up --stop`")

    keep_up(wishes, _telling(output), shown)


def _detach(wishes: Wishes, output: Output) -> None:
    from flows.services.conductor import leave_up  # noqa: PLC0415

    _show(*leave_up(wishes, _telling(output)), output)
    output.say("end all of it with `ism-dask up --stop`")


def _stop(_: Wishes, output: Output) -> None:
    from flows.services.conductor import stop_all  # noqa: PLC0415

    ended = stop_all()
    names = ", ".join(f"{each.name} (process {each.pid})" for each in ended)
    output.say(f"ended: {names}" if ended else "nothing of ours runs")
    output.finish({"command": "up", "stopped": [_told(record) for record in ended]})


def _list(_: Wishes, output: Output) -> None:
    from flows.services.up import running  # noqa: PLC0415

    found = running()
    if found is None:
        output.say("nothing runs; start it with `ism-dask up`")
        output.finish({"command": "up", "running": False, "services": []})
        return
    _table(output)
    _finish(found, output)


def _show(found: Running, already: bool, output: Output) -> None:
    if already:
        output.say("runs already:")
    links = {_LINKS[name]: link for name, link in found.to_json().items() if name in _LINKS}
    output.table(("", ""), [[name, link] for name, link in links.items() if link], left=2)
    _finish(found, output, already=already)


def _table(output: Output) -> None:
    rows = [[each.name, str(each.pid), each.address, each.page or ""] for each in _records()]
    output.table(("service", "process", "address", "page"), rows, left=4)


def _finish(found: Running, output: Output, **more: Any) -> None:
    services = [_told(record) for record in _records()]
    answer = {"command": "up", "running": True, **found.to_json(), "services": services, **more}
    output.finish(answer)


def _records() -> list[Record]:
    from flows.services.conductor import KINDS  # noqa: PLC0415
    from flows.services.records import recorded  # noqa: PLC0415
    from flows.services.up import NAME  # noqa: PLC0415

    names = [NAME, *(kind.name for kind in KINDS)]
    return [record for name in names if (record := recorded(name))]


def _told(record: Record) -> dict[str, Any]:
    from flows.services.records import log_path  # noqa: PLC0415

    told = {"name": record.name, "pid": record.pid, "address": record.address or None}
    return {**told, "page": record.page, "log": str(log_path(record.name))}


def _telling(output: Output) -> Telling:
    """Return what is told while something starts; also set what Prefect finds when it does."""
    from flows.services.server import prepare_environment  # noqa: PLC0415
    from flows.services.service import Telling  # noqa: PLC0415

    # What the services print goes into their logs, which are to say what went on.
    prepare_environment(debug=True)

    def waiting(records: Sequence[Record]) -> AbstractContextManager[object]:
        return output.waiting(f"starting {', '.join(record.name for record in records)} ...")

    return Telling(output.say, waiting)
