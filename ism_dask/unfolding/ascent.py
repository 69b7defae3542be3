"""The objective of an unfolding as a function of coordinates, and climbs to its local maxima.

Axes of coordinates that hold next to nothing are used where the objective rises, or set to 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ism_dask._types import Array
from ism_dask.linalg.eigen import canonical_signs
from ism_dask.unfolding.neighbour_graph import NeighbourGraph
from ism_dask.unfolding.program import Scales
from ism_dask.unfolding.side_information import SideKernel

# Coordinates are stationary if no change of theirs by a share of their size changes F, to first
# order, by more than this part of that share of its terms.
STATIONARY = 1e-4
# The pairs of steps and gradients that L-BFGS remembers.
_MEMORY = 20
# An axis is free if its coordinates are at most this share of the first ones.
_FREE = 1e-2
# F stays as it is if it changes by a smaller share of its terms.
_CHANGE = 1e-6
# The most steps of a climb that uses an axis, and where it ends: small axes have small slopes.
_STEPS, _STATIONARY = 300, 1e-7
# How often the start of a climb is averaged over neighbours, which makes it smooth.
_AVERAGES = 50


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


def along_principal_axes(Y: Array, counts: Array | None = None) -> Array:
    """Return coordinates (n, q), centred and rotated so that their variances decrease.

    Each row counts as often as `counts` (n,) says, or once.
    """
    centred = Y - np.average(Y, axis=0, weights=counts)
    weighted = centred if counts is None else counts[:, None] * centred
    axes = np.linalg.svd(weighted.T @ centred)[0]
    return canonical_signs(centred @ axes)


def with_free_axes_used(objective: CoordinateObjective, start: Ascent, limit: int) -> Ascent:
    """Return the coordinates (n, q) of a climb with free axes used so that F rises, or unchanged.

    Where the coordinates of an axis are 0, their gradient is 0 as well, so that no ascent along it
    comes to use the axis. So another climb looks for coordinates on one axis beside the others. If
    these are stationary, all move together from there: they may hold each other back. All climbs
    together take at most `limit` steps. The result is stationary if no free axis was of use.
    """
    placed, found, n_iter = along_principal_axes(start.Y), start.Y, 0
    here = objective.at(placed)
    while len(_free(placed)) and n_iter < limit:
        raised = placed.copy()
        raised[:, -1] = 0.0
        beside = _beside(objective, raised, min(_STEPS, limit - n_iter))
        raised[:, -1], n_iter = beside.Y[:, 0], n_iter + beside.n_iter
        if start.stationary and n_iter < limit:
            together = climb(objective, raised, min(_STEPS, limit - n_iter), _STATIONARY)
            raised, n_iter = together.Y, n_iter + together.n_iter
        raised = along_principal_axes(raised)
        there = objective.at(raised)
        if there.value <= here.value + _CHANGE * here.size:
            break
        placed, here, found = raised, there, raised
    ended = n_iter < limit or not len(_free(placed))
    return Ascent(found, start.stationary and found is start.Y and ended, n_iter)


def without_free_axes(objective: CoordinateObjective, Y: Array) -> Array:
    """Return coordinates (n, q) with free axes at 0 that do not matter to F, or Y itself."""
    placed = along_principal_axes(Y)
    here, bare = objective.at(placed), Y
    for axis in _free(placed)[::-1]:
        without = placed.copy()
        without[:, axis] = 0.0
        if objective.at(without).value < here.value - _CHANGE * here.size:
            break
        if placed[:, axis].any():
            bare = without
        placed = without
    return bare


def _free(Y: Array) -> Array:
    """Return the numbers of the free axes among the principal axes of Y (n, q)."""
    lengths = np.linalg.norm(Y, axis=0)
    return np.flatnonzero(lengths <= _FREE * lengths[0])


def _beside(objective: CoordinateObjective, Y: Array, limit: int) -> Ascent:
    """Climb to coordinates (n, 1) on one more axis, where those of Y (n, q) stay."""
    alone, graph = objective.beside(Y), objective.graph
    errors = max(np.abs(alone.graph.squared).sum(), _CHANGE * graph.squared.sum())
    start = np.sqrt(_FREE * errors) * _smooth_noise(graph)
    return climb(alone, start[:, None], limit, _STATIONARY)


def _smooth_noise(graph: NeighbourGraph) -> Array:
    """Return random coordinates (n,) that vary little along edges, of squared lengths of sum 1."""
    noise = np.random.default_rng(0).normal(size=graph.n_rows)
    least = _CHANGE * float(np.linalg.norm(graph.along(noise)))
    degrees = graph.laplacian.diagonal()
    for _ in range(_AVERAGES):
        smoother = noise - graph.sums_at_nodes(graph.along(noise)) / (2.0 * degrees)
        if np.linalg.norm(graph.along(smoother)) < least:
            break
        noise = smoother
    return noise / np.linalg.norm(graph.along(noise))
