"""The Prefect flows `fit`, `cluster` and `unfold`: each saves a run that one step computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow
from prefect.utilities.annotations import quote

from flows.ingest import ingest_and_name_run, ingest_step
from flows.results.runs import ClusterResult, FitResult, UnfoldResult
from flows.runs import clustering, unfolding
from flows.runs.fit import fit_and_save, run_name
from flows.settings.runs import ClusterSettings, FitSettings
from flows.settings.unfolding import UnfoldSettings
from flows.tracking.flow_run import run_flow, step, track_run


@step("fit", "fit W")
def fit_step(settings: FitSettings, data: Any) -> FitResult:
    """Fit W to all rows and save the model as a run."""
    return fit_and_save(settings, data)


@flow(name="fit", flow_run_name="{settings.flow_run_name}", persist_result=False)
def fit(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows of a data set and save the model as a run."""
    with track_run("fit", settings) as run:
        settings, data = ingest_and_name_run(settings, run, run_name)
        return run.saved(fit_step(settings, quote(data)))


def run_fit(settings: FitSettings) -> FitResult:
    """Run the flow `fit` in this process and return its result."""
    return FitResult.from_json(run_flow(fit, settings))


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


def run_cluster(settings: ClusterSettings) -> ClusterResult:
    """Run the flow `cluster` in this process and return its result."""
    return ClusterResult.from_json(run_flow(cluster, settings))


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


def run_unfold(settings: UnfoldSettings) -> UnfoldResult:
    """Run the flow `unfold` in this process and return its result."""
    return UnfoldResult.from_json(run_flow(unfold, settings))
