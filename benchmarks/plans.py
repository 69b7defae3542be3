"""What the library says a worker will hold, before the first tile of a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from distributed import Client

from ism_dask._types import Array
from ism_dask.engines.lowrank.base import EvaluationAtW, LowRankEngine, worker_bytes


@contextmanager
def recorded_plans(client: Client) -> Iterator[list[int]]:
    """Yield a list to which every fit in the block adds what a worker takes, as planned.

    The one place that knows how the library tells its plan: with how many columns the factor
    has, an engine knows what a worker will take. What Python and the libraries take, which is
    there before, is not part of it.
    """
    plans: list[int] = []
    held = client.scheduler_info(n_workers=-1)["workers"].values()
    workers, threads = len(held), max(worker["nthreads"] for worker in held)
    expanded = LowRankEngine._at

    def recorded(self: LowRankEngine, W: Array) -> EvaluationAtW:
        at = expanded(self, W)
        m = at.expansion.size
        plans.append(worker_bytes(self.problem, self.q, m, workers=workers, threads=threads))
        return at

    with patch.object(LowRankEngine, "_at", recorded):
        yield plans
