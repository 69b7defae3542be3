"""The flow `cluster`: clusters of all rows and the W in which they show, kept as a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.ingest import ingest_step
from flows.reports.markdown import cluster_page
from flows.runs.clustering import cluster_and_save, count_clusters
from flows.settings.runs import ClusterSettings
from flows.tracking.run import RETRIED, rename_run, run_flow, track_run
from storage import open_dataset


@task(
    name="cluster",
    task_run_name="cluster rows",
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRIED,
)
def cluster_step(settings: ClusterSettings) -> dict[str, Any]:
    """Find the clusters and save the run."""
    return cluster_and_save(settings)


@flow(name="cluster", flow_run_name="{settings.title}", persist_result=False)
def cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Cluster all rows of a data set and keep labels and model as a run."""
    with track_run("cluster", settings) as run:
        ingest_step(settings)
        k = count_clusters(settings, open_dataset(settings.dataset, settings.split))
        rename_run(replace(settings, n_clusters=k).title)
        summary = cluster_step(settings)
        return run.finished(summary, run.page(cluster_page(summary, run.links(summary))))


def run_cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Run the flow here."""
    return run_flow(cluster, settings)
