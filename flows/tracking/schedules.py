"""Schedules of refreshes on the Prefect server, for the worker of `ism-dask up`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.runner.storage import LocalStorage
from prefect.utilities.urls import url_for

from flows.errors import SettingsError
from flows.settings.base import POOL
from flows.settings.fields import check_choice
from flows.tracking.client import BUSY_RETRIES, prefect_client
from flows.tracking.server import without_password

# The tag of all deployments with a schedule of ours, which have the name of the published run.
_TAG = "refresh"


@dataclass(frozen=True)
class ScheduledRefresh:
    """The schedule of a refresh."""

    name: str  # the published run
    file: str
    cron: str
    timezone: str
    paused: bool
    next: str  # when the next run is due, in UTC; empty if none is
    last: str  # the name of the state of the newest run; empty if there is none

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row in the table of schedules."""
        due = "paused" if self.paused else self.next
        return (self.name, self.cron, self.timezone, due, self.last, self.file)


def schedule_refresh(name: str, file: Path, cron: str, timezone: str = "UTC") -> str:
    """Deploy the flow `refresh` for a run file, with a schedule, and return its page.

    An earlier schedule of that name and file is replaced. One run computes at a time: one that
    begins meanwhile is cancelled.
    """
    schedule = _checked_schedule(cron, timezone)
    for each in list_schedules():
        if each.name == name and each.file != str(file.resolve()) and Path(each.file).exists():
            raise SettingsError(
                f"{file}: `run` is {name!r}, which has a schedule by {each.file}; choose another "
                f"name, or remove that one with `ism-dask schedules {name} remove`"
            )
    deployment = RunnerDeployment.from_entrypoint(
        "flows.run_flows.refresh",
        name=name,
        schedules=[schedule],
        parameters={"settings": {"file": str(file.resolve())}},
        tags=[_TAG, name],
        work_pool_name=POOL,
    )
    # Without it, the worker copies the folder from which this is called, for each run.
    deployment.storage = LocalStorage(str(file.resolve().parent))
    with suppress(ObjectAlreadyExists), prefect_client(BUSY_RETRIES) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    identity: Any = deployment.apply()
    url = url_for("deployment", obj_id=identity)
    return without_password(url) if url else str(identity)


def list_schedules() -> list[ScheduledRefresh]:
    """Return the schedules of all refreshes on the server, by name."""
    only = DeploymentFilter.model_validate({"tags": {"all_": [_TAG]}})
    with prefect_client(BUSY_RETRIES) as client:
        deployments = client.read_deployments(deployment_filter=only)
        return sorted((_described(client, each) for each in deployments), key=lambda one: one.name)


def change_schedule(name: str, change: str) -> None:
    """Pause, resume or remove a schedule; the published run and its history stay."""
    check_choice("change", change, ("pause", "resume", "remove"))
    with prefect_client(BUSY_RETRIES) as client:
        try:
            deployment = client.read_deployment_by_name(f"refresh/{name}")
        except ObjectNotFound as error:
            raise SettingsError(
                f"no refresh of {name!r} has a schedule; `ism-dask schedules` lists them"
            ) from error
        {
            "pause": client.pause_deployment,
            "resume": client.resume_deployment,
            "remove": client.delete_deployment,
        }[change](deployment.id)


def _checked_schedule(cron: str, timezone: str) -> CronSchedule:
    # Pydantic's own messages take several lines, and name its documentation.
    try:
        CronSchedule(cron=cron)
    except ValueError as error:
        raise SettingsError(
            f"`cron` is {cron!r}; expected five fields, such as '0 2 * * *'"
        ) from error
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValueError as error:
        raise SettingsError(
            f"`timezone` is {timezone!r}; expected the name of one, such as Europe/Berlin"
        ) from error


def _described(client: SyncPrefectClient, each: DeploymentResponse) -> ScheduledRefresh:
    crons = [one.schedule for one in each.schedules if isinstance(one.schedule, CronSchedule)]
    mine = {"deployment_id": {"any_": [each.id]}}
    due, past = (
        client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate({**mine, "state": {"type": states}}),
            sort=sort,
            limit=1,
        )
        for states, sort in (
            ({"any_": [StateType.SCHEDULED]}, FlowRunSort.EXPECTED_START_TIME_ASC),
            ({"not_any_": [StateType.SCHEDULED]}, FlowRunSort.EXPECTED_START_TIME_DESC),
        )
    )
    return ScheduledRefresh(
        name=each.name,
        file=str(each.parameters.get("settings", {}).get("file", "")),
        cron=" and ".join(one.cron for one in crons),
        timezone=" and ".join(one.timezone or "UTC" for one in crons),
        paused=each.paused,
        next=f"{due[0].expected_start_time:%Y-%m-%d %H:%M}" if due else "",
        last=str(past[0].state_name) if past else "",
    )
