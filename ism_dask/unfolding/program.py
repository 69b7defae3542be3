"""The semi-definite program of an unfolding K = V A V^T: sums over the edges, and its solution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.rows.execution import results_in_order
from ism_dask.unfolding.laplacian import SmoothBasis
from ism_dask.unfolding.neighbour_graph import NeighbourGraph
from ism_dask.unfolding.side_information import SideKernel

# A share of tr(K L) that is rounding, in squares.
_ROUNDING = 1e-24
# Edges whose sums a task computes, and that it takes at a time.
_EDGES_PER_TASK, _EDGES_AT_ONCE = 2**16, 8192
# The gap, relative to the value, that certifies a solution.
GAP = 1e-8
# The most steps, and the steps from one measurement of the gap to the next.
_MOST_STEPS, _STEPS_PER_CHECK = 50_000, 20


@dataclass(frozen=True)
class Scales:
    """The units of the two terms of the objective.

    `F(K) = tr(K L) / gain - penalty * sum over edges of (K_ii + K_jj - 2 K_ij - d_ij^2)^2`
    """

    gain: float
    penalty: float


@dataclass(frozen=True, eq=False)
class QuadraticProgram:
    """Maximise `F(B) = <G, B> - svec(B)^T H svec(B)` over positive semi-definite B (m, m).

    Attributes
    ----------
    gradient : (m, m) array
        G, the gradient of F at B = 0.
    hessian : (p, p) array
        H, with p = m (m + 1) / 2.
    floor : float
        A number for which `svec(B)^T H svec(B)` is at least `floor tr(B)^2`.
    """

    gradient: Array
    hessian: Array
    floor: float

    @cached_property
    def curvature(self) -> float:
        """The largest eigenvalue of the Hessian of -F, 2 H."""
        return 2.0 * float(scipy.linalg.eigvalsh(self.hessian)[-1])

    def slope(self, B: Array) -> Array:
        """Return the gradient (m, m) of F at B."""
        return self.gradient - 2.0 * symmetric_of(self.hessian @ vector_of(B))

    def largest_trace(self, value: float) -> float:
        """Return a bound on the trace of every B for which F is at least `value`.

        With t the trace and g the largest eigenvalue of G, F is at most `g t - floor t^2`.
        """
        middle = max(float(scipy.linalg.eigvalsh(self.gradient)[-1]), 0.0) / (2.0 * self.floor)
        return middle + float(np.sqrt(max(middle**2 - value / self.floor, 0.0)))


@dataclass(frozen=True, eq=False)
class ProgramSolution:
    """A positive semi-definite B near the maximum of a `QuadraticProgram`.

    Attributes
    ----------
    B : (m, m) array
    value : float
        F at B, which is 0 at B = 0.
    gap : float
        A bound on how much larger the maximum of F is, as a share of the value.
    """

    B: Array
    value: float
    gap: float


def solve(program: QuadraticProgram, gap: float = GAP) -> ProgramSolution:
    """Maximise F by projected accelerated gradient steps, until the duality gap is small enough.

    The momentum starts anew when it leads against the gradient (O'Donoghue and Candes), so that
    the steps converge linearly without an estimate of the least curvature of F.
    """
    B = ahead = np.zeros_like(program.gradient)
    momentum = 1.0
    for step in range(1, _MOST_STEPS + 1):
        last, B = B, _projected(ahead + program.slope(ahead) / program.curvature)
        if np.vdot(ahead - B, B - last) > 0:
            momentum, ahead = 1.0, B
        else:
            following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            ahead = B + (momentum - 1.0) / following * (B - last)
            momentum = following
        if step % _STEPS_PER_CHECK == 0 and (solution := _measured(program, B)).gap <= gap:
            return solution
    return _measured(program, B)


def _measured(program: QuadraticProgram, B: Array) -> ProgramSolution:
    """Return B with its duality gap.

    F is concave: from B to any B' it rises by at most `<S, B' - B>` with S the gradient at B, and
    `<S, B'>` is at most the largest eigenvalue of S, if it is positive, times the trace of B'.
    """
    slope = program.slope(B)
    value = 0.5 * float(np.vdot(program.gradient + slope, B))
    rise = max(float(scipy.linalg.eigvalsh(slope)[-1]), 0.0)
    missing = rise * program.largest_trace(value) - float(np.vdot(slope, B))
    return ProgramSolution(B, value, max(missing, 0.0) / value if value > 0 else np.inf)


def _projected(B: Array) -> Array:
    """Return the positive semi-definite matrix that is nearest to B (m, m)."""
    values, vectors = scipy.linalg.eigh((B + B.T) / 2)
    positive = values > 0
    return (vectors[:, positive] * values[positive]) @ vectors[:, positive].T


@dataclass(frozen=True, eq=False)
class EdgeSums:
    """What the programs of one graph and basis need of the edges and of side information.

    `A = T B T`, with T chosen so that the outer products of differences of `V T` add up to the
    identity over the edges, times the sum of d^2: so F is curved nearly alike in all directions,
    and the trace of B is the sum of squared lengths in the embedding as a share of that in X.

    Attributes
    ----------
    aligned : (m, m) array
        `T V^T L V T`.
    first : (m, m) array
        Inner products with B are the sum over edges of d^2 times the squared length in the
        embedding, as a share of the sum of d^4.
    second : (p, p) array
        The quadratic form in svec(B) is the sum over edges of squares of squared lengths in the
        embedding, as a share of the sum of d^4.
    evenness : float
        `(sum d^2)^2 / (e sum d^4)`, 1 if all edges are equally long.
    transform : (m,) array
        The diagonal of T.
    sum_of_fourth : float
        The sum of d^4.
    """

    aligned: Array
    first: Array
    second: Array
    evenness: float
    transform: Array
    sum_of_fourth: float

    @classmethod
    def of(cls, graph: NeighbourGraph, basis: SmoothBasis, side: SideKernel) -> EdgeSums:
        """Return the sums over all edges, or raise a ValueError if V says nothing of L."""
        V, total = basis.vectors, float(graph.squared.sum())
        shares = graph.squared / total
        even = float(shares @ shares)
        second, first = _edge_sums(graph, V / np.sqrt(basis.values), shares)
        transform = np.sqrt(total / basis.values)
        shared = V.T @ side.times(V)
        if np.trace(shared) <= _ROUNDING * side.trace:
            raise ValueError(
                f"`y` differs only between neighbours: none of the {len(basis.values)} smoothest "
                "functions on their graph varies with it; expected another y, fewer "
                "`n_neighbors`, more `n_eigenvectors`, or y=None"
            )
        return cls(
            aligned=shared * transform[:, None] * transform,
            first=symmetric_of(first) / even,
            second=second / even,
            evenness=1.0 / (graph.n_edges * even),
            transform=transform,
            sum_of_fourth=even * total**2,
        )

    @property
    def distances_alone(self) -> QuadraticProgram:
        """The program whose value is how much of the sum of d^4 the best K explains."""
        return QuadraticProgram(2.0 * self.first, self.second, self.evenness)

    @property
    def side_alone(self) -> QuadraticProgram:
        """The program of tr(K L), minus squares of squared lengths alone.

        The root of its value is half of the largest tr(K L) of any K whose edges have the same sum
        of squares of squared lengths as those of X.
        """
        return QuadraticProgram(self.aligned, self.second, self.evenness)

    def program(self, scales: Scales) -> QuadraticProgram:
        """Return the program of both terms."""
        weight = scales.penalty * self.sum_of_fourth
        gradient = self.aligned / scales.gain + 2.0 * weight * self.first
        return QuadraticProgram(gradient, weight * self.second, weight * self.evenness)

    def matrix(self, B: Array) -> Array:
        """Return A (m, m) of B."""
        return self.transform[:, None] * B * self.transform


def _edge_sums(graph: NeighbourGraph, V: Array, shares: Array) -> tuple[Array, Array]:
    """Return the sums over edges of `s s^T` (p, p) and of `share s` (p,), with `s = svec(w w^T)`.

    w is the difference of V (n, m) along an edge. The sums of each shard of edges are computed on
    a cluster or in threads, and added in the order of the edges: so the bits are always the same.
    """
    starts = range(0, graph.n_edges, _EDGES_PER_TASK)
    sums = results_in_order(_sums_of_shard, (graph, V, shares), starts)
    return reduce(lambda total, each: (total[0] + each[0], total[1] + each[1]), sums)


def _sums_of_shard(terms: tuple[NeighbourGraph, Array, Array], start: int) -> tuple[Array, Array]:
    """Return the sums of a shard of edges, as a task."""
    graph, V, shares = terms
    rows, columns, factors = _entries(V.shape[1])
    p, stop = len(rows), min(start + _EDGES_PER_TASK, graph.n_edges)
    second, first = np.zeros((p, p)), np.zeros(p)
    for begin in range(start, stop, _EDGES_AT_ONCE):
        run = slice(begin, min(begin + _EDGES_AT_ONCE, stop))
        w = V[graph.heads[run]] - V[graph.tails[run]]
        products = w[:, rows] * w[:, columns] * factors
        second += products.T @ products
        first += shares[run] @ products
    return second, first


def vector_of(B: Array) -> Array:
    """Return svec(B): the upper triangle of B (m, m), so that inner products stay the same."""
    rows, columns, factors = _entries(len(B))
    return B[rows, columns] * factors


def symmetric_of(vector: Array) -> Array:
    """Return the symmetric B (m, m) of svec(B) (p,)."""
    m = int(np.sqrt(2 * len(vector)))
    rows, columns, factors = _entries(m)
    B = np.empty((m, m))
    B[rows, columns] = B[columns, rows] = vector / factors
    return B


def _entries(m: int) -> tuple[Array, Array, Array]:
    """Return rows and columns of the upper triangle, and 1 on the diagonal or the root of 2."""
    rows, columns = np.triu_indices(m)
    return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))
