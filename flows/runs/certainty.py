"""Refit W to resampled rows; each refit is a part of the run, saved once it is computed."""

from __future__ import annotations

import numpy as np

from flows.progress.watching import ProgressShare, progress_note
from flows.results.runs import Certainty, ShareInterval
from flows.runs.resumable import ResumableRun, fit_on_cluster
from flows.settings.runs import FitSettings
from ism_dask import BootstrapResult, Intervals
from ism_dask.inference.bootstrap import summarise_refits
from ism_dask.inference.refits import Refit, RefitPlan

_PART = "refit"
# A result lists this many shares.
_TOP_SHARES = 10


def bootstrap_on_cluster(
    settings: FitSettings, this: ResumableRun, plan: RefitPlan, part: ProgressShare
) -> BootstrapResult:
    """Return the bootstrap of a fitted model, and report progress as the share `part`.

    Refits that an interrupted run has saved are not repeated. The refits are computed on the Dask
    cluster that `settings` name, or in this process.
    """
    count = settings.bootstrap or 0
    refits: dict[int, Refit] = {}

    def work() -> None:
        for number in range(count):
            if number not in refits and (saved := this.restored(_PART, number)) is not None:
                refits[number] = Refit(**saved)
        if refits:
            progress_note(f"{len(refits)} of {count} refits were saved before")
        missing = [number for number in range(count) if number not in refits]
        for number, refit in plan.refits(missing):
            this.save_part(_PART, number, vars(refit))
            refits[number] = refit
            part.report(len(refits) / count, f"refit {len(refits)} of {count}")

    fit_on_cluster(settings, this, work, len(plan.problem.y), part="refits")
    return summarise_refits(plan.fitted, [refits[number] for number in range(count)])


def certainty_of(result: Intervals, names: tuple[str, ...]) -> Certainty:
    """Return what a run reports of intervals; `names` are those of the columns."""
    refits = (0, 0)
    if isinstance(result, BootstrapResult):
        refits = result.n_refits, result.n_converged
    largest = np.argsort(-result.shares, kind="stable")[:_TOP_SHARES]
    return Certainty(
        refits=refits[0],
        converged=refits[1],
        distance_interval=result.distance_interval,
        standardized_interval=result.standardized_interval,
        stability=tuple(result.stability.tolist()),
        retention=tuple(result.retention.tolist()),
        separated=len(result.separated),
        shares=tuple(
            ShareInterval(
                feature=names[j],
                share=float(result.shares[j]),
                low=float(result.shares_low[j]),
                high=float(result.shares_high[j]),
            )
            for j in largest
        ),
    )
