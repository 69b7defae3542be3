"""Fit and keep a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from flows.commands.prefecting import with_prefect
from flows.console import Output
from flows.settings import FitSettings

EXAMPLE = "Example: ism-dask fit wine --kernel gaussian -q 2 --run wine-2d"
HIDDEN = False
# A fit stopped at the default tolerance has a residual of some hundredths.
_FAR = 0.5

_Work = Callable[[FitSettings], dict[str, Any]]


def run(
    settings: FitSettings,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Run without Prefect.")] = False,
    output: Output,
) -> None:
    """Fit W to all rows of a data set and save it as a run, for `ism-dask transform`."""
    work = _plain() if plain else _flow(output)
    with output.watched():
        summary = work(settings)
    _show(summary, output)
    output.finish(summary)


def _plain() -> _Work:
    from flows.fitting import fit_plain  # noqa: PLC0415

    return fit_plain


def _flow(output: Output) -> _Work:
    with_prefect(output)
    from flows.fit import run_fit  # noqa: PLC0415

    return run_fit


def _show(summary: dict[str, Any], output: Output) -> None:
    output.say(
        f"{summary['run']}: objective {summary['objective']:.6g}, eigengap "
        f"{summary['eigengap']:.4g}, residual {summary['residual']:.2g}, "
        f"{summary['iterations']} iterations, engine {summary['engine']}, "
        f"{summary['seconds']:.2f} s"
    )
    pairs = zip(summary["eigenvalues"], summary["loadings"], strict=True)
    rows = [
        [f"feature_{number}", ", ".join(map(_loading, loadings)), f"{value:.4g}"]
        for number, (value, loadings) in enumerate(pairs)
    ]
    output.table(("feature", "largest weights (standardised)", "eigenvalue"), rows, left=2)
    if not summary["converged"]:
        output.say("not settled: the best W so far was kept. Raise --max-iter or --tol")
    if summary["residual"] > _FAR:
        output.say(
            f"the residual is {summary['residual']:.2g}: W is no stationary point. Between these "
            "rows the kernel may be zero or flat; try --sigma median"
        )
    output.say(f"saved at {summary['path']}")


def _loading(loading: dict[str, Any]) -> str:
    return f"{loading['feature']} {loading['weight']:+.2f}"
