"""Extend an engine to a space of W with directions in which the rows are constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine
from ism_dask.engines.operator import PhiEvaluation, ProductEvaluation
from ism_dask.linalg.row_space import RowSpace


class PaddedOperator:
    """Evaluates an engine for a W that may use directions in which the rows are constant.

    In these directions Phi is 0 and X W does not change. By the definition W uses them if every
    other direction would lower J.

    Parameters
    ----------
    engine : Engine
    constant : int
        The largest number of these directions that W may use.
    rough : bool
        Whether `gradient` is computed in the precision of the rows, at half the cost.
    """

    def __init__(self, engine: Engine, constant: int, *, rough: bool = False) -> None:
        self.engine = engine
        self._gradient = engine.product if rough else engine.gradient
        space = engine.problem.space or RowSpace(engine.problem.d)
        self.space = space.limited(constant)
        self._pads = self.space.n_constant > 0

    def phi0(self) -> Array:
        """Return Phi0, the (r + s, r + s) matrix of the start."""
        return self._pad_both_sides(self.engine.phi0())

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi (r + s, r + s) at W (r + s, k)."""
        evaluation = self.engine.phi(self._varying(W))
        if not self._pads:
            return evaluation
        return replace(evaluation, phi=self._pad_both_sides(evaluation.phi))

    def gradient(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W (r + s, k) at W (r + s, k)."""
        evaluation = self._gradient(self._varying(W))
        if not self._pads:
            return evaluation
        return replace(evaluation, product=self._pad_rows(evaluation.product))

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (r + s, k) at W (r + s, k) along Z (r + s, k)."""
        return self._pad_rows(self.engine.curvature(self._varying(W), self._varying(Z)))

    def _varying(self, W: Array) -> Array:
        return W[: self.space.n_varying]

    def _pad_both_sides(self, matrix: Array) -> Array:
        return self._pad(matrix, self.space.size)

    def _pad_rows(self, rows: Array) -> Array:
        return self._pad(rows, rows.shape[1])

    def _pad(self, matrix: Array, columns: int) -> Array:
        if not self._pads:
            return matrix
        padded = np.zeros((self.space.size, columns))
        padded[: len(matrix), : matrix.shape[1]] = matrix
        return padded
