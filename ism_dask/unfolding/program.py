"""The semi-definite program of an unfolding K = V A V^T, and the kernel of y in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.unfolding.neighbour_graph import NeighbourGraph, SmoothBasis

# A share of tr(K L) that is rounding, in squares.
_ROUNDING = 1e-24
# Sums of rows of a factor that cancel out are below this share of its largest entry.
_CANCELLED = 1e-12
# Edges whose products are in memory at a time.
_EDGES_AT_ONCE = 8192
# The gap, relative to the value, that certifies a solution; programs that give the scales need not
# be exact.
GAP, _SCALE_GAP = 1e-8, 1e-6
# The most steps, and the steps from one measurement of the gap to the next.
_MOST_STEPS, _STEPS_PER_CHECK = 50_000, 20


@dataclass(frozen=True, eq=False)
class FactorKernel:
    """`L = F F^T`, the centred kernel of y, with F (n, r) whose columns add up to 0."""

    factor: Array

    @property
    def norm(self) -> float:
        """The root of the sum of squares of L."""
        return float(np.linalg.norm(self.factor.T @ self.factor))

    def times(self, Y: Array) -> Array:
        """Return `L Y`."""
        return self.factor @ (self.factor.T @ Y)

    def summed(self, node: Array, n_nodes: int) -> FactorKernel:
        """Return the kernel of nodes, each of which stands for the rows of its number (n,)."""
        total = np.zeros((n_nodes, self.factor.shape[1]))
        np.add.at(total, node, self.factor)
        cancelled = np.abs(total) <= _CANCELLED * np.abs(self.factor).max()
        return FactorKernel(np.where(cancelled, 0.0, total))


@dataclass(frozen=True, eq=False)
class IdentityKernel:
    """`L = H`, the centred identity, where each row stands for `counts` (n,) rows: plain MVU."""

    counts: Array

    @property
    def norm(self) -> float:
        """The root of the sum of squares of H."""
        return float(np.sqrt(self.counts.sum() - 1))

    def times(self, Y: Array) -> Array:
        """Return each row minus the mean, as often as it counts."""
        return self.counts[:, None] * (Y - np.average(Y, axis=0, weights=self.counts))

    def summed(self, node: Array, n_nodes: int) -> IdentityKernel:
        """Return the kernel with the sums of the counts."""
        return IdentityKernel(np.bincount(node, self.counts, n_nodes))


SideKernel: TypeAlias = FactorKernel | IdentityKernel


def correlation_with(side: SideKernel, Y: Array) -> float:
    """Return the root of HSIC of `Y Y^T` and L as a share of the most it could be, from 0 to 1.

    It is 0 if all rows of centred coordinates Y (n, q) are 0.
    """
    if not Y.any():
        return 0.0
    Y = Y / np.abs(Y).max()  # fourth powers of extreme numbers overflow
    most = float(np.linalg.norm(Y.T @ Y)) * side.norm
    return float(np.sqrt(np.clip(np.vdot(Y, side.times(Y)) / most, 0.0, 1.0)))


@dataclass(frozen=True)
class Scales:
    """The units of the two terms of the objective.

    `F(K) = tr(K L) / gain - penalty * sum over edges of (K_ii + K_jj - 2 K_ij - d_ij^2)^2`
    """

    gain: float
    penalty: float


@dataclass(frozen=True, eq=False)
class SolvedProgram(Scales):
    """The solution A (m, m) of the program for K = V A V^T, with the scales of F, and F at K.

    The gap bounds how much larger the maximum is, as a share of what F gains over A = 0.
    """

    A: Array
    objective: float
    gap: float


def solved_program(
    graph: NeighbourGraph, basis: SmoothBasis, side: SideKernel, nu: float
) -> SolvedProgram:
    """Return the solution for K = V A V^T with V the smooth functions on a graph.

    The squared errors of the distances are divided by what the best K with this basis explains of
    them, tr(K L) by the most that a K with this basis comes to that has as large distances as that.
    For a multiple t of a K that is best in both, F is then `t - nu (t - 1)^2` plus a constant: the
    two terms weigh alike at nu = 1. Raise a ValueError if V says nothing of L.
    """
    V, total = basis.vectors, float(graph.squared.sum())
    # A is T B T, with T such that the outer products of differences of V T add up to the identity
    # over the edges, times the sum of d^2: so F is curved nearly alike in all directions, and the
    # trace of B is the sum of squared lengths in the embedding as a share of that in X.
    transform = np.sqrt(total / basis.values)
    aligned = V.T @ side.times(V)
    if np.trace(aligned) <= _ROUNDING * side.norm:
        raise ValueError(
            "`y` differs only between equal rows and neighbours: none of the "
            f"{len(basis.values)} smoothest functions on their graph varies with it; expected "
            "another y, fewer `n_neighbors`, more `n_eigenvectors`, or y=None"
        )
    aligned = aligned * transform[:, None] * transform
    # All sums over edges are shares of the sum of d^4: `first` of d^2 times the squared length in
    # the embedding, `second` of squares of squared lengths.
    shares = graph.squared / total
    even = float(shares @ shares)
    fourth = even * total**2
    second, first = _edge_sums(graph, V / np.sqrt(basis.values), shares)
    second, first = second / even, symmetric_of(first) / even
    floor = 1.0 / (len(shares) * even)  # (sum d^2)^2 / (e sum d^4), 1 if edges are equally long
    _, explained, _ = solve(2.0 * first, second, floor, _SCALE_GAP)
    # The root of this value is half of the largest tr(K L) of any K whose edges have the same sum
    # of squares of squared lengths as those of X.
    _, most, _ = solve(aligned, second, floor, _SCALE_GAP)
    gain = 2.0 * float(np.sqrt(most * explained))
    penalty = nu / (explained * fourth)
    weight = penalty * fourth
    both = aligned / gain + 2.0 * weight * first
    B, value, gap = solve(both, weight * second, weight * floor)
    return SolvedProgram(
        gain=gain,
        penalty=penalty,
        A=transform[:, None] * B * transform,
        objective=value - penalty * fourth,
        gap=gap,
    )


def solve(G: Array, H: Array, floor: float, least_gap: float = GAP) -> tuple[Array, float, float]:
    """Maximise `F(B) = <G, B> - svec(B)^T H svec(B)` over positive semi-definite B (m, m).

    H (p, p) has p = m (m + 1) / 2 rows, and its quadratic form is at least `floor tr(B)^2`. Return
    B, F at B, and a bound on how much larger the maximum is, as a share of F.

    Projected accelerated gradient steps end when this gap is small enough. The momentum starts anew
    when it leads against the gradient (O'Donoghue and Candes), so that the steps converge linearly
    without an estimate of the least curvature of F.
    """
    rows, columns, factors = _entries(len(G))

    def slope(B: Array) -> Array:
        return G - 2.0 * symmetric_of(H @ (B[rows, columns] * factors))

    curvature = 2.0 * float(scipy.linalg.eigvalsh(H)[-1])
    middle = max(float(scipy.linalg.eigvalsh(G)[-1]), 0.0) / (2.0 * floor)
    B = ahead = np.zeros_like(G)
    momentum, value, gap = 1.0, 0.0, np.inf
    for step in range(1, _MOST_STEPS + 1):
        last, B = B, _projected(ahead + slope(ahead) / curvature)
        if np.vdot(ahead - B, B - last) > 0:
            momentum, ahead = 1.0, B
        else:
            following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            ahead = B + (momentum - 1.0) / following * (B - last)
            momentum = following
        if step % _STEPS_PER_CHECK == 0:
            # F is concave: from B to any B' it rises by at most <S, B' - B> with S the gradient at
            # B, and <S, B'> is at most the largest eigenvalue of S, if it is positive, times the
            # trace t of B'. With g the largest eigenvalue of G, F is at most g t - floor t^2: so t
            # is bounded wherever F is at least as large as at B.
            S = slope(B)
            value = 0.5 * float(np.vdot(G + S, B))
            trace = middle + float(np.sqrt(max(middle**2 - value / floor, 0.0)))
            rise = max(float(scipy.linalg.eigvalsh(S)[-1]), 0.0) * trace - float(np.vdot(S, B))
            gap = max(rise, 0.0) / value if value > 0 else np.inf
            if gap <= least_gap:
                break
    return B, value, gap


def _projected(B: Array) -> Array:
    """Return the positive semi-definite matrix that is nearest to B (m, m)."""
    values, vectors = scipy.linalg.eigh((B + B.T) / 2)
    positive = values > 0
    return (vectors[:, positive] * values[positive]) @ vectors[:, positive].T


def _edge_sums(graph: NeighbourGraph, V: Array, shares: Array) -> tuple[Array, Array]:
    """Return the sums over edges of `s s^T` (p, p) and of `share s` (p,), with `s = svec(w w^T)`.

    w is the difference of V (n, m) along an edge.
    """
    rows, columns, factors = _entries(V.shape[1])
    second, first = np.zeros((len(rows), len(rows))), np.zeros(len(rows))
    for start in range(0, len(graph.heads), _EDGES_AT_ONCE):
        run = slice(start, start + _EDGES_AT_ONCE)
        w = V[graph.heads[run]] - V[graph.tails[run]]
        products = w[:, rows] * w[:, columns] * factors
        second += products.T @ products
        first += shares[run] @ products
    return second, first


def symmetric_of(vector: Array) -> Array:
    """Return the symmetric B (m, m) of svec(B) (p,)."""
    m = int(np.sqrt(2 * len(vector)))
    rows, columns, factors = _entries(m)
    B = np.empty((m, m))
    B[rows, columns] = B[columns, rows] = vector / factors
    return B


def _entries(m: int) -> tuple[Array, Array, Array]:
    """Return rows and columns of the upper triangle, and 1 on the diagonal or the root of 2.

    Entries of B (m, m) times these factors are svec(B), with which inner products stay the same.
    """
    rows, columns = np.triu_indices(m)
    return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))
