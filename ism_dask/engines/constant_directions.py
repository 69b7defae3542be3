"""Extend an engine to a space of W with directions in which the rows are constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine
from ism_dask.engines.operator import PhiEvaluation, ProductEvaluation
from ism_dask.linalg.null_space import RowSpace


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

    def phi0(self) -> Array:
        """Return Phi0, the (r + s, r + s) matrix of the start."""
        return self._padded(self.engine.phi0(), self.space.size)

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi (r + s, r + s) at W (r + s, k)."""
        evaluation = self.engine.phi(self._varying(W))
        return replace(evaluation, phi=self._padded(evaluation.phi, self.space.size))

    def gradient(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W (r + s, k) at W (r + s, k)."""
        evaluation = self._gradient(self._varying(W))
        return replace(evaluation, product=self._padded(evaluation.product, W.shape[1]))

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (r + s, k) at W (r + s, k) along Z (r + s, k)."""
        curvature = self.engine.curvature(self._varying(W), self._varying(Z))
        return self._padded(curvature, Z.shape[1])

    def _varying(self, W: Array) -> Array:
        return W[: self.space.n_varying]

    def _padded(self, matrix: Array, columns: int) -> Array:
        """Return a matrix with zeros below and beside it: (r + s, columns)."""
        missing = self.space.size - len(matrix), columns - matrix.shape[1]
        return np.pad(matrix, [(0, missing[0]), (0, missing[1])]) if any(missing) else matrix
