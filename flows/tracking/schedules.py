"""Schedules of refreshes on the Prefect server, for the worker of `ism-dask up`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.runner.storage import LocalStorage
from prefect.utilities.urls import url_for

from flows.errors import SettingsError
from flows.settings.base import POOL
from flows.tracking.client import BUSY_RETRIES, prefect_client
from flows.tracking.server import without_password


def schedule_refresh(name: str, file: Path, cron: str, timezone: str = "UTC") -> str:
    """Deploy the flow `refresh` for a run file, with a schedule, and return its page.

    An earlier schedule of that name and file is replaced. One run computes at a time: one that
    begins meanwhile is cancelled.
    """
    schedule = _checked_schedule(cron, timezone)
    known = file.resolve()
    with suppress(ObjectNotFound), prefect_client(BUSY_RETRIES) as client:
        settings = client.read_deployment_by_name(f"refresh/{name}").parameters.get("settings", {})
        known = Path(str(settings.get("file", "")))
    if known != file.resolve() and known.exists():
        raise SettingsError(
            f"{file}: `run` is {name!r}, which has a schedule by {known}; choose another name, or "
            f"remove that one with `prefect deployment delete refresh/{name}`",
            "run",
        )
    deployment = RunnerDeployment.from_entrypoint(
        "flows.run_flows.refresh",
        name=name,
        schedules=[schedule],
        parameters={"settings": {"file": str(file.resolve())}},
        tags=["refresh", name],
        work_pool_name=POOL,
    )
    # Without it, the worker copies the folder from which this is called, for each run.
    deployment.storage = LocalStorage(str(file.resolve().parent))
    with suppress(ObjectAlreadyExists), prefect_client(BUSY_RETRIES) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    identity: Any = deployment.apply()
    url = url_for("deployment", obj_id=identity)
    return without_password(url) if url else str(identity)


def _checked_schedule(cron: str, timezone: str) -> CronSchedule:
    # Pydantic's own messages take several lines, and name its documentation.
    try:
        CronSchedule(cron=cron)
    except ValueError as error:
        raise SettingsError(
            f"`cron` is {cron!r}; expected five fields, such as '0 2 * * *'", "cron"
        ) from error
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValueError as error:
        raise SettingsError(
            f"`timezone` is {timezone!r}; expected the name of one, such as Europe/Berlin",
            "timezone",
        ) from error
