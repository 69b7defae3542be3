"""The objective of an unfolding as a function of coordinates, and climbs to its local maxima."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ism_dask._types import Array
from ism_dask.unfolding.neighbour_graph import NeighbourGraph
from ism_dask.unfolding.program import Scales
from ism_dask.unfolding.side_information import SideKernel

# Coordinates are stationary if no change of theirs by a share of their size changes F, to first
# order, by more than this part of that share of its terms.
STATIONARY = 1e-4
# The pairs of steps and gradients that L-BFGS remembers.
_MEMORY = 20


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

    def beside(self, Y: Array) -> CoordinateObjective:
        """Return F as a function of further coordinates, where Y (n, q) stay; less a constant."""
        left_over = -self._errors(self._apart(Y))
        return replace(self, graph=replace(self.graph, squared=left_over))

    def _apart(self, Y: Array) -> list[Array]:
        """Return the difference (e,) of each coordinate along each edge."""
        # One coordinate at a time: contiguous columns halve the time.
        return [self.graph.along(y) for y in np.ascontiguousarray(Y.T)]

    def _errors(self, apart: list[Array]) -> Array:
        """Return by how much the squared length (e,) of each edge is too large."""
        return sum(each**2 for each in apart) - self.graph.squared


@dataclass(frozen=True, eq=False)
class Ascent:
    """Coordinates at the end of a climb.

    Attributes
    ----------
    Y : (n, q) array
    stationary : bool
        Whether no small change of Y changes F much.
    n_iter : int
    """

    Y: Array
    stationary: bool
    n_iter: int


def climb(
    objective: CoordinateObjective, Y: Array, max_iter: int, stationary: float = STATIONARY
) -> Ascent:
    """Climb from coordinates Y (n, q) by L-BFGS until they are stationary, or for so many steps."""
    size, slope = float(np.linalg.norm(Y)), np.inf

    def negative(flat: Array) -> tuple[float, Array]:
        nonlocal slope
        here = objective.at(size * flat.reshape(Y.shape))
        slope = size * float(np.linalg.norm(here.gradient) * np.linalg.norm(flat)) / here.size
        return -here.value, -size * here.gradient.ravel()

    def stop_if_stationary(_: Array) -> None:
        # L-BFGS calls this after each step, whose end it evaluated last.
        if slope <= stationary:
            raise StopIteration

    # The rules of L-BFGS for stopping do not know the scale of F.
    limits = {"maxiter": max_iter, "maxfun": 10 * max_iter, "gtol": 0.0, "ftol": 0.0}
    options: dict[str, Any] = {
        "method": "L-BFGS-B",
        "callback": stop_if_stationary,
        "options": {"maxcor": _MEMORY, **limits},
    }
    result = minimize(negative, Y.ravel() / size, jac=True, **options)
    negative(result.x)
    return Ascent(size * result.x.reshape(Y.shape), slope <= stationary, int(result.nit))
