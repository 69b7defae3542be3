"""The Prefect flow `crossval`: it deals folds, one task fits and scores each, one averages them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import flow
from prefect.utilities.annotations import quote

from flows.compute.session import joined_cluster
from flows.ingest import ingest_and_name_run
from flows.results.runs import CrossvalResult, FoldResult
from flows.runs.crossval import (
    Crossval,
    FoldPlan,
    deal_folds,
    resumable_crossval,
    run_name,
)
from flows.runs.data import LabelledDataset
from flows.settings.runs import CrossvalSettings
from flows.text import number
from flows.tracking.flow_run import run_flow, step, track_run


@step("deal", "deal folds")
def deal_step(settings: CrossvalSettings, data: Any) -> tuple[LabelledDataset, list[FoldPlan]]:
    """Deal the rows into folds, each with the same share of every class."""
    return deal_folds(settings, data)


@step("fold", "fold {plan.number} of {crossval.settings.folds}")
def fold_step(crossval: Crossval, plan: FoldPlan) -> FoldResult:
    """Fit W and the classifier to all folds but one, and score them on that one."""
    return crossval.fold(plan)


@step("aggregate", retried=False)
def aggregate_step(crossval: Crossval, results: Sequence[FoldResult]) -> CrossvalResult:
    """Average the results of the folds and save them as a run."""
    return crossval.save(results)


@flow(name="crossval", flow_run_name="{settings.flow_run_name}", persist_result=False)
def crossval(settings: CrossvalSettings) -> dict[str, Any]:
    """Cross-validate W by the accuracy of an RBF support vector machine on X W.

    The folds run one after the other, because each uses all cores, or the whole Dask cluster.
    """
    with track_run("crossval", settings) as run:
        settings, data = ingest_and_name_run(settings, run, run_name)
        labelled, plans = deal_step(settings, quote(data))
        with resumable_crossval(settings, labelled) as this:
            with joined_cluster(settings.scheduler):
                results = [fold_step(this, plan) for plan in plans]
            result = aggregate_step(this, results)
        about = "Each fold, mean and population standard deviation"
        return run.saved(result, run.table("folds", table_rows(result), about))


def run_crossval(settings: CrossvalSettings) -> CrossvalResult:
    """Run the flow `crossval` in this process and return its result."""
    return CrossvalResult.from_json(run_flow(crossval, settings))


def table_rows(result: CrossvalResult) -> list[dict[str, Any]]:
    """Return a row for each fold, one for the mean and one for the standard deviation.

    The UI shows numbers with all their digits, so that they are texts with four.
    """
    rows = {
        **{str(each.fold): each.measures for each in result.results},
        "mean": result.mean,
        "sd": result.sd,
    }
    return [
        {"fold": name, **{key: number(value) for key, value in measures.to_json().items()}}
        for name, measures in rows.items()
    ]
