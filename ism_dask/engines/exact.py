"""The engine for every kernel and every Gamma: it computes the definition tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine, Evaluation, PhiEvaluation, Problem, ProductEvaluation
from ism_dask.engines.closed_form import ClosedFormEngine, weighted_gram
from ism_dask.engines.tile_sums import (
    gradient_of_pairs,
    objective_of_pairs,
    phi_of_pairs,
    stripe_bytes,
)
from ism_dask.engines.tiles import PROJECTED, TileModel, ignore_overflow, with_projection
from ism_dask.rows.raw import LoadedShard, RowFact
from ism_dask.rows.shards import Shards

# The degrees (b,), and `(coupling Psi) Z` with the degrees beside it (b, k + 1).
_DEGREES, _PAIR_SUMS = RowFact("degrees"), RowFact("pair sums")


class ExactEngine(Engine):
    """O(n^2 (q + r + d)) time, O(tile) memory, exact up to rounding."""

    name = "exact"

    def __init__(self, problem: Problem, q: int) -> None:
        super().__init__(problem, q)
        self._model = TileModel(problem.kernel, problem.gamma, problem.shards.n_rows)

    def phi0(self) -> Array:
        """Return Phi0, the matrix of the start, by its closed form unless rows have own widths."""
        linearised = self.problem.linearised()
        if ClosedFormEngine.refusal(linearised) is None:
            return ClosedFormEngine(linearised, self.q).phi0()
        return ExactEngine(linearised, self.q).phi(np.zeros((linearised.d, 1))).phi

    @ignore_overflow
    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W: one pass over the tiles, one over the rows for the degrees."""
        # Each call ends with a d x b x d product, a twelfth of the work, so one call per head.
        points = with_projection(self.problem.shards, W)
        if len(points.parts) == 1:  # one task: a second one would take a cluster longer than both
            matrix, objective = self._fold(points, _phi_of_all_pairs, W)
            return PhiEvaluation(objective, matrix, **self._accuracy(objective))
        cross, degrees, objective = self._fold(points, phi_of_pairs, W, calls=1)
        matrix = cross + cross.T
        if degrees.any():
            matrix += self.problem.shards.with_rows(_DEGREES, degrees).fold(_phi_of_degrees)
        return PhiEvaluation(objective, matrix, **self._accuracy(objective))

    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W: like `phi`, but with k columns, not d, and tiles without X."""
        points = with_projection(self.problem.shards, W)
        if len(points.parts) == 1:
            product, objective = self._fold(points, _product_of_all_pairs, W)
            return ProductEvaluation(objective, product, **self._accuracy(objective))
        points = points.persisted()
        projected = points.fact_as_rows(PROJECTED, W.shape[1])
        moved, degrees, objective = self._fold(projected, gradient_of_pairs, W)
        sums = np.column_stack([moved, degrees])
        product = points.with_rows(_PAIR_SUMS, sums).fold(_gradient_from_pair_sums)
        return ProductEvaluation(objective, product, **self._accuracy(objective))

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        points = with_projection(self.problem.shards, W).persisted()
        objective = self._fold(points.fact_as_rows(PROJECTED, W.shape[1]), objective_of_pairs, W)
        return Evaluation(objective, **self._accuracy(objective))

    def _fold(self, points: Shards, stripe: Callable[..., Any], W: Array, calls: int = 4) -> Any:
        (k, d), n = (W.shape[1], points.n_columns), points.n_rows
        tiles = stripe_bytes(points.largest, self._model, d, k, points.dtype.itemsize)
        raw = points.raw_bytes * (1 + min(points.max_shards_per_task or 1, len(points.parts)))
        self._check_memory(d + k, tiles + raw, f"{points.largest} of {n} rows x {d} columns")
        return points.fold_pairs(stripe, self._model, calls=calls)


def _phi_of_all_pairs(
    head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel
) -> tuple[Array, float]:
    """Return Phi (d, d) and J of the only shard."""
    cross, degrees, objective = phi_of_pairs(head, tail, model)
    matrix = cross + cross.T
    return matrix + weighted_gram(head.X, degrees) if degrees.any() else matrix, objective


def _product_of_all_pairs(
    head: LoadedShard, _tail: Iterator[LoadedShard], model: TileModel
) -> tuple[Array, float]:
    """Return Phi W (d, k) and J of the only shard."""
    projected = LoadedShard(head.start, head.facts[PROJECTED], head.facts)
    moved, degrees, objective = gradient_of_pairs(projected, iter([projected]), model)
    facts = {**head.facts, _PAIR_SUMS: np.column_stack([moved, degrees])}
    return _gradient_from_pair_sums(LoadedShard(head.start, head.X, facts)), objective


def _phi_of_degrees(piece: LoadedShard) -> Array:
    return weighted_gram(piece.X, piece.facts[_DEGREES])


@ignore_overflow
def _gradient_from_pair_sums(piece: LoadedShard) -> Array:
    sums = piece.facts[_PAIR_SUMS]
    inner = sums[:, :-1] + sums[:, -1:] * piece.facts[PROJECTED]
    product = piece.X.T @ inner.astype(piece.X.dtype)
    return np.asarray(product, dtype=np.float64)
