"""The addresses of the services that run on this machine; all other commands read them here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flows.services.dask import DaskScheduler
from flows.services.prefect import PrefectServer, PrefectWorker
from flows.services.records import ProcessRecord, live_record
from flows.services.report_server import ReportServer
from storage import report_path

# Name of the process that supervises the services; its address is that of the API in use.
NAME = "up"


@dataclass(frozen=True)
class RunningServices:
    """The addresses of the services on this machine; None for a service that does not run.

    Attributes
    ----------
    api : str
        API of the Prefect server.
    ui : str
        UI of the Prefect server.
    scheduler : str
        Dask scheduler.
    dashboard : str
        Dask dashboard.
    reports : str
        List of runs; the report of a run is below it.
    pool : str
        Name of the work pool whose flow runs the Prefect worker starts.
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
    """Return the addresses of the services on this machine, or None if none runs."""
    kinds = (PrefectServer, DaskScheduler, ReportServer, PrefectWorker)
    records = [live_record(name) for name in (NAME, *(kind.name for kind in kinds))]
    if not any(records):
        return None
    supervisor, server, scheduler, reports, worker = records
    main = supervisor if supervisor and supervisor.address else server
    return RunningServices(
        api=_address_of(main),
        ui=main.page if main else None,
        scheduler=_address_of(scheduler),
        dashboard=scheduler.page if scheduler else None,
        reports=_address_of(reports),
        pool=_address_of(worker),
    )


def report_url(run: str) -> str:
    """Return the link to the report of a run: on the report server if it runs, else the file."""
    server = live_record(ReportServer.name)
    return f"{server.address}/{run}" if server else report_path(run).absolute().as_uri()


def _address_of(record: ProcessRecord | None) -> str | None:
    return record.address if record else None
