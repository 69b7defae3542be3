"""The neighbours of an unfolding: those of rows that it searches, or those of given distances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors, sort_graph_by_row_values

from ism_dask._types import Array
from ism_dask.estimators.placement import Placement, RowUnits
from ism_dask.records.partial_results import run_or_restore
from ism_dask.rows.column_statistics import standardisation_of
from ism_dask.rows.shards import cut
from ism_dask.rows.sparse import is_sparse
from ism_dask.unfolding.neighbour_graph import NeighbourGraph, graph_by_distances, neighbour_graph
from ism_dask.unfolding.neighbour_search import neighbour_search
from ism_dask.unfolding.unfold import NEIGHBOURS

if TYPE_CHECKING:
    from ism_dask.estimators.unfolding import ColoredMVU

EUCLIDEAN, PRECOMPUTED = "euclidean", "precomputed"


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The graph of neighbours, with distances divided by a power of 2.

    Attributes
    ----------
    graph : NeighbourGraph
    exponent : int
    exact : bool
    mean, scale : (d,) arrays or None
        The standardisation of rows.
    placement : callable or None
        Returns the `Placement` beside rows with the coordinates that it is given.
    """

    graph: NeighbourGraph
    exponent: int
    exact: bool = True
    mean: Array | None = None
    scale: Array | None = None
    placement: Callable[[Array], Placement] | None = None


def neighbours_of_rows(
    parameters: ColoredMVU, X: Any, first: Array, order: Array, *, k: int, seed: int
) -> Neighbours:
    """Return the neighbours of those rows of X (n, d) that come first among equal ones.

    Columns are standardised by all rows in an order of their own, so that sums are the same in any.
    """
    mean, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if parameters.standardize:
        affine = standardisation_of(cut(X[order]))
        mean, scale = affine.mean, np.where(affine.varying, affine.scale, 1.0)
    units = RowUnits.of(X[first], scale)
    rows = units.scaled(X[first])
    search = neighbour_search(rows, k, seed)
    graph = neighbour_graph(rows, run_or_restore(NEIGHBOURS, search.of_own_rows))
    place = partial(Placement, units, search, rows)
    return Neighbours(graph, units.exponent, search.exact, mean, scale, place)


def neighbours_by_distances(D: Any, k: int) -> Neighbours:
    """Return the neighbours by distances D (n, n), or by a sparse graph of them."""
    exponent = int(np.frexp(D.max())[1])
    search = NearestNeighbors(n_neighbors=k, metric="precomputed").fit(D)
    # A row is no neighbour of itself: scikit-learn leaves it out, and a sparse graph is without it.
    distances, neighbours = search.kneighbors(D if is_sparse(D) else None)
    graph = graph_by_distances(neighbours, np.ldexp(distances.astype(np.float64), -exponent))
    return Neighbours(graph, exponent)


def checked_distances(D: Any) -> Any:
    """Return distances D (n, n) between n rows, without the diagonal if they are a sparse graph.

    Raise a ValueError if they cannot be distances.
    """
    n, columns = D.shape
    if n != columns:
        raise ValueError(
            f"X of shape {D.shape} is no matrix of distances; expected (n, n) with "
            "metric='precomputed', or rows of columns with metric='euclidean'"
        )
    if (least := D.min()) < 0:
        raise ValueError(f"X has a distance of {least:.3g}; expected distances from 0 up")
    if (own := abs(D.diagonal()).max()) > 0:
        raise ValueError(
            f"a row of X has distance {own:.3g} from itself; expected zeros on the diagonal of a "
            "matrix of distances. Similarities have to be turned into distances first"
        )
    if not D.max():
        raise ValueError("all distances in X are 0; expected rows at different distances")
    if not is_sparse(D):
        return D
    ends = np.stack(D.tocoo().coords)
    apart = ends[0] != ends[1]
    graph = csr_array((D.data[apart], tuple(ends[:, apart])), shape=D.shape)
    return sort_graph_by_row_values(graph, warn_when_not_sorted=False)
