"""The flow `fit`: W on all rows, kept as a run."""

from __future__ import annotations

from typing import Any

from prefect import flow, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from flows import wording
from flows.fitting import fit_and_save
from flows.settings import FitSettings
from flows.steps import begin
from flows.tracking import current_run, tracked


@task(name="fit", task_run_name="fit W", cache_policy=NO_CACHE, persist_result=False)
def fit_step(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows and save the model."""
    return fit_and_save(settings)


@flow(name="fit", flow_run_name="{settings.title}", persist_result=False)
def fit(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows of a data set and keep the model as a run."""
    with tracked("fit", settings.dataset, settings.kernel) as key:
        begin(settings)
        summary = fit_step(settings)
        create_markdown_artifact(markdown=markdown(summary), key=key)
        return {**summary, "flow_run": current_run()}


def run_fit(settings: FitSettings) -> dict[str, Any]:
    """Run the flow here, tagged with its data set and kernel."""
    with tags(settings.dataset, settings.kernel):
        return fit(settings)


def markdown(summary: dict[str, Any]) -> str:
    """Return the summary as a page for people."""
    facts = {
        **{name: summary[name] for name in ("objective", "eigengap", "iterations", "converged")},
        "residual": wording.checked(summary, summary["rows"]),
        "engine": wording.engine(summary),
        "seconds": summary["seconds"],
    }
    lines = [f"# {summary['run']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_shown(value)} |" for name, value in facts.items()]
    lines += ["", summary["engine_note"]] if summary["engine_note"] else []
    lines += [
        "",
        "## New features",
        "",
        "| feature | eigenvalue | largest weights |",
        "|---|---|---|",
    ]
    pairs = zip(summary["eigenvalues"], summary["loadings"], strict=True)
    for number, (value, loadings) in enumerate(pairs):
        weights = ", ".join(f"{each['feature']} {each['weight']:+.2f}" for each in loadings)
        lines.append(f"| feature_{number} | {value:.4g} | {weights} |")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
