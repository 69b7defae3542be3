"""Cluster and keep what came of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows import wording
from flows.commands.prefecting import Work
from flows.console import Output
from flows.settings import ClusterSettings

EXAMPLE = "Example: ism-dask cluster face --paradigm alternative --avoid identity -k 4"
HIDDEN = False

_WORK = Work(plain="flows.work.grouping:cluster_plain", flow="flows.cluster:run_cluster")


def run(
    settings: ClusterSettings,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Run without Prefect.")] = False,
    output: Output,
) -> None:
    """Find clusters of all rows and the new features they show in; save both as a run."""
    answer(settings, output, plain=plain)


def answer(settings: ClusterSettings, output: Output, *, plain: bool) -> None:
    """Do what is asked for, and show what came of it."""
    summary = _WORK.carried_out(settings, output, plain=plain)
    _show(summary, output)
    output.finish(summary)


def _show(summary: dict[str, Any], output: Output) -> None:
    output.say(
        f"{summary['run']}: {wording.counted(summary['n_clusters'], 'cluster')} in "
        f"{wording.counted(len(summary['rounds']), 'round')}, "
        f"objective {summary['objective']:.6g}, engine {wording.engine(summary)}, "
        f"{summary['seconds']:.2f} s"
    )
    output.say(f"residual {wording.checked(summary, summary['rows'])}")
    if summary["engine_note"]:
        output.say(summary["engine_note"])
    sizes = [[str(number), f"{size:,}"] for number, size in enumerate(summary["sizes"])]
    output.table(("cluster", "rows"), sizes, left=1)
    if summary["nmi"]:
        rows = [[name, f"{value:.3f}"] for name, value in summary["nmi"].items()]
        output.table(("label", "NMI"), rows, left=1)
    if advice := wording.components(summary):
        output.say(advice)
    if not summary["converged"]:
        output.say(f"not settled: the best so far was kept. {_advice(summary)}")
    for file in summary["pictures"].values():
        output.say(f"picture {file}")
    output.say(f"saved at {summary['path']}; `ism-dask report {summary['run']}` makes a page of it")


def _advice(summary: dict[str, Any]) -> str:
    """Say what may help: the rounds may not have settled, or the W that was kept, or neither."""
    settings, status = summary["settings"], summary["status"]
    helps = [] if status == "converged" else [f"W {wording.ending(status)}"]
    if summary["rounds"][-1]["change"] >= settings["outer_tol"]:
        helps.append("Raise --max-outer or --outer-tol")
    return ". ".join(helps)
