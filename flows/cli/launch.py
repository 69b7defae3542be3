"""Start a flow from the command line, under Prefect or without it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from flows.cli.output import Output
from flows.errors import FlowError
from flows.settings.base import FlowSettings

if TYPE_CHECKING:
    from flows.services.records import ProcessRecord


@dataclass(frozen=True)
class LazyFlow:
    """A flow, given by the names of its functions, which are imported when it runs.

    Attributes
    ----------
    plain, flow : str
        `module:function` that runs it without Prefect, and under Prefect. Both functions take the
        settings and return a result.
    """

    plain: str
    flow: str

    def run(self, settings: FlowSettings, output: Output, *, plain: bool) -> Any:
        """Run the flow, show its progress, and return its result."""
        place = getattr(settings, "scheduler", None)
        if place is not None:
            from flows.compute.places import cluster_place  # noqa: PLC0415

            cluster_place(place)  # for its error, before anything starts
        if not plain:
            connect_to_prefect(output)
        work = resolve_name(self.plain if plain else self.flow)
        with output.watched():
            return work(settings)


def connect_to_prefect(output: Output) -> str:
    """Set Prefect's environment, start a server unless ours runs, and return its API address."""
    from flows.services.prefect import ensure_server, prepare_environment  # noqa: PLC0415
    from flows.services.service import StartupMessages  # noqa: PLC0415

    def waiting(records: Sequence[ProcessRecord]) -> AbstractContextManager[object]:
        server = records[0]
        return output.waiting(
            f"starting a Prefect server at {server.page}; it stays up for the next run: stop it "
            f"with `ism-dask up --stop` or `kill {server.pid}`"
        )

    prepare_environment(debug=output.debug)
    # While the server is unreachable, Prefect would report on stderr that it could not send logs.
    logging.raiseExceptions = output.debug
    try:
        api = ensure_server(StartupMessages(output.say, waiting))
    except FlowError as error:
        raise FlowError(f"{error}. Run with --plain to do without Prefect") from error
    from flows.tracking.client import check_password  # noqa: PLC0415
    from flows.tracking.outbox import send_receipts  # noqa: PLC0415

    check_password()
    send_receipts()
    return api
