"""The Prefect flow `refresh`: it fits a table again, compares, and publishes the new run."""

from __future__ import annotations

from typing import Any

from prefect import State, flow
from prefect.events import emit_event
from prefect.states import Completed, Failed

from flows.ingest import block_credentials
from flows.refreshes.history import history_page
from flows.refreshes.refresh import credentials_of
from flows.refreshes.refresh import refresh as refresh_run
from flows.results.refresh import SUSPICIOUS, RefreshResult
from flows.settings.refresh import RefreshSettings
from flows.tracking.flow_run import step, track_run

# Name of the event that automations can act on, and prefix of the resource that it is about.
EVENT, RESOURCE = "ism-dask.refresh", "ism-dask.run"


@step("refresh")
def refresh_step(settings: RefreshSettings) -> RefreshResult:
    """Read what is new, fit W from the last one, compare, and publish."""
    return refresh_run(settings)


@flow(name="refresh", flow_run_name="refresh {settings.title}", persist_result=False)
def refresh(settings: RefreshSettings) -> State[Any]:
    """Fit the table of a run file again if it has changed, and publish the run if it is sound.

    The flow run ends in a state that is named after the result: Unchanged, Published or, as a
    failed one, Suspicious.
    """
    with track_run("refresh", settings) as run:
        with block_credentials(credentials_of(settings)):
            result: RefreshResult = refresh_step(settings)
        _tell_automations(result)
        page = run.page(history_page(result.name), f"the history of {result.name}")
        state: State[Any] = Completed(name=result.state.capitalize())
        if result.state == SUSPICIOUS:
            state = Failed(name=result.state.capitalize(), message="; ".join(result.reasons))
        answer = run.finished(result, page, state=state)
    return state if state.is_failed() else Completed(name=state.name, data=answer)


def _tell_automations(result: RefreshResult) -> None:
    """Emit the Prefect event of a refresh, such as `ism-dask.refresh.suspicious`."""
    emit_event(
        event=f"{EVENT}.{result.state}",
        resource={"prefect.resource.id": f"{RESOURCE}.{result.name}"},
        payload={"run": result.run, "reasons": list(result.reasons)},
    )
