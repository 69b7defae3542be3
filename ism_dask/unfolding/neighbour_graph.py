"""The graph of nearest neighbours of rows, and the squared lengths of its edges."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import connected_components, laplacian

from ism_dask._types import Array
from ism_dask.unfolding.neighbour_search import ExactSearch, comparable, squared_distances

# A graph of more parts than this says nothing about where they lie, and is refused.
_MOST_PARTS = 50
# Given distances of the same rows are equal if they differ by a smaller share of the largest one.
_ASYMMETRY = 1e-6
# Sizes of parts that a message lists.
_LISTED_PARTS = 8


@dataclass(frozen=True, eq=False)
class NeighbourGraph:
    """Which of n rows are neighbours, and how far apart.

    Attributes
    ----------
    n_rows : int
    heads, tails : (e,) arrays of int
        The two ends of each edge; the head is the smaller number.
    squared : (e,) array
        The squared distance of the two rows.
    neighbours : (n, k) array of int
        The nearest rows of each row, nearest first.
    part_sizes : tuple of int
        The sizes of the connected parts before they were joined, largest first.
    """

    n_rows: int
    heads: Array
    tails: Array
    squared: Array
    neighbours: Array
    part_sizes: tuple[int, ...]

    @property
    def n_edges(self) -> int:
        """The number of edges."""
        return len(self.heads)

    @property
    def laplacian(self) -> csc_array:
        """The (n, n) matrix L for which `y^T L y` is the sum of squares of `along(y)`."""
        ends = self.heads, self.tails
        adjacency = csc_array((np.ones(self.n_edges), ends), shape=(self.n_rows, self.n_rows))
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


def length_error(graph: NeighbourGraph, Y: Array) -> float:
    """Return the root mean square error of the lengths of edges between coordinates Y (n, q).

    It is a share of the root mean square of the distances of neighbours.
    """
    lengths = np.linalg.norm(Y[graph.heads] - Y[graph.tails], axis=1)
    return float(np.linalg.norm(lengths - np.sqrt(graph.squared)) / np.sqrt(graph.squared.sum()))


def squared_length_errors(graph: NeighbourGraph, Y: Array) -> Array:
    """Return by how much the squared length (e,) of edges between Y (n, q) is too large."""
    apart = Y[graph.heads] - Y[graph.tails]
    return np.asarray((apart**2).sum(axis=1) - graph.squared)


def matrix_of_edges(graph: NeighbourGraph, values: Array, first: Array, n: int) -> csr_array:
    """Return values (e,) of edges as a symmetric array (n, n), whose rows `first` are the nodes."""
    upper = csr_array((values, (first[graph.heads], first[graph.tails])), shape=(n, n))
    return csr_array(upper + upper.T)


def neighbour_graph(X: Any, neighbours: Array) -> NeighbourGraph:
    """Return the graph of rows X (n, d), no two of them equal, with these neighbours (n, k).

    Two rows share an edge if one is a neighbour of the other. If the graph falls into parts, they
    are joined by the shortest edges between them, with a warning.

    Raises
    ------
    ValueError
        If there are more than 50 parts.
    """
    n, k = neighbours.shape
    pairs = _distinct(_pairs(neighbours))[0]
    labels = _parts(pairs, n)
    sizes = tuple(sorted(np.bincount(labels).tolist(), reverse=True))
    if len(sizes) > 1:
        _check_parts(sizes, k)
        pairs = _joined(X, pairs, labels, k)
    heads, tails = pairs.T
    squared = squared_distances(X, heads, X, tails)
    return NeighbourGraph(n, heads, tails, squared, neighbours, sizes)


def graph_by_distances(neighbours: Array, distances: Array) -> NeighbourGraph:
    """Return the graph of rows with these neighbours (n, k) at these distances (n, k).

    Raise a ValueError if it falls into parts, or two rows have two different distances.
    """
    n, k = neighbours.shape
    pairs, of_each = _distinct(_pairs(neighbours))
    sizes = tuple(sorted(np.bincount(_parts(pairs, n)).tolist(), reverse=True))
    if len(sizes) > 1:
        raise ValueError(
            f"{_parts_in_words(sizes, k)}; expected a connected graph where distances are given. "
            "Raise `n_neighbors`"
        )
    lengths = np.empty(len(pairs))
    lengths[of_each] = distances.ravel()
    if (apart := np.abs(lengths[of_each] - distances.ravel()).max()) > _ASYMMETRY * lengths.max():
        raise ValueError(
            f"X has two distances of the same two rows, apart by {apart / lengths.max():.2g} of "
            "the largest one of neighbours; expected a symmetric X, such as (X + X.T) / 2"
        )
    return NeighbourGraph(n, pairs[:, 0], pairs[:, 1], lengths**2, neighbours, sizes)


def _pairs(neighbours: Array) -> Array:
    """Return the pairs (n k, 2) of each row and one of its neighbours (n, k)."""
    n, k = neighbours.shape
    return np.column_stack([np.repeat(np.arange(n), k), neighbours.ravel()])


def _distinct(pairs: Array) -> tuple[Array, Array]:
    """Return the distinct unordered pairs (e, 2) among pairs of rows, sorted, and each one's."""
    ordered = np.sort(pairs, axis=1).astype(np.int64)
    base = int(ordered.max()) + 1
    codes, of_each = np.unique(ordered[:, 0] * base + ordered[:, 1], return_inverse=True)
    return np.column_stack(np.divmod(codes, base)), of_each


def _parts(pairs: Array, n: int) -> Array:
    """Return the number of the connected part of each of n rows."""
    links = csr_array((np.ones(len(pairs), dtype=np.int8), tuple(pairs.T)), shape=(n, n))
    return np.asarray(connected_components(links, directed=False)[1])


def _check_parts(sizes: tuple[int, ...], n_neighbors: int) -> None:
    """Warn of a graph in parts of these sizes, or raise a ValueError if there are too many."""
    found = _parts_in_words(sizes, n_neighbors)
    if len(sizes) > _MOST_PARTS:
        raise ValueError(
            f"{found}; expected at most {_MOST_PARTS}, which can be joined. Raise `n_neighbors`, "
            "or check the scale of the columns"
        )
    warnings.warn(
        f"{found}: they are joined by the shortest edges between them, which say little about "
        "where they lie. Raise `n_neighbors` to have more edges between them",
        UserWarning,
        stacklevel=6,
    )


def _parts_in_words(sizes: Sequence[int], n_neighbors: int) -> str:
    listed = ", ".join(map(str, sizes[:_LISTED_PARTS]))
    listed += ", ..." if len(sizes) > _LISTED_PARTS else ""
    return (
        f"the graph of the {n_neighbors} nearest neighbours falls into {len(sizes)} parts "
        f"({listed} rows)"
    )


def _joined(X: Any, pairs: Array, labels: Array, count: int) -> Array:
    """Return pairs (e, 2) with the `count` shortest edges from each part but the largest.

    Parts that are nearest to each other join first; the next round joins what these make.
    """
    while labels.max() > 0:
        largest = int(np.bincount(labels).argmax())
        others = [part for part in range(int(labels.max()) + 1) if part != largest]
        pairs, _ = _distinct(
            np.concatenate([pairs, *(_ways_out(X, labels == p, count) for p in others)])
        )
        labels = _parts(pairs, X.shape[0])
    return pairs


def _ways_out(X: Any, inside: Array, count: int) -> Array:
    """Return the `count` shortest edges (c, 2) from rows inside to their nearest rows outside."""
    rows, outside = np.flatnonzero(inside), np.flatnonzero(~inside)
    others = X[outside]
    nearest = ExactSearch.among(others, 1).of(X[rows])
    squared = comparable(squared_distances(X, rows, others, nearest[:, 0]))
    shortest = np.argsort(squared, kind="stable")[:count]
    return np.column_stack([rows[shortest], outside[nearest[shortest, 0]]])
