"""The Prefect flows with their tasks, which compute without Prefect what `flows.runs` has."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from prefect import Flow, State, flow
from prefect.events import emit_event
from prefect.states import Completed, Failed

from flows.progress.watching import in_context, run_step
from flows.refreshes.history import history_summary
from flows.refreshes.refresh import refresh as refresh_run
from flows.reports.pages import render_markdown
from flows.results.refresh import SUSPICIOUS
from flows.results.runs import RunResult
from flows.runs.clustering import run_cluster
from flows.runs.columns_read import ingest_summary
from flows.runs.crossval import run_crossval
from flows.runs.data import store_dataset
from flows.runs.fit import run_fit
from flows.runs.published import History
from flows.settings.base import IngestSettings
from flows.settings.refresh import RefreshSettings
from flows.tracking.flow_run import track_run

# Name of the event that automations can act on, and prefix of the resource that it is about.
EVENT, RESOURCE = "ism-dask.refresh", "ism-dask.run"


def saving_flow(compute: Callable[[Any], RunResult]) -> Flow[..., Any]:
    """Return the flow of a function that computes and saves a run, such as `run_fit`.

    Its name is that of the function, without `run_`.
    """
    name = compute.__name__.removeprefix("run_")

    def tracked(settings: Any) -> dict[str, Any]:
        with track_run(name, settings) as run:
            return run.saved(compute(settings))

    # Prefect makes a form of the parameter, and finds the flow in this module by its name.
    tracked.__signature__ = signature(compute, eval_str=True)  # type: ignore[attr-defined]
    tracked.__name__, tracked.__qualname__, tracked.__doc__ = name, name, compute.__doc__
    return flow(name=name, flow_run_name="{settings.flow_run_name}", persist_result=False)(tracked)


fit = saving_flow(run_fit)
crossval = saving_flow(run_crossval)
cluster = saving_flow(run_cluster)


@flow(name="ingest", flow_run_name="{settings.flow_run_name}", persist_result=False)
def ingest(settings: IngestSettings) -> dict[str, Any]:
    """Read the raw files of a data set, check them, and store the rows."""
    with track_run("ingest", settings) as run:
        result = run_step(f"store {settings.dataset}", store_dataset, settings)
        return run.finished(result, render_markdown(ingest_summary(result)), result.line)


@flow(name="refresh", flow_run_name="refresh {settings.title}", persist_result=False)
def refresh(settings: RefreshSettings) -> State[Any]:
    """Fit the table of a run file again if it has changed, and publish the run if it is sound.

    The flow run ends in a state that is named after the result: Unchanged, Published or, as a
    failed one, Suspicious.
    """
    with track_run("refresh", settings) as run:
        # The fit does not rename the flow run.
        with in_context(describe=lambda _: None):
            result = run_step("refresh", refresh_run, settings)
        emit_event(
            event=f"{EVENT}.{result.state}",
            resource={"prefect.resource.id": f"{RESOURCE}.{result.name}"},
            payload={"run": result.run, "reasons": list(result.reasons)},
        )
        history = render_markdown(history_summary(History(result.name)))
        state: State[Any] = Completed(name=result.state.capitalize())
        if result.state == SUSPICIOUS:
            state = Failed(name=result.state.capitalize(), message="; ".join(result.reasons))
        answer = run.finished(result, history, f"the history of {result.name}", state)
    return state if state.is_failed() else Completed(name=state.name, data=answer)
