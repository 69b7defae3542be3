"""Pages of runs, in Markdown: what the Prefect UI shows of a run that is over."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows import wording

# Pictures up to so many bytes are shown in the artifact itself.
_SHOWN_BYTES = 200_000


def fit_page(summary: dict[str, Any], links: Mapping[str, str]) -> str:
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
    return "\n".join([*lines, *_linked(summary, links)])


def ingest_page(summary: dict[str, Any]) -> str:
    """Return what has been stored as a page for people."""
    labels = ", ".join(f"{name} ({k} classes)" for name, k in summary["labels"].items())
    return "\n".join(
        [
            f"# {summary['dataset']} ({summary['split']})",
            "",
            f"{summary['rows']:,} rows, {summary['columns']:,} columns.",
            "",
            f"Labels: {labels or 'none'}.",
            "",
            f"Stored in `{summary['path']}`, with the hash `{summary['data_hash']}`.",
        ]
    )


def crossval_page(summary: dict[str, Any], links: Mapping[str, str]) -> str:
    """Return the summary as a page for people: a line for each fold, mean and deviation."""
    lines = [f"# {summary['run']}", "", "| fold | accuracy | cost | seconds | iterations |"]
    lines.append("|---|---|---|---|---|")
    rows = [(str(each["fold"]), each) for each in summary["results"]]
    rows += [(kind, summary[kind]) for kind in ("mean", "sd")]
    for name, each in rows:
        lines.append(
            f"| {name} | {each['accuracy']:.4f} | {each['cost']:,.4f} | {each['seconds']:.3f} "
            f"| {each['iterations']:g} |"
        )
    return "\n".join([*lines, *_linked(summary, links)])


def _linked(summary: dict[str, Any], links: Mapping[str, str]) -> list[str]:
    kept = f"The run is kept in `{summary['path']}`."
    return ["", kept, "", " · ".join(f"[{name}]({url})" for name, url in links.items())]


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def cluster_page(summary: dict[str, Any], links: Mapping[str, str]) -> str:
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
    return "\n".join([*lines, *_linked(summary, links)])


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
