"""Pages of runs, in Markdown: what the Prefect UI shows of a run that is over."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from flows import wording

# Pictures up to so many bytes are shown in the artifact itself.
_SHOWN_BYTES = 200_000


def fit_page(summary: dict[str, Any]) -> str:
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


def cluster_page(summary: dict[str, Any]) -> str:
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
