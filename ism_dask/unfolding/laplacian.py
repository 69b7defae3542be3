"""The smooth functions on a neighbour graph: the bottom eigenvectors of its Laplacian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, SuperLU, eigsh, splu

from ism_dask._types import Array
from ism_dask.linalg.eigen import canonical_signs
from ism_dask.unfolding.neighbour_graph import NeighbourGraph

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
class SmoothBasis:
    """The bottom eigenvectors of a graph Laplacian, without the constant one.

    Attributes
    ----------
    values : (m,) array
        The eigenvalues, ascending.
    vectors : (n, m) array
        Orthonormal columns of mean 0.
    residual : float
        The largest residual of an eigenvector, as a share of the largest of the eigenvalues.
    arbitrary : bool
        Whether rounding chose among the vectors of the last eigenvalue, which has more of them.
    """

    values: Array
    vectors: Array
    residual: float
    arbitrary: bool = False


def smooth_basis(graph: NeighbourGraph, m: int, *, least: int = 1, seed: int = 0) -> SmoothBasis:
    """Return the smoothest functions on the rows of a connected graph: m of them, if possible.

    Where an eigenvalue has vectors on both sides of the cut behind the first m, the cut moves to
    the nearest place between different eigenvalues that leaves at least `least` functions and at
    most 30. m is below the rows.

    Lanczos takes products with the Laplacian alone. A graph along a thin line, whose eigenvalues
    are too close to each other for that, has a sparse factorisation instead.
    """
    laplacian = graph.laplacian
    values, vectors = _bottom_pairs(laplacian, m, seed)
    if not _is_apart(values, m):
        values, vectors = _bottom_pairs(laplacian, min(MOST_EIGENVECTORS, len(vectors) - 1), seed)
    most = min(MOST_EIGENVECTORS, len(values))
    ends = [count for count in range(least, most + 1) if _is_apart(values, count)]
    m = min(ends, key=lambda count: abs(count - m)) if ends else m
    values, vectors = values[:m], canonical_signs(vectors[:, :m])
    misfit = np.linalg.norm(laplacian @ vectors - vectors * values, axis=0)
    return SmoothBasis(values, vectors, float(misfit.max() / values[-1]), not ends)


def _bottom_pairs(laplacian: csc_array, m: int, seed: int) -> tuple[Array, Array]:
    """Return the first m + 1 Ritz pairs without the constant, or m if there are no more."""
    if laplacian.shape[0] <= max(_DENSE_ROWS, 2 * (m + 1)):
        vectors = scipy.linalg.eigh(laplacian.toarray())[1][:, : m + 2]
    else:
        vectors = _by_lanczos(laplacian, m + 1, seed)
    centred = vectors - vectors.mean(axis=0)
    basis = np.linalg.svd(centred, full_matrices=False)[0][:, :-1]
    basis -= basis.mean(axis=0)
    values, mix = scipy.linalg.eigh(basis.T @ (laplacian @ basis))
    return values, basis @ mix


def _is_apart(values: Array, count: int) -> bool:
    """Return whether the first `count` of ascending eigenvalues end before a larger one."""
    return count == len(values) or values[count - 1] < (1.0 - _NEAR) * values[count]


def _by_lanczos(laplacian: csc_array, count: int, seed: int) -> Array:
    """Return the bottom eigenvectors (n, count + 1) of the Laplacian.

    Symmetric data have eigenvalues several times, and Lanczos may find only some of their vectors.
    So it searches beside those that it has, until what it finds there is no smaller, and is the
    last vector.
    """
    search = _Search(laplacian, np.random.default_rng(seed))
    found = search.bottom(np.empty((laplacian.shape[0], 0)), count)
    while True:
        both = np.hstack([found, search.bottom(found, 1)])
        values = np.einsum("nc,nc->c", both, laplacian @ both)
        if values[-1] >= (1.0 - _EQUAL) * values[:-1].max():
            return both
        found = both[:, np.argsort(values)[:count]]


class _Search:
    """Searches for bottom eigenvectors of one Laplacian, by Lanczos from random vectors.

    Where its products with the Laplacian gave up once, all later ones are with the inverse.
    """

    def __init__(self, laplacian: csc_array, starts: np.random.Generator) -> None:
        self._laplacian, self._starts = laplacian, starts
        self._degrees: Array = laplacian.diagonal()
        self._factors: SuperLU | None = None

    def bottom(self, beside: Array, count: int) -> Array:
        """Return the bottom eigenvectors (n, count) beside orthonormal ones (n, c) known."""
        n = self._laplacian.shape[0]
        basis = min(n - 1, max(_BASIS * count, _LEAST_BASIS))
        start = self._starts.normal(size=n)
        options: dict[str, Any] = {"k": count, "v0": start, "ncv": basis, "tol": _TOL}
        if self._factors is None:
            try:
                lifted = self._lifted(beside)
                return eigsh(lifted, which="SA", maxiter=_RESTARTS, **options)[1]
            except ArpackNoConvergence:
                shift = _SHIFT * float(self._degrees.mean())
                self._factors = splu(self._laplacian + shift * eye_array(n, format="csc"))
        return eigsh(self._inverse(beside, self._factors), which="LA", **options)[1]

    def _lifted(self, beside: Array) -> LinearOperator:
        """Return the Laplacian with the eigenvalues of known vectors raised above the others."""
        lift = 2.0 * float(self._degrees.max())  # no eigenvalue is larger

        def product(x: Array) -> Array:
            return self._laplacian @ x + lift * (beside @ (beside.T @ x))

        return LinearOperator(self._laplacian.shape, matvec=product, dtype=np.float64)

    def _inverse(self, beside: Array, factors: SuperLU) -> LinearOperator:
        """Return the inverse of the shifted Laplacian, with those of known vectors at 0."""

        def product(x: Array) -> Array:
            y = factors.solve(x - beside @ (beside.T @ x))
            return y - beside @ (beside.T @ y)

        return LinearOperator(self._laplacian.shape, matvec=product, dtype=np.float64)
