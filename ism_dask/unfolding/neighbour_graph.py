"""The graph of nearest neighbours, and the smooth functions on it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import connected_components, laplacian
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

from ism_dask._types import Array
from ism_dask.linalg.subspaces import canonical_signs
from ism_dask.unfolding.nearest_rows import NearestRows, comparable, squared_distances

# A graph of more parts than this says nothing about where they lie, and is refused.
_MOST_PARTS = 50
# The longest distance of neighbours is above this, and below its inverse.
_SHORTEST = 1e-20
# Up to this number of rows LAPACK is as fast as Lanczos, and finds all copies of an eigenvalue.
_DENSE_ROWS = 400
# Relative accuracy of the eigenvalues, and the restarts after which Lanczos gives up.
_TOL, _RESTARTS = 1e-10, 100
# Vectors in the basis of Lanczos for each eigenvector, and the fewest.
_BASIS, _LEAST_BASIS = 4, 40
# The normal matrix of a program has m (m + 1) / 2 rows, and each of its steps multiplies by it.
MOST_EIGENVECTORS = 30
# Eigenvalues that differ by a smaller share of the larger one are the same.
_EQUAL = 1e-8
# Between nearer eigenvalues, by a share of the larger one, rounding decides about their vectors.
_NEAR = 1e-5
# Below zero by this share of the mean degree, where the Laplacian has an inverse.
_SHIFT = 1e-6


@dataclass(frozen=True, eq=False)
class NeighbourGraph:
    """Edges (e,) between neighbours among n rows, from heads to tails, with squared distances.

    The head of an edge is the smaller number. `part_sizes` are the sizes of the connected parts
    before they were joined, largest first.
    """

    n_rows: int
    heads: Array
    tails: Array
    squared: Array
    part_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        longest = float(np.sqrt(self.squared.max()))
        if not _SHORTEST < longest < 1.0 / _SHORTEST:
            raise ValueError(
                f"neighbours have distances up to {longest:.3g}, whose fourth powers lose digits; "
                f"expected {_SHORTEST:g} to {1.0 / _SHORTEST:g}: divide X by it"
            )

    @property
    def laplacian(self) -> csc_array:
        """The (n, n) matrix L for which `y^T L y` is the sum of squares of `along(y)`."""
        ends = self.heads, self.tails
        adjacency = csc_array((np.ones(len(self.heads)), ends), shape=(self.n_rows, self.n_rows))
        matrix: Any = laplacian(adjacency + adjacency.T)
        return csc_array(matrix)

    def along(self, y: Array) -> Array:
        """Return the difference (e,) of coordinates y (n,) along each edge."""
        return y[self.heads] - y[self.tails]

    def sums_at_nodes(self, flow: Array) -> Array:
        """Return for each node the sum (n,) of `flow` (e,) of its edges, negative at their tails.

        For the flow `along(y)` it is the product of the Laplacian with y.
        """
        leaving = np.bincount(self.heads, flow, self.n_rows)
        return leaving - np.bincount(self.tails, flow, self.n_rows)


def neighbour_graph(X: Any, neighbours: Array) -> NeighbourGraph:
    """Return the graph of rows X (n, d), no two of them equal, with these neighbours (n, k).

    Two rows share an edge if one is a neighbour of the other. If the graph falls into parts, they
    are joined by the shortest edges between them, with a warning; more than 50 are a ValueError.
    """
    n, k = neighbours.shape
    pairs = _distinct(np.column_stack([np.repeat(np.arange(n), k), neighbours.ravel()]))
    labels, sizes = _parts(pairs, n)
    if len(sizes) > _MOST_PARTS:
        raise ValueError(
            f"{_in_words(sizes, k)}; expected at most {_MOST_PARTS}, which can be joined. Raise "
            "`n_neighbors`, or check the scale of the columns"
        )
    if len(sizes) > 1:
        warnings.warn(
            f"{_in_words(sizes, k)}: they are joined by the shortest edges between them, which say "
            "little about where they lie. Raise `n_neighbors` to have more edges between them",
            stacklevel=4,
        )
        pairs = _joined(X, pairs, labels, k)
    heads, tails = pairs.T
    return NeighbourGraph(n, heads, tails, squared_distances(X, heads, X, tails), sizes)


def _distinct(pairs: Array) -> Array:
    """Return the distinct unordered pairs (e, 2) among pairs of rows, sorted."""
    ordered = np.sort(pairs, axis=1).astype(np.int64)
    base = int(ordered.max()) + 1
    codes = np.unique(ordered[:, 0] * base + ordered[:, 1])
    return np.column_stack(np.divmod(codes, base))


def _parts(pairs: Array, n: int) -> tuple[Array, tuple[int, ...]]:
    """Return the connected part (n,) of each row, and their sizes, largest first."""
    links = csr_array((np.ones(len(pairs), dtype=np.int8), tuple(pairs.T)), shape=(n, n))
    labels = connected_components(links, directed=False)[1]
    return labels, tuple(sorted(np.bincount(labels).tolist(), reverse=True))


def _in_words(sizes: tuple[int, ...], n_neighbors: int) -> str:
    listed = ", ".join(map(str, sizes[:8])) + ", ..." * (len(sizes) > 8)
    graph = f"the graph of the {n_neighbors} nearest neighbours"
    return f"{graph} falls into {len(sizes)} parts ({listed} rows)"


def _joined(X: Any, pairs: Array, labels: Array, count: int) -> Array:
    """Return pairs (e, 2) with the `count` shortest edges from each part but the largest.

    Parts that are nearest to each other join first; the next round joins what these make.
    """
    while labels.max() > 0:
        largest = int(np.bincount(labels).argmax())
        ways_out = []
        for part in np.delete(np.arange(labels.max() + 1), largest):
            inside, outside = np.flatnonzero(labels == part), np.flatnonzero(labels != part)
            others = X[outside]
            nearest = NearestRows.among(others, 1).nearest_to(X[inside])[:, 0]
            squared = comparable(squared_distances(X, inside, others, nearest))
            shortest = np.argsort(squared, kind="stable")[:count]
            ways_out.append(np.column_stack([inside[shortest], outside[nearest[shortest]]]))
        pairs = _distinct(np.concatenate([pairs, *ways_out]))
        labels, _ = _parts(pairs, X.shape[0])
    return pairs


@dataclass(frozen=True, eq=False)
class SmoothBasis:
    """The bottom eigenvectors (n, m) of a graph Laplacian, without the constant one.

    Eigenvalues (m,) ascend, vectors are orthonormal and have mean 0.
    """

    values: Array
    vectors: Array


def smooth_basis(graph: NeighbourGraph, m: int, least: int) -> SmoothBasis:
    """Return the smoothest functions on the rows of a connected graph: m of them, if possible.

    Where an eigenvalue has vectors on both sides of the cut behind the first m, the cut moves to
    the nearest place between different eigenvalues that leaves at least `least` functions and at
    most 30. If there is none, rounding decides, with a warning. m is below the rows.
    """
    laplacian = graph.laplacian
    values, vectors = _bottom_pairs(laplacian, m)
    if not _is_apart(values, m):
        values, vectors = _bottom_pairs(laplacian, min(MOST_EIGENVECTORS, len(vectors) - 1))
    most = min(MOST_EIGENVECTORS, len(values))
    ends = [count for count in range(least, most + 1) if _is_apart(values, count)]
    m = min(ends, key=lambda count: abs(count - m)) if ends else m
    if not ends:
        warnings.warn(
            f"more than {m} functions on the graph of neighbours are equally smooth, and rounding "
            "chose among them. Raise `n_eigenvectors`, or take another `n_neighbors`",
            stacklevel=6,
        )
    return SmoothBasis(values[:m], canonical_signs(vectors[:, :m]))


def _is_apart(values: Array, count: int) -> bool:
    """Return whether the first `count` of ascending eigenvalues end before a larger one."""
    return count == len(values) or values[count - 1] < (1.0 - _NEAR) * values[count]


def _bottom_pairs(laplacian: csc_array, m: int) -> tuple[Array, Array]:
    """Return the first m + 1 Ritz pairs without the constant, or m if there are no more."""
    if laplacian.shape[0] <= max(_DENSE_ROWS, 2 * (m + 1)):
        vectors = scipy.linalg.eigh(laplacian.toarray())[1][:, : m + 2]
    else:
        vectors = _by_lanczos(laplacian, m + 1)
    centred = vectors - vectors.mean(axis=0)
    basis = np.linalg.svd(centred, full_matrices=False)[0][:, :-1]
    basis -= basis.mean(axis=0)
    values, mix = scipy.linalg.eigh(basis.T @ (laplacian @ basis))
    return values, basis @ mix


def _by_lanczos(laplacian: csc_array, count: int) -> Array:
    """Return the bottom eigenvectors (n, count + 1) of the Laplacian.

    Symmetric data have eigenvalues several times, and Lanczos may find only some of their vectors.
    So it searches beside those that it has, until what it finds there is no smaller, and is the
    last vector.

    It takes products with the Laplacian alone. A graph along a thin line, whose eigenvalues are too
    close to each other for that, has a sparse factorisation instead, for all later searches too.
    """
    factors: Any = None
    starts, n, degrees = np.random.default_rng(0), laplacian.shape[0], laplacian.diagonal()
    lift = 2.0 * float(degrees.max())  # no eigenvalue is larger

    def bottom(beside: Array, count: int) -> Array:
        nonlocal factors

        def lifted(x: Array) -> Array:
            return laplacian @ x + lift * (beside @ (beside.T @ x))

        def inverse(x: Array) -> Array:
            y = factors.solve(x - beside @ (beside.T @ x))
            return y - beside @ (beside.T @ y)

        basis = min(n - 1, max(_BASIS * count, _LEAST_BASIS))
        options: dict[str, Any] = {"k": count, "v0": starts.normal(size=n), "ncv": basis}
        if factors is None:
            try:
                operator = LinearOperator((n, n), matvec=lifted, dtype=np.float64)
                return eigsh(operator, which="SA", maxiter=_RESTARTS, tol=_TOL, **options)[1]
            except ArpackNoConvergence:
                factors = splu(laplacian + _SHIFT * degrees.mean() * eye_array(n, format="csc"))
        operator = LinearOperator((n, n), matvec=inverse, dtype=np.float64)
        return eigsh(operator, which="LA", tol=_TOL, **options)[1]

    first = bottom(np.empty((n, 0)), count)
    while True:
        both = np.hstack([first, bottom(first, 1)])
        values = np.einsum("nc,nc->c", both, laplacian @ both)
        if values[-1] >= (1.0 - _EQUAL) * values[:-1].max():
            return both
        first = both[:, np.argsort(values, kind="stable")[:count]]
