"""Deploy flows with a schedule on the Prefect server, for the worker of `ism-dask up`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner.storage import LocalStorage
from prefect.utilities.urls import url_for

from flows.errors import SettingsError
from flows.tracking.client import prefect_client
from flows.tracking.server import without_password

# The work pool that the worker of `ism-dask up` serves.
WORK_POOL = "local-process"


def schedule_refresh(name: str, file: Path, cron: str) -> str:
    """Deploy the flow `refresh` for a run file, with a schedule, and return its page.

    An earlier schedule of that name is replaced. One run computes at a time: one that begins
    meanwhile is cancelled.
    """
    settings: dict[str, Any] = {"file": str(file.resolve())}
    try:
        deployment = RunnerDeployment.from_entrypoint(
            "flows.refresh.refresh",
            name=name,
            cron=cron,
            parameters={"settings": settings},
            tags=["refresh", name],
            work_pool_name=WORK_POOL,
        )
    except ValueError as error:
        raise SettingsError(
            f"`cron` is {cron!r}; expected five fields, such as '0 2 * * *' ({error})"
        ) from error
    # Without it, the worker copies the folder from which this is called, for each run.
    deployment.storage = LocalStorage(str(file.resolve().parent))
    _make_work_pool()
    identity: Any = deployment.apply()
    url = url_for("deployment", obj_id=identity)
    return without_password(url) if url else str(identity)


def _make_work_pool() -> None:
    """Make the work pool, unless there is one."""
    with prefect_client() as client:
        try:
            client.read_work_pool(WORK_POOL)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))
