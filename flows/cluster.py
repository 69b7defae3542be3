"""The Prefect flow `cluster`: it clusters all rows, fits W to the clusters, and saves both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.utilities.annotations import quote

from flows.ingest import ingest_step
from flows.reports.markdown import run_page
from flows.reports.summary import card_line
from flows.results.runs import ClusterResult
from flows.runs.clustering import cluster_and_save, count_clusters, run_name
from flows.settings.runs import ClusterSettings
from flows.tracking.flow_run import RETRY_OPTIONS, run_flow, track_run


@task(
    name="cluster",
    task_run_name="cluster rows",
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRY_OPTIONS,
)
def cluster_step(settings: ClusterSettings, data: Any) -> ClusterResult:
    """Cluster the rows, fit W to the clusters, and save labels and model as a run."""
    return cluster_and_save(settings, data)


@flow(name="cluster", flow_run_name="{settings.flow_run_name}", persist_result=False)
def cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Cluster all rows of a data set and save labels and model as a run."""
    with track_run("cluster", settings) as run:
        settings, data = ingest_step(settings)
        k = count_clusters(settings, data)
        run.describe(replace(settings, n_clusters=k, run=run_name(settings, data, k)))
        result: ClusterResult = cluster_step(settings, quote(data))
        return run.finished(
            result, run.page(run_page(result, run.links(result)), card_line(result))
        )


def run_cluster(settings: ClusterSettings) -> ClusterResult:
    """Run the flow `cluster` in this process and return its result."""
    return ClusterResult.from_json(run_flow(cluster, settings))
