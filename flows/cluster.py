"""The flow `cluster`: clusters of all rows and the W in which they show, kept as a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from flows.reports.markdown import cluster_page
from flows.settings import ClusterSettings
from flows.steps import ingest_step
from flows.tracking import current_run, rename_run, tracked
from flows.work.grouping import cluster_and_save, count_clusters
from storage import open_dataset


@task(name="cluster", task_run_name="cluster rows", cache_policy=NO_CACHE, persist_result=False)
def cluster_step(settings: ClusterSettings) -> dict[str, Any]:
    """Find the clusters and save the run."""
    return cluster_and_save(settings)


@flow(name="cluster", flow_run_name="{settings.title}", persist_result=False)
def cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Cluster all rows of a data set and keep labels and model as a run."""
    with tracked("cluster", settings.dataset, settings.paradigm, settings.kernel) as key:
        ingest_step(settings)
        k = count_clusters(settings, open_dataset(settings.dataset, settings.split))
        rename_run(replace(settings, n_clusters=k).title)
        summary = cluster_step(settings)
        create_markdown_artifact(markdown=cluster_page(summary), key=key)
        return {**summary, "flow_run": current_run()}


def run_cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Run the flow here, tagged with its data set, paradigm and kernel."""
    with tags(settings.dataset, settings.paradigm, settings.kernel):
        return cluster(settings)
