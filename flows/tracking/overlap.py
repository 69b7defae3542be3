"""Let one run of a schedule compute at a time: runs that are not needed give way to another."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType

from flows.errors import RunHeldError
from flows.tracking.client import ServerUnreachable, prefect_client

# A run that begins later than this was missed: its machine was off, or had no worker.
_MISSED = timedelta(minutes=1)
_TAKEN_UP = [StateType.PENDING, StateType.RUNNING]


def reason_to_give_way(run: FlowRun | None) -> str:
    """Return why a run that begins is not needed; an empty text if it is.

    Runs of a schedule that were due while the machine was off all begin when it is back. Those that
    were missed give way to a later one, which does their work.

    We do without the limits of Prefect for runs at one time: they depend on leases, and Prefect
    ends a run that cannot renew its lease because the server is away.
    """
    if run is None or not run.auto_scheduled or run.expected_start_time is None:
        return ""
    now = datetime.now(UTC)
    if now - run.expected_start_time < _MISSED:
        return ""
    later = {"after_": run.expected_start_time, "before_": now}
    only = FlowRunFilter.model_validate(
        {
            "deployment_id": {"any_": [run.deployment_id]},
            "expected_start_time": later,
            "state": {"type": {"any_": _TAKEN_UP}},
            "id": {"not_any_": [run.id]},
        }
    )
    with suppress(ServerUnreachable), prefect_client() as client:
        for other in client.read_flow_runs(flow_run_filter=only):
            if other.auto_scheduled:
                return f"It was missed, and a later run of its schedule has begun, {other.name}."
    return ""


def gives_way_to(error: Exception, run: FlowRun | None) -> bool:
    """Return whether an error only says that a scheduled run began while another computes."""
    return isinstance(error, RunHeldError) and run is not None and bool(run.auto_scheduled)
