"""The Prefect flow `crossval`: one task for each fold, then one that averages the folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.compute.session import joined_cluster
from flows.ingest import ingest_and_name_run
from flows.reports.markdown import crossval_page
from flows.runs.crossval import MEASURES, FoldResult, current_crossval, resumable_crossval
from flows.settings.runs import CrossvalSettings
from flows.tracking.flow_run import RETRY_OPTIONS, run_flow, track_run


@task(
    name="fold",
    task_run_name="fold {number} of {settings.folds}",
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRY_OPTIONS,
)
def fold_step(settings: CrossvalSettings, number: int) -> FoldResult:  # noqa: ARG001 - in its name
    """Fit W and the classifier to all folds but one, and score them on that one."""
    return current_crossval().fold(number)


@task(name="aggregate", task_run_name="aggregate", cache_policy=NO_CACHE, persist_result=False)
def aggregate_step(results: Sequence[FoldResult]) -> dict[str, Any]:
    """Average the results of the folds and save them as a run."""
    return current_crossval().summarise(results)


@flow(name="crossval", flow_run_name="{settings.title}", persist_result=False)
def crossval(settings: CrossvalSettings) -> dict[str, Any]:
    """Cross-validate W by the accuracy of an RBF support vector machine on X W.

    The folds run one after the other, because each uses all cores, or the whole Dask cluster.
    """
    with track_run("crossval", settings) as run:
        data = ingest_and_name_run(settings)
        with resumable_crossval(settings, data):
            with joined_cluster(settings.scheduler):
                results = [fold_step(settings, number) for number in settings.numbers]
            summary = aggregate_step(results)
        about = "Each fold, mean and population standard deviation"
        return run.finished(
            summary,
            run.page(crossval_page(summary, run.links(summary))),
            run.table("folds", table_rows(summary), about),
        )


def run_crossval(settings: CrossvalSettings) -> dict[str, Any]:
    """Run the flow `crossval` in this process and return its summary."""
    return run_flow(crossval, settings)


def table_rows(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each fold, one for the mean and one for the standard deviation."""
    folds = [
        {"fold": str(result["fold"]), **{name: result[name] for name in MEASURES}}
        for result in summary["results"]
    ]
    return [*folds, *({"fold": kind, **summary[kind]} for kind in ("mean", "sd"))]
