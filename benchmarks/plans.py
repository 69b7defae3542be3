"""Record the memory that the library plans for a worker, before the first tile of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from distributed import Client

from ism_dask._types import Array
from ism_dask.engines import Problem
from ism_dask.engines.lowrank.landmark_engine import (
    EvaluationAtW,
    LandmarkEngine,
    partial_bytes,
    task_bytes,
)
from ism_dask.rows.tasks import FAN

# The most bytes of the facts of a row that Gamma needs, its class or its numbers.
_FACT_BYTES = 64


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
    evaluate = LandmarkEngine._at

    def recorded(self: LandmarkEngine, W: Array) -> EvaluationAtW:
        evaluation = evaluate(self, W)
        columns = evaluation.expansion.size
        plans.append(_worker_bytes(self.problem, self.q, columns, workers, threads))
        return evaluation

    with patch.object(LandmarkEngine, "_at", recorded):
        yield plans


def _worker_bytes(problem: Problem, q: int, m: int, workers: int, threads: int) -> int:
    """Return the peak memory of each worker, in bytes, for a fit with m columns in F.

    Beside its tasks a worker stores its share of the projected rows, a few numbers each, and
    partial sums that wait to be added: some for each level of the tree.
    """
    shards = problem.shards
    stored = shards.n_rows * (shards.dtype.itemsize * q + _FACT_BYTES) // workers
    levels = math.ceil(math.log(max(2, len(shards.runs)), FAN))
    waiting = (FAN - 1) * levels * partial_bytes(problem, m)
    return threads * task_bytes(problem, m) + stored + waiting
