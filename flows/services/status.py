"""What is up on this machine: the one place where other commands look it up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flows.services.dask import DaskScheduler
from flows.services.prefect import PrefectServer, PrefectWorker
from flows.services.records import ProcessRecord, recorded
from flows.services.report_server import ReportServer
from storage import report_path

# The process that looks after the others; its address is the API they use.
NAME = "up"


@dataclass(frozen=True)
class RunningServices:
    """Where things are found on this machine; None is for what does not run.

    Attributes
    ----------
    api : str
        Of the Prefect server.
    ui : str
        Prefect's pages.
    scheduler : str
        Address of the Dask scheduler.
    dashboard : str
        Dask's pages.
    reports : str
        The list of runs; the report of a run is below it.
    pool : str
        The work pool whose runs are taken up.
    """

    api: str | None = None
    ui: str | None = None
    scheduler: str | None = None
    dashboard: str | None = None
    reports: str | None = None
    pool: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def running_services() -> RunningServices | None:
    """Return where the services of this machine are, or None if none runs."""
    kinds = (PrefectServer, DaskScheduler, ReportServer, PrefectWorker)
    found = [recorded(name) for name in (NAME, *(kind.name for kind in kinds))]
    if not any(found):
        return None
    up, server, scheduler, reports, worker = found
    main = up if up and up.address else server
    return RunningServices(
        api=_address(main),
        ui=main.page if main else None,
        scheduler=_address(scheduler),
        dashboard=scheduler.page if scheduler else None,
        reports=_address(reports),
        pool=_address(worker),
    )


def report_url(run: str) -> str:
    """Return the link to the report of a run: of the server if it is up, else of the file."""
    server = recorded(ReportServer.name)
    return f"{server.address}/{run}" if server else report_path(run).absolute().as_uri()


def _address(record: ProcessRecord | None) -> str | None:
    return record.address if record else None
