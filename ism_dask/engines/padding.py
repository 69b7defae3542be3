"""An engine seen from a space that has directions in which the rows are constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine
from ism_dask.engines.operator import Evaluation
from ism_dask.linalg.row_space import RowSpace


class PaddedOperator:
    """Answers as an engine does, for a W that may use directions in which the rows are constant.

    Phi is 0 there, and X W does not change: so W takes such directions where all others would
    lower J, as the definition has it.

    Parameters
    ----------
    engine : Engine
    constant : int
        How many of these directions W may use, at most.
    rough : bool
        Whether `gradient` is in the precision of the rows, at half the cost.
    """

    def __init__(self, engine: Engine, constant: int, *, rough: bool = False) -> None:
        self.engine = engine
        self._gradient = engine.product if rough else engine.gradient
        whole = engine.problem.space or RowSpace(engine.problem.d)
        self.space = whole.limited(constant)
        self._pads = self.space.n_constant > 0

    def phi0(self) -> Array:
        """Return the (r + s, r + s) matrix of the start."""
        return self._square(self.engine.phi0())

    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi (r + s, r + s) at W (r + s, k)."""
        evaluation = self.engine.phi(self._varying(W))
        if not self._pads:
            return evaluation
        return replace(evaluation, matrix=self._square(evaluation.matrix))

    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi W (r + s, k) at W (r + s, k)."""
        evaluation = self._gradient(self._varying(W))
        if not self._pads:
            return evaluation
        return replace(evaluation, matrix=self._padded(evaluation.matrix))

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (r + s, k) at W (r + s, k) along Z (r + s, k)."""
        return self._padded(self.engine.curvature(self._varying(W), self._varying(Z)))

    def _varying(self, W: Array) -> Array:
        return W[: self.space.n_varying]

    def _square(self, matrix: Array) -> Array:
        return self._in_zeros(matrix, self.space.size)

    def _padded(self, rows: Array) -> Array:
        return self._in_zeros(rows, rows.shape[1])

    def _in_zeros(self, matrix: Array, columns: int) -> Array:
        if not self._pads:
            return matrix
        whole = np.zeros((self.space.size, columns))
        whole[: len(matrix), : matrix.shape[1]] = matrix
        return whole
