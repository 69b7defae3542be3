"""DG, dimension growth: W column by column, each climbing in the complement of those before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.paper.rival_log import Rival, RivalLog, TimeIsUpError
from benchmarks.paper.stiefel import cayley_ascent
from ism_dask._types import Array
from ism_dask.engines.base import ProductEvaluation
from ism_dask.records.iteration import Solution
from ism_dask.status import Status


@dataclass(frozen=True, kw_only=True)
class DimensionGrowth(Rival):
    """DG; `max_iter` is the largest number of steps of each column, `max_seconds` the limit."""

    ends_stationary = False

    max_iter: int = 1000

    def search(self, log: RivalLog) -> Solution:
        """Return a W that grows by one column at a time.

        It is the W that has grown and not the best one, which may be the start. Each column is
        optimal beside those before it; all together need not be stationary, and the status is then
        that of a tolerance that was met.
        """
        status, W = Status.CONVERGED, log.start[:, :0]
        try:
            for _ in range(log.start.shape[1]):
                W, converged = _with_new_column(log, W)
                status = status if converged else Status.MAX_ITER
        except TimeIsUpError:
            status = Status.OVER_CAP
        return log.ended(status, last=True, otherwise=Status.TOLERANCE)


def _with_new_column(log: RivalLog, fixed: Array) -> tuple[Array, bool]:
    """Return W (d, k + 1), `fixed` (d, k) with a new column, and whether that column converged.

    The climb uses coordinates of the orthogonal complement of `fixed`, so that rounding cannot lead
    the column back into the span of `fixed`.
    """
    log.begin_subproblem()
    complement = np.linalg.qr(fixed, mode="complete")[0][:, fixed.shape[1] :]
    first = np.linalg.svd(complement.T @ log.start, full_matrices=False)[0][:, :1]

    def whole(column: Array) -> Array:
        return np.hstack([fixed, complement @ column])

    def slope(evaluation: ProductEvaluation) -> Array:
        return np.asarray(complement.T @ evaluation.product[:, -1:])

    now = log.evaluate(whole(first))
    if log.may_end_at(slope(now), first):
        log.note(whole(first), now)
        return whole(first), True
    climb = cayley_ascent(lambda column: log.evaluate(whole(column)), slope, first, now)
    for steps, (column, evaluation) in enumerate(climb, start=1):
        log.note(whole(column), evaluation)
        converged = log.may_end_at(slope(evaluation), column)
        if converged or steps >= log.max_iter:
            return whole(column), converged
    raise RuntimeError("a climb has no end of its own")
