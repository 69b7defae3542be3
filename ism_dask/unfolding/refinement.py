"""Local refinement of coordinates: the objective of an unfolding without the limits of a basis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ism_dask._types import Array
from ism_dask.unfolding.neighbour_graph import NeighbourGraph
from ism_dask.unfolding.normal_equations import Scales
from ism_dask.unfolding.side_information import SideKernel
from ism_dask.unfolding.stages import REFINEMENT, stage_store

# Coordinates are stationary if no change of theirs by a share of their size changes F, to first
# order, by more than this part of that share.
STATIONARY = 1e-4
# The pairs of steps and gradients that L-BFGS remembers.
_MEMORY = 20
# The steps after which it forgets them.
_STEPS_TO_A_RESTART = 500


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

    def value_and_gradient(self, Y: Array) -> tuple[float, Array]:
        """Return F and its gradient (n, q)."""
        graph, scales, pulled = self.graph, self.scales, self.side.times(Y)
        # One coordinate at a time: contiguous columns halve the time.
        apart = [y[graph.heads] - y[graph.tails] for y in np.ascontiguousarray(Y.T)]
        errors = sum(column**2 for column in apart) - graph.squared
        value = float(np.vdot(Y, pulled)) / scales.gain - scales.penalty * float(errors @ errors)
        pushed = np.column_stack([graph.sums_at_nodes(errors * column) for column in apart])
        return value, (2.0 / scales.gain) * pulled - (4.0 * scales.penalty) * pushed


@dataclass(frozen=True, eq=False)
class Refined:
    """Coordinates after refinement.

    Attributes
    ----------
    Y : (n, q) array
    value : float
        F at Y.
    slope : float
        The norm of the gradient times that of Y: by how much F changes at most, to first order, if
        Y changes by its own size.
    n_iter : int
    """

    Y: Array
    value: float
    slope: float
    n_iter: int

    @property
    def stationary(self) -> bool:
        """Whether no small change of Y changes F much."""
        return self.slope <= STATIONARY


def refine(objective: CoordinateObjective, Y: Array, max_iter: int) -> Refined:
    """Climb from coordinates Y (n, q) to a local maximum of F by L-BFGS.

    It forgets its steps and gradients each 500 steps, whether or not they are saved: from there,
    another process comes to the same bits. That costs no more than a few steps in a hundred.
    """
    store, n_iter = stage_store(), 0
    if saved := store.find(REFINEMENT):
        Y, n_iter = saved["Y"], int(saved["n_iter"])
    while True:
        limit = min(_STEPS_TO_A_RESTART, max_iter - n_iter)
        climbed = _climb(objective, Y, limit)
        Y, n_iter = climbed.Y, n_iter + climbed.n_iter
        if climbed.stationary or climbed.n_iter < limit or n_iter == max_iter:
            return replace(climbed, n_iter=n_iter)
        store.save(REFINEMENT, {"Y": Y, "n_iter": n_iter})


def _climb(objective: CoordinateObjective, Y: Array, max_iter: int) -> Refined:
    """Climb from coordinates Y (n, q) until they are stationary, or for so many steps."""
    size, slope = float(np.linalg.norm(Y)), np.inf

    def negative(flat: Array) -> tuple[float, Array]:
        nonlocal slope
        value, gradient = objective.value_and_gradient(size * flat.reshape(Y.shape))
        slope = size * float(np.linalg.norm(gradient) * np.linalg.norm(flat))
        return -value, -size * gradient.ravel()

    def stop_if_stationary(_: Array) -> None:
        # L-BFGS calls this after each step, whose end it evaluated last.
        if slope <= STATIONARY:
            raise StopIteration

    # The rules of L-BFGS for stopping do not know the scale of F.
    limits = {"maxiter": max_iter, "maxfun": 10 * max_iter, "gtol": 0.0, "ftol": 0.0}
    options: dict[str, Any] = {
        "method": "L-BFGS-B",
        "callback": stop_if_stationary,
        "options": {"maxcor": _MEMORY, **limits},
    }
    result = minimize(negative, Y.ravel() / size, jac=True, **options)
    value = -negative(result.x)[0]
    return Refined(size * result.x.reshape(Y.shape), value, slope, int(result.nit))
