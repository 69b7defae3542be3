"""The Prefect flows that compute a run, with tasks: fit, crossval, cluster, unfold and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prefect import flow
from prefect.utilities.annotations import quote

from flows.compute.session import joined_cluster
from flows.ingest import ingest_and_name_run, ingest_step
from flows.paper.measure import tables_plain
from flows.paper.series import Series, measure_series
from flows.paper.settings import TablesSettings
from flows.progress.watching import ProgressShare
from flows.results.paper import SeriesResult
from flows.results.runs import ClusterResult, CrossvalResult, FitResult, FoldResult, UnfoldResult
from flows.runs import clustering, unfolding
from flows.runs.crossval import Crossval, FoldPlan, deal_folds, resumable_crossval
from flows.runs.crossval import run_name as crossval_name
from flows.runs.data import LabelledDataset
from flows.runs.fit import fit_and_save
from flows.runs.fit import run_name as fit_name
from flows.settings.clustering import ClusterSettings
from flows.settings.runs import CrossvalSettings, FitSettings
from flows.settings.unfolding import UnfoldSettings
from flows.text import number
from flows.tracking.flow_run import step, track_run


@step("fit", "fit W")
def fit_step(settings: FitSettings, data: Any) -> FitResult:
    """Fit W to all rows and save the model as a run."""
    return fit_and_save(settings, data)


@flow(name="fit", flow_run_name="{settings.flow_run_name}", persist_result=False)
def fit(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows of a data set and save the model as a run."""
    with track_run("fit", settings) as run:
        settings, data = ingest_and_name_run(settings, run, fit_name)
        return run.saved(fit_step(settings, quote(data)))


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
        settings, data = ingest_and_name_run(settings, run, crossval_name)
        labelled, plans = deal_step(settings, quote(data))
        with resumable_crossval(settings, labelled) as this:
            with joined_cluster(settings.scheduler):
                results = [fold_step(this, plan) for plan in plans]
            result = aggregate_step(this, results)
        about = "Each fold, mean and population standard deviation"
        return run.saved(result, run.table("folds", table_rows(result), about))


def table_rows(result: CrossvalResult) -> list[dict[str, Any]]:
    """Return a row for each fold, one for the mean and one for the standard deviation.

    The UI shows numbers with all their digits: they are texts with four.
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


@step("cluster", "cluster rows")
def cluster_step(settings: ClusterSettings, data: Any) -> ClusterResult:
    """Cluster the rows, fit W to the clusters, and save labels and model as a run."""
    return clustering.cluster_and_save(settings, data)


@flow(name="cluster", flow_run_name="{settings.flow_run_name}", persist_result=False)
def cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Cluster all rows of a data set and save labels and model as a run."""
    with track_run("cluster", settings) as run:
        settings, data = ingest_step(settings)
        k = clustering.count_clusters(settings, data)
        name = clustering.run_name(settings, data, k)
        run.describe(replace(settings, n_clusters=k, run=name))
        return run.saved(cluster_step(settings, quote(data)))


@step("unfold", "unfold rows")
def unfold_step(settings: UnfoldSettings, data: Any) -> UnfoldResult:
    """Place the rows in a picture, and save their coordinates as a run."""
    return unfolding.unfold_and_save(settings, data)


@flow(name="unfold", flow_run_name="{settings.flow_run_name}", persist_result=False)
def unfold(settings: UnfoldSettings) -> dict[str, Any]:
    """Place all rows of a data set in a picture and save their coordinates as a run."""
    with track_run("unfold", settings) as run:
        settings, data = ingest_step(settings)
        run.describe(replace(settings, run=unfolding.run_name(settings, data)))
        return run.saved(unfold_step(settings, quote(data)))


@step("series", "{part.name}", retried=False)
def series_step(series: Series, settings: TablesSettings, part: ProgressShare) -> SeriesResult:
    """Measure what is still missing of one table cell or one line of a figure."""
    return measure_series(series, settings, part)


@flow(name="tables", flow_run_name="{settings.flow_run_name}", persist_result=False)
def tables(settings: TablesSettings) -> dict[str, Any]:
    """Measure the tables and figures of the paper again, with ISM and the other solvers.

    Measurements that an earlier run of that name has saved are reused.
    """
    with track_run("tables", settings) as run:
        return run.saved(tables_plain(settings, series_step))
