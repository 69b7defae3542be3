"""The objective of an unfolding as a function of coordinates, with its derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator

from ism_dask._types import Array
from ism_dask.unfolding.neighbour_graph import NeighbourGraph
from ism_dask.unfolding.normal_equations import Scales
from ism_dask.unfolding.side_information import SideKernel


@dataclass(frozen=True, eq=False)
class Evaluation:
    """F at coordinates Y (n, q).

    Attributes
    ----------
    reward, loss : float
        The terms of F, none of them negative: `tr(K L) / gain` and the errors of the distances.
    gradient : (n, q) array
    """

    reward: float
    loss: float
    gradient: Array

    @property
    def value(self) -> float:
        """F."""
        return self.reward - self.loss

    @property
    def size(self) -> float:
        """The sum of both terms, in whose share changes of F are measured."""
        return self.reward + self.loss


@dataclass(frozen=True, eq=False)
class CoordinateObjective:
    """F of K = Y Y^T, for coordinates Y (n, q) of the nodes of a graph.

    The sums over edges stay in this process: a step takes some 35 ns for each edge, less than it
    takes to send the coordinates to workers and their gradients back.

    Attributes
    ----------
    graph : NeighbourGraph
    side : SideKernel
    scales : Scales
    """

    graph: NeighbourGraph
    side: SideKernel
    scales: Scales

    def at(self, Y: Array) -> Evaluation:
        """Return F and its gradient at Y (n, q)."""
        scales, pulled, apart = self.scales, self.side.times(Y), self._apart(Y)
        errors = self._errors(apart)
        pushed = np.column_stack([self.graph.sums_at_nodes(errors * each) for each in apart])
        return Evaluation(
            reward=float(np.vdot(Y, pulled)) / scales.gain,
            loss=scales.penalty * float(errors @ errors),
            gradient=(2.0 / scales.gain) * pulled - (4.0 * scales.penalty) * pushed,
        )

    def gradient_in_kernel(self, Y: Array) -> LinearOperator:
        """Return the gradient (n, n) of F in K, at K = Y Y^T, as products with vectors."""
        graph, scales, n = self.graph, self.scales, len(Y)
        errors = self._errors(self._apart(Y))

        def product(z: Array) -> Array:
            (apart,) = self._apart(z.reshape(n, 1))
            pulled = self.side.times(z.reshape(n, 1))[:, 0] / scales.gain
            return pulled - 2.0 * scales.penalty * graph.sums_at_nodes(errors * apart)

        return LinearOperator((n, n), matvec=product, dtype=np.float64)

    def best_length(self, axis: Array, slope: float) -> float:
        """Return the t for which F is largest at `K + t^2 a a^T`.

        At 0, F rises by `slope` with t^2. The axis a (n,) must not be constant.
        """
        (apart,) = self._apart(axis[:, None])
        return float(np.sqrt(slope / (2.0 * self.scales.penalty * np.sum(apart**4))))

    def _apart(self, Y: Array) -> list[Array]:
        """Return the difference (e,) of each coordinate along each edge."""
        graph = self.graph
        # One coordinate at a time: contiguous columns halve the time.
        return [y[graph.heads] - y[graph.tails] for y in np.ascontiguousarray(Y.T)]

    def _errors(self, apart: list[Array]) -> Array:
        """Return by how much the squared length (e,) of each edge is too large."""
        return sum(each**2 for each in apart) - self.graph.squared
