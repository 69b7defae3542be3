"""The Prefect flow `cluster`: it clusters all rows, fits W to the clusters, and saves both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow
from prefect.utilities.annotations import quote

from flows.ingest import ingest_step
from flows.results.runs import ClusterResult
from flows.runs.clustering import cluster_and_save, count_clusters, run_name
from flows.settings.clustering import ClusterSettings
from flows.tracking.flow_run import step, track_run


@step("cluster", "cluster rows")
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
        return run.saved(cluster_step(settings, quote(data)))
