"""The refinement of an unfolding: climbs of its objective as a function of the coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ism_dask._types import Array
from ism_dask.linalg.subspaces import canonical_signs
from ism_dask.unfolding.neighbour_graph import NeighbourGraph
from ism_dask.unfolding.program import Scales, SideKernel

# Coordinates are stationary if no change of theirs by a share of their size changes F, to first
# order, by more than this part of that share of its terms.
_STATIONARY = 1e-4
# The pairs of steps and gradients that L-BFGS remembers.
_MEMORY = 20
# Coordinates on an axis that are at most this share of the first ones are set to 0.
_NEGLIGIBLE = 1e-2


@dataclass(frozen=True, eq=False)
class CoordinateObjective:
    """F of K = Y Y^T, for coordinates Y (n, q) of the nodes of a graph.

    Its sums over edges take some 35 ns for each edge, less than it would take to send coordinates
    to workers and gradients back.
    """

    graph: NeighbourGraph
    side: SideKernel
    scales: Scales

    def with_gradient(self, Y: Array) -> tuple[float, float, Array]:
        """Return F at Y (n, q), its size, which is the sum of both terms, and its gradient."""
        # One coordinate at a time: contiguous columns halve the time.
        apart = [self.graph.along(y) for y in np.ascontiguousarray(Y.T)]
        errors = sum(each**2 for each in apart) - self.graph.squared
        pushed = np.column_stack([self.graph.sums_at_nodes(errors * each) for each in apart])
        scales, pulled = self.scales, self.side.times(Y)
        gain = float(np.vdot(Y, pulled)) / scales.gain
        loss = scales.penalty * float(errors @ errors)
        gradient = (2.0 / scales.gain) * pulled - (4.0 * scales.penalty) * pushed
        return gain - loss, gain + loss, gradient


def refine(F: CoordinateObjective, Y: Array, max_iter: int) -> tuple[Array, bool, int]:
    """Climb from coordinates Y (n, q) to a local maximum of F by L-BFGS.

    Return the coordinates, whether no small change of them changes F much, and the number of steps.

    Where the coordinates of an axis are 0, their gradient is 0 as well, so that no climb comes to
    use the axis: negligible axes are left out so. Without any steps, coordinates count as
    stationary.
    """
    if max_iter == 0:
        return Y, True, 0
    lengths = np.linalg.norm(Y, axis=0)
    Y = np.where(lengths > _NEGLIGIBLE * lengths[0], Y, 0.0)
    size, slope = float(np.linalg.norm(Y)), np.inf

    def negative(flat: Array) -> tuple[float, Array]:
        nonlocal slope
        value, terms, gradient = F.with_gradient(size * flat.reshape(Y.shape))
        slope = size * float(np.linalg.norm(gradient) * np.linalg.norm(flat)) / terms
        return -value, -size * gradient.ravel()

    def stop_if_stationary(_: Array) -> None:
        # L-BFGS calls this after each step, whose end it evaluated last.
        if slope <= _STATIONARY:
            raise StopIteration

    # The rules of L-BFGS for stopping do not know the scale of F.
    limits = {"maxiter": max_iter, "maxfun": 10 * max_iter, "gtol": 0.0, "ftol": 0.0}
    options: dict[str, Any] = {"method": "L-BFGS-B", "options": {"maxcor": _MEMORY, **limits}}
    options["callback"] = stop_if_stationary
    result = minimize(negative, Y.ravel() / size, jac=True, **options)
    negative(result.x)
    return size * result.x.reshape(Y.shape), slope <= _STATIONARY, int(result.nit)


def along_principal_axes(Y: Array, counts: Array) -> Array:
    """Return coordinates (n, q), centred and rotated so that their variances decrease.

    Each row counts as often as `counts` (n,) says.
    """
    centred = Y - np.average(Y, axis=0, weights=counts)
    axes = np.linalg.svd((counts[:, None] * centred).T @ centred)[0]
    return canonical_signs(centred @ axes)
