"""Fit and keep a model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows import wording
from flows.commands.prefecting import Work
from flows.console import Output
from flows.settings import FitSettings

EXAMPLE = "Example: ism-dask fit wine --kernel gaussian -q 2 --run wine-2d"
HIDDEN = False

_WORK = Work(plain="flows.work.fitting:fit_plain", flow="flows.fit:run_fit")


def run(
    settings: FitSettings,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Run without Prefect.")] = False,
    output: Output,
) -> None:
    """Fit W to all rows of a data set and save it as a run, for `ism-dask transform`."""
    answer(settings, output, plain=plain)


def answer(settings: FitSettings, output: Output, *, plain: bool) -> None:
    """Do what is asked for, and show what came of it."""
    summary = _WORK.carried_out(settings, output, plain=plain)
    _show(summary, output)
    output.finish(summary)


def _show(summary: dict[str, Any], output: Output) -> None:
    output.say(
        f"{summary['run']}: objective {summary['objective']:.6g}, eigengap "
        f"{summary['eigengap']:.4g}, {wording.counted(summary['iterations'], 'iteration')}, "
        f"engine {wording.engine(summary)}, {summary['seconds']:.2f} s"
    )
    output.say(f"residual {wording.checked(summary, summary['rows'])}")
    if summary["engine_note"]:
        output.say(summary["engine_note"])
    pairs = zip(summary["eigenvalues"], summary["loadings"], strict=True)
    rows = [
        [f"feature_{number}", ", ".join(map(_loading, loadings)), f"{value:.4g}"]
        for number, (value, loadings) in enumerate(pairs)
    ]
    output.table(("feature", "largest weights (standardised)", "eigenvalue"), rows, left=2)
    if advice := wording.components(summary):
        output.say(advice)
    if not summary["converged"]:
        output.say(
            f"not settled: the best W so far was kept. It {wording.ending(summary['status'])}"
        )
    if summary["residual"] > wording.FAR:
        output.say(
            f"the residual is {summary['residual']:.2g}: W is no stationary point. Between these "
            "rows the kernel may be zero or flat; try --sigma median"
        )
    output.say(f"saved at {summary['path']}; `ism-dask report {summary['run']}` makes a page of it")


def _loading(loading: dict[str, Any]) -> str:
    return f"{loading['feature']} {loading['weight']:+.2f}"
