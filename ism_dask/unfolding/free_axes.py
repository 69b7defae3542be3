"""Axes of coordinates that hold next to nothing: used where the objective rises, or set to 0."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.eigen import canonical_signs
from ism_dask.unfolding.ascent import Ascent, CoordinateObjective, climb
from ism_dask.unfolding.neighbour_graph import NeighbourGraph

# An axis is free if its coordinates are at most this share of the first ones.
_FREE = 1e-2
# F stays as it is if it changes by a smaller share of its terms.
_CHANGE = 1e-6
# The most steps of a climb that uses an axis, and where it ends: small axes have small slopes.
_STEPS, _STATIONARY = 300, 1e-7
# How often the start of a climb is averaged over neighbours, which makes it smooth.
_AVERAGES = 50


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
    degrees = graph.degrees
    for _ in range(_AVERAGES):
        smoother = noise - graph.sums_at_nodes(graph.along(noise)) / (2.0 * degrees)
        if np.linalg.norm(graph.along(smoother)) < least:
            break
        noise = smoother
    return noise / np.linalg.norm(graph.along(noise))
