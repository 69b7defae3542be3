"""The flow `cluster`: clusters of all rows and the W in which they show, kept as a run."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from prefect import flow, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from flows import wording
from flows.clusters import cluster_and_save
from flows.data import ensure_stored
from flows.settings import ClusterSettings
from flows.tracking import current_run, tracked

# Pictures up to so many bytes are shown in the artifact itself.
_SHOWN_BYTES = 200_000


@task(
    name="ingest",
    task_run_name="ingest {settings.dataset}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def store_step(settings: ClusterSettings) -> int:
    """Store the data set unless it is stored, and return its rows."""
    return len(ensure_stored(settings.dataset, settings.split).X)


@task(name="cluster", task_run_name="cluster rows", cache_policy=NO_CACHE, persist_result=False)
def cluster_step(settings: ClusterSettings) -> dict[str, Any]:
    """Find the clusters and save the run."""
    return cluster_and_save(settings)


@flow(name="cluster", flow_run_name="{settings.title}", persist_result=False)
def cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Cluster all rows of a data set and keep labels and model as a run."""
    with tracked("cluster", settings.dataset, settings.paradigm, settings.kernel) as key:
        store_step(settings)
        summary = cluster_step(settings)
        create_markdown_artifact(markdown=markdown(summary), key=key)
        return {**summary, "flow_run": current_run()}


def run_cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Run the flow here, tagged with its data set, paradigm and kernel."""
    with tags(settings.dataset, settings.paradigm, settings.kernel):
        return cluster(settings)


def markdown(summary: dict[str, Any]) -> str:
    """Return the summary as a page for people, with its pictures."""
    facts = {
        "clusters": ", ".join(f"{size:,}" for size in summary["sizes"]),
        **{f"NMI with {name}": f"{value:.3f}" for name, value in summary["nmi"].items()},
        "objective": f"{summary['objective']:.6g}",
        "residual": wording.checked(summary, summary["rows"]),
        "engine": wording.engine(summary),
        "converged": summary["converged"],
        "seconds": f"{summary['seconds']:.2f}",
    }
    lines = [f"# {summary['run']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    lines += ["", "| round | objective | affinity | change |", "|---|---|---|---|"]
    lines += [
        f"| {number} | {each['objective']:.6g} | {each['affinity']:.4g} | {each['change']:.2g} |"
        for number, each in enumerate(summary["rounds"], start=1)
    ]
    for name, file in summary["pictures"].items():
        lines += ["", f"## {name}", "", _picture(name, Path(file))]
    return "\n".join(lines)


def _picture(name: str, path: Path) -> str:
    """Return a picture as Markdown; a large one by the name of its file."""
    content = path.read_bytes()
    if len(content) > _SHOWN_BYTES:
        return f"`{path}`"
    return f"![{name}](data:image/png;base64,{base64.b64encode(content).decode()})"
