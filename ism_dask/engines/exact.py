"""Every kernel and every Gamma, by tiles of the upper triangle: the definition itself, at scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ism_dask.engines.base import Engine, Problem
from ism_dask.engines.closed import Closed, weighted_gram
from ism_dask.engines.tiles import (
    Model,
    gradient_stripe,
    objective_stripe,
    phi_stripe,
    stripe_bytes,
)
from ism_dask.shards import Piece, Shards, task_budget
from ism_dask.solver import Evaluation
from ism_dask.typing import Array

# Columns of W that the memory plan allows for before W is known.
_PLANNED_COLUMNS = 64


class Exact(Engine):
    """O(n^2 (q + r + d)) time, O(tile) memory, exact up to rounding."""

    name = "exact"
    error = 0.0

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._model = Model(problem.kernel, problem.gamma, problem.shards.n_rows)
        self._group = _tail_group(problem)

    @classmethod
    def refusal(cls, problem: Problem) -> str | None:
        """Refuse nothing."""
        return None

    def phi0(self) -> Array:
        """Return the matrix of the start: closed where Gamma has factors, else by tiles."""
        flat = self.problem.flat()
        engine = Exact(flat) if Closed.refusal(flat) else Closed(flat)
        return engine.phi(np.zeros((self.problem.d, 1))).matrix

    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi at W: one pass over the tiles, one over the rows for the degrees."""
        cross, degrees, objective = self._fold(self._points(W), phi_stripe)
        matrix = cross + cross.T
        if degrees.any():
            matrix += self.problem.shards.with_rows(degrees).fold(_degree_gram)
        return Evaluation(objective, 0.5 * (matrix + matrix.T))

    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi W: as `phi`, with k columns where that has d."""
        points = self._points(W).settled()
        moved, degrees, objective = self._fold(points, gradient_stripe)
        rows = np.column_stack([moved, degrees])
        return Evaluation(objective, points.with_rows(rows).fold(_lifted))

    def objective(self, W: Array) -> float:
        """Return J at W."""
        return float(self._fold(self._points(W), objective_stripe)[2])

    def _points(self, W: Array) -> Shards:
        return self.problem.shards.derive(_projected, W)

    def _fold(self, points: Shards, stripe: Callable[..., Any]) -> Any:
        return points.fold_pairs(stripe, self._model, group=self._group)


def _tail_group(problem: Problem) -> int | None:
    """Return how many shards a task may be handed at once; refuse what cannot fit."""
    shards = problem.shards
    needed = stripe_bytes(
        shards.largest, problem.d, _PLANNED_COLUMNS, shards.n_rows, shards.dtype.itemsize
    )
    budget = task_budget()
    handed = shards.largest * shards.n_raw_columns * shards.raw_itemsize if shards.resident else 0
    if needed + 2 * handed > budget:
        raise MemoryError(
            f"a tile task of {shards.largest} rows x {problem.d} columns needs "
            f"{(needed + 2 * handed) / 2**20:.0f} MiB, but a task may take {budget / 2**20:.0f} "
            "MiB here; give the workers more memory or fewer threads, or X fewer columns"
        )
    return None if not handed else max(1, (budget - needed) // handed - 1)


def _projected(piece: Piece, W: Array) -> Array:
    return np.matmul(piece.X, W.astype(piece.X.dtype))


def _degree_gram(piece: Piece) -> Array:
    return weighted_gram(piece.X, piece.facts[-1])


def _lifted(piece: Piece) -> Array:
    Z, rows = piece.facts[-2:]
    inner = rows[:, :-1] + rows[:, -1:] * Z
    product = np.matmul(piece.X.T, inner.astype(piece.X.dtype))
    return product.astype(np.float64)
