"""Record the memory that the library plans for a worker, before the first tile of a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from distributed import Client

from ism_dask._types import Array
from ism_dask.engines.lowrank.base import EvaluationAtW, LowRankEngine, worker_bytes


@contextmanager
def recorded_plans(client: Client) -> Iterator[list[int]]:
    """Yield a list to which every fit in the block adds the bytes it plans for a worker.

    This is the one place that knows how the library plans: an engine computes the bytes of a
    worker once it knows the number of columns of the low-rank factor. The memory of Python and
    the libraries, taken before the fit, is not part of the plan.
    """
    plans: list[int] = []
    worker_infos = client.scheduler_info(n_workers=-1)["workers"].values()
    workers, threads = len(worker_infos), max(worker["nthreads"] for worker in worker_infos)
    evaluate = LowRankEngine._at

    def recorded(self: LowRankEngine, W: Array) -> EvaluationAtW:
        evaluation = evaluate(self, W)
        columns = evaluation.expansion.size
        plans.append(worker_bytes(self.problem, self.q, columns, workers=workers, threads=threads))
        return evaluation

    with patch.object(LowRankEngine, "_at", recorded):
        yield plans
