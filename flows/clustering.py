"""The flow `cluster`: clusters of all rows and the W in which they show, kept as a run."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import flow, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from flows import wording
from flows.clusters import cluster_and_save, count_clusters
from flows.settings import ClusterSettings
from flows.steps import ingest_step
from flows.tracking import current_run, rename_run, tracked
from storage import open_dataset

# Pictures up to so many bytes are shown in the artifact itself.
_SHOWN_BYTES = 200_000


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
        create_markdown_artifact(markdown=markdown(summary), key=key)
        return {**summary, "flow_run": current_run()}


def run_cluster(settings: ClusterSettings) -> dict[str, Any]:
    """Run the flow here, tagged with its data set, paradigm and kernel."""
    with tags(settings.dataset, settings.paradigm, settings.kernel):
        return cluster(settings)


def markdown(summary: dict[str, Any]) -> str:
    """Return the summary as a page for people, with its pictures."""
    facts = {
        "data": f"{summary['dataset']} {summary['split'] or ''}, {summary['rows']:,} rows",
        "paradigm": summary["paradigm"],
        "rows of each cluster": ", ".join(f"{size:,}" for size in summary["sizes"]),
        "new features": summary["n_components"],
        "objective": f"{summary['objective']:.6g}",
        "residual": wording.checked(summary, summary["rows"]),
        "engine": wording.engine(summary),
        "converged": summary["converged"],
        "seconds": f"{summary['seconds']:.2f}",
    }
    lines = [f"# {summary['run']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    lines += ["", summary["engine_note"]] if summary["engine_note"] else []
    if summary["nmi"]:
        lines += ["", "| label | NMI |", "|---|---|"]
        lines += [f"| {name} | {value:.3f} |" for name, value in summary["nmi"].items()]
    lines += ["", "| round | objective | affinity | change | iterations |", "|---|---|---|---|---|"]
    lines += [_round(number, each) for number, each in enumerate(summary["rounds"], start=1)]
    for name, file in summary["pictures"].items():
        lines += ["", f"## {name}", "", _picture(name, Path(file))]
    return "\n".join([*lines, "", f"Model, labels and pictures are in `{summary['path']}`."])


def _round(number: int, each: dict[str, Any]) -> str:
    return (
        f"| {number} | {each['objective']:.6g} | {each['affinity']:.4g} | {each['change']:.2g} "
        f"| {each['iterations']} |"
    )


def _picture(name: str, path: Path) -> str:
    """Return a picture as Markdown; a large one by the name of its file."""
    content = path.read_bytes()
    if len(content) > _SHOWN_BYTES:
        return f"`{path}`"
    return f"![{name}](data:image/png;base64,{base64.b64encode(content).decode()})"
