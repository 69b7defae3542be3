"""What a command does before it may import Prefect, and the choice to do without."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from flows.console import Output
from flows.settings import DataSettings


@dataclass(frozen=True)
class Work:
    """What a command does with its settings, by names that are imported when it runs.

    Attributes
    ----------
    plain, flow : str
        `module:function`, without Prefect and under it. Both take the settings and return a
        summary.
    """

    plain: str
    flow: str

    def carried_out(self, settings: DataSettings, output: Output, *, plain: bool) -> dict[str, Any]:
        """Do the work, showing people how far it is, and return its summary."""
        if not plain:
            with_prefect(output)
        work = resolve_name(self.plain if plain else self.flow)
        with output.watched():
            summary: dict[str, Any] = work(settings)
        return summary


def with_prefect(output: Output) -> str:
    """Set Prefect's environment, see to it that a server answers, and return its API address."""
    from flows.services.server import ensure_server, prepare_environment, ui_address  # noqa: PLC0415

    prepare_environment(debug=output.debug)
    # Of a log that a server which is away has not got, Prefect would tell on stderr.
    logging.raiseExceptions = output.debug
    api = ensure_server(
        lambda server: output.waiting(
            f"starting a Prefect server at {ui_address(server.api)}; it stays up for the next "
            f"run: stop it with `ism-dask server --stop` or `kill {server.pid}`"
        )
    )
    from flows.outbox import settle_all  # noqa: PLC0415

    settle_all()
    return api
