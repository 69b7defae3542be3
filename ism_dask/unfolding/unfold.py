"""Colored maximum variance unfolding of rows, from their neighbours to refined coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.records.partial_results import result_store, run_or_restore
from ism_dask.unfolding.ascent import (
    Ascent,
    CoordinateObjective,
    climb,
    with_free_axes_used,
    without_free_axes,
)
from ism_dask.unfolding.laplacian import SmoothBasis, smooth_basis
from ism_dask.unfolding.neighbour_graph import NeighbourGraph
from ism_dask.unfolding.program import GAP, EdgeSums, Scales, solve
from ism_dask.unfolding.side_information import SideKernel

# The stages of an unfolding, whose results are saved.
NEIGHBOURS, EIGENVECTORS = "neighbours", "eigenvectors"
PROGRAM, REFINEMENT = "program", "refinement"
# The gap of the programs that give the scales, which need not be exact.
_SCALE_GAP = 1e-6
# Eigenvectors of the Laplacian are exact enough if their residuals are below this share.
_RESIDUAL = 1e-6
# Eigenvalues of K that are a smaller share of the largest are 0.
_ROUNDING = 1e-12
# The steps after which L-BFGS forgets the last ones.
_STEPS_TO_A_RESTART = 500


@dataclass(frozen=True, eq=False)
class SolvedProgram(Scales):
    """The solution of the program for K = V A V^T, with the scales of F.

    Attributes
    ----------
    A : (m, m) array
    objective : float
        F at K.
    gap : float
        A bound on how much larger the maximum is, as a share of what F gains over A = 0.
    """

    A: Array
    objective: float
    gap: float


@dataclass(frozen=True, eq=False)
class Unfolding:
    """Coordinates of the nodes of a graph, and how they were found.

    Attributes
    ----------
    eigenvalues : (m,) array
        Those of K = V A V^T, in decreasing order.
    program : SolvedProgram
    exact : bool
        Whether the eigenvectors are exact, and the gap proves the solution for A.
    arbitrary : bool
        Whether rounding chose among eigenvectors of the Laplacian.
    value : float
        F at K = Y Y^T, with Y the coordinates.
    refined : Ascent
        The coordinates, which are stationary or unrefined.
    """

    eigenvalues: Array
    program: SolvedProgram
    exact: bool
    arbitrary: bool
    value: float
    refined: Ascent


def unfold(
    graph: NeighbourGraph, side: SideKernel, *, q: int, m: int, nu: float, max_iter: int, seed: int
) -> Unfolding:
    """Return the unfolding of a graph into q coordinates, with m eigenvectors of its Laplacian.

    There are more or fewer where m would cut a multiple eigenvalue. With `max_iter` 0, the
    coordinates are the leading eigenvectors of K.
    """
    basis = SmoothBasis(
        **run_or_restore(EIGENVECTORS, lambda: vars(smooth_basis(graph, m, least=q, seed=seed)))
    )
    program = SolvedProgram(
        **run_or_restore(PROGRAM, lambda: vars(_solved(graph, basis, side, nu)))
    )
    eigenvalues, coordinates = _leading(basis, program.A, q)
    objective = CoordinateObjective(graph, side, program)
    refined = refine(objective, coordinates, max_iter)
    return Unfolding(
        eigenvalues=eigenvalues,
        program=program,
        exact=program.gap <= GAP and basis.residual <= _RESIDUAL,
        arbitrary=basis.arbitrary,
        value=objective.at(refined.Y).value,
        refined=refined,
    )


def _solved(
    graph: NeighbourGraph, basis: SmoothBasis, side: SideKernel, nu: float
) -> SolvedProgram:
    sums = EdgeSums.of(graph, basis, side)
    scales = _scales(sums, nu)
    solution = solve(sums.program(scales))
    return SolvedProgram(
        **vars(scales),
        A=sums.matrix(solution.B),
        objective=solution.value - scales.penalty * sums.sum_of_fourth,
        gap=solution.gap,
    )


def _scales(sums: EdgeSums, nu: float) -> Scales:
    """Return scales by which the two terms weigh alike at nu = 1.

    The squared errors of the distances are divided by what the best K with this basis explains of
    them, tr(K L) by the most that a K with this basis comes to that has as large distances as that.
    For a multiple t of a K that is best in both, F is then `t - nu (t - 1)^2` plus a constant.
    """
    distances = solve(sums.distances_alone, _SCALE_GAP)
    side = solve(sums.side_alone, _SCALE_GAP)
    gain = 2.0 * float(np.sqrt(side.value * distances.value))
    penalty = nu / (distances.value * sums.sum_of_fourth)
    return Scales(gain, penalty)


def _leading(basis: SmoothBasis, A: Array, q: int) -> tuple[Array, Array]:
    """Return the eigenvalues (m,) of K = V A V^T, decreasing, and its leading q coordinates."""
    values, vectors = scipy.linalg.eigh(A)
    values, vectors = values[::-1], vectors[:, ::-1]
    values = np.where(values > _ROUNDING * values[0], values, 0.0)
    return values, basis.vectors @ (vectors[:, :q] * np.sqrt(values[:q]))


def refine(objective: CoordinateObjective, Y: Array, max_iter: int) -> Ascent:
    """Climb from coordinates Y (n, q) to a local maximum of F by L-BFGS.

    It forgets its steps and gradients each 500 steps, whether or not they are saved: from there,
    another process comes to the same bits. That costs no more than a few steps in a hundred.

    There and at the end, axes that hold nothing are used if F rises so. Those that do not matter to
    F at the end are set to 0. Without any steps, the coordinates count as stationary.
    """
    store, n_iter = result_store(), 0
    if store is not None and (saved := store.find(REFINEMENT)):
        Y, n_iter = saved["Y"], int(saved["n_iter"])
    while n_iter < max_iter:
        limit = min(_STEPS_TO_A_RESTART, max_iter - n_iter)
        climbed = climb(objective, Y, limit)
        n_iter += climbed.n_iter
        tried = with_free_axes_used(objective, climbed, max_iter - n_iter)
        Y, n_iter = tried.Y, n_iter + tried.n_iter
        if tried.stationary:
            Y = without_free_axes(objective, Y)
        if Y is climbed.Y and (tried.stationary or climbed.n_iter < limit):
            return Ascent(Y, tried.stationary, n_iter)
        if store is not None:
            store.save(REFINEMENT, {"Y": Y, "n_iter": n_iter})
    return Ascent(Y, max_iter == 0, n_iter)
