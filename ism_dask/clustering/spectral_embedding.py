"""Spectral embedding of the rows of X W: the leading eigenvectors of their normalised graph.

The rows are nodes, an affinity K weighs the edges, and D holds the row sums of K (degrees), each
raised by a share of n. The embedding U is the k leading eigenvectors of
`H D^-1/2 K D^-1/2 H`; in the published one, nothing is raised, and there is no H. If K has a
low-rank factor, everything is a sum over rows and U stays in shards; otherwise the eigenvectors
come from products with tiles of K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines import Engine, EngineOptions, LandmarkEngine, Problem, first_that_serves
from ism_dask.engines.lowrank.row_sums import FactoredSlope
from ism_dask.engines.tile_sums import kernel_matvec
from ism_dask.engines.tiles import PROJECTED, with_projection
from ism_dask.gamma.base import Dependence, Gamma
from ism_dask.gamma.embedding_guides import EMBEDDING, column_sums
from ism_dask.kernels import Affinity, Kernel, ValueAsSlope
from ism_dask.linalg.eigen import leading_eigenpairs_by_products
from ism_dask.linalg.subspaces import canonical_signs
from ism_dask.rows.raw import LoadedShard
from ism_dask.rows.shards import ROWS_PER_SHARD, Shards

# Up to this number of rows the whole matrix is one tile.
_DENSE = ROWS_PER_SHARD
# Share of the trace that landmarks may leave out for a start in the space of all features: there a
# kernel is far from low rank, but its leading eigenvectors are not.
_START_TOL = 0.5
# The same share for a narrow kernel of X W, which is not of low rank either. Eigenvalues were then
# right to 0.8%, eigenvectors to an angle of 0.01, which is also the default `outer_tol` (10,000
# images, 776 landmarks).
_ROUGH_TOL = 0.3
# The movement of W and the embedding from round to round that such landmarks cause, which are
# chosen anew for each W: without end it was 0.011 to 0.014 (10,000 images).
_ROUGH_MOVEMENT = 0.03
# Residual at which eigenvectors by products with tiles have converged, relative to the largest
# eigenvalue: in roundings, but no smaller than is worth a pass over all tiles.
_ROUNDINGS, _SMALLEST_TOL = 100.0, 1e-9
# The share of n that raises each degree, in units of the affinity of a row with itself. Without it,
# a row that lies apart from all others would be a cluster of its own, with the largest possible
# eigenvalue. Chosen by measurement (docs/clustering.md).
_RAISED = 0.3
# Eigenvalues are rounding, and their columns of U are 0, below this share of the largest, or below
# this many times the residual. All are below 1, so that 1e-12 is rounding in any case.
_NULL, _NULL_RESIDUALS, _NULL_VALUE = 1e-8, 10.0, 1e-12


@dataclass(frozen=True, eq=False)
class FactorExtension:
    """The embedding of any projected rows by a low-rank factor F: `U = H D^-1/2 F V S^-1`.

    The expansion maps rows to F, which has these sums (m,) over the rows of the fit. The mean (m,)
    is that of `D^-1/2 F`, the projection (m, k) `V S^-1`, and each degree is raised.
    """

    kernel: Kernel
    expansion: FactoredSlope
    sums: Array
    raised: float
    mean: Array
    projection: Array

    def __call__(self, Z: Array) -> Array:
        """Return the rows of U for the rows Z (b, q), and `D^-1/2` beside them: (b, k + 1)."""
        rows, roots = self.normalised(Z.astype(np.float64))
        return np.column_stack([(rows - self.mean) @ self.projection, roots])

    def normalised(self, Z: Array) -> tuple[Array, Array]:
        """Return `D^-1/2 F` (b, m) and `D^-1/2` (b,) of Z (b, q)."""
        F = self.expansion.factor(Z) * np.sqrt(self.expansion.slope)
        # The part of a row's affinity with itself that the factor leaves out is known exactly.
        # Added, it keeps the degrees of rows far from all landmarks above 0.
        omitted = np.maximum(_self_affinity(self.kernel) - np.einsum("ij,ij->i", F, F), 0.0)
        roots = _inverse_roots(F @ self.sums + omitted + self.raised)
        return F * roots[:, None], roots


@dataclass(frozen=True, eq=False)
class KernelExtension:
    """The embedding of any projected rows by the kernel with all projected rows of the fit (n, q).

    The weights (n, k + 1) are `D^-1/2 U L^-1` and ones, the offset (k,) is what centring subtracts,
    and each degree is raised.
    """

    kernel: Kernel
    rows: Array
    raised: float
    weights: Array
    offset: Array

    def __call__(self, Z: Array) -> Array:
        """Return the rows of U for the rows Z (b, q), and `D^-1/2` beside them: (b, k + 1)."""
        sums = self.kernel.matrix(Z, self.rows) @ self.weights
        roots = _inverse_roots(sums[:, -1] + self.raised)
        return np.column_stack([sums[:, :-1] * roots[:, None] - self.offset, roots])


# Maps projected rows to their embedding, also rows that were not in the fit.
Extension: TypeAlias = FactorExtension | KernelExtension


@dataclass(frozen=True, eq=False)
class Embedding:
    """The embedding of all rows, with its eigenvalues (k,) in descending order.

    The shards are those of projected rows, with the fact `EMBEDDING`. A start from many rows has no
    extension, which would have to hold all of them. The note is a limitation that the user should
    know, and `movement` the least movement from round to round that can be expected: 0 unless the
    embedding is rough.
    """

    values: Array
    shards: Shards
    extension: Extension | None
    note: str = ""
    movement: float = 0.0


@dataclass(frozen=True)
class Graph:
    """The graph of the rows: regularised, or as published.

    In the regularised one gaussians get a width of their own, from the distances in X W, each
    degree is raised, and the normalised matrix is centred: it loses its trivial eigenvector.

    The slopes of the problem are the values of the kernel, and its Gamma has ones, so that its row
    sums are the degrees. Its sample determines widths. The engine computes the affinities.
    """

    affinity: Affinity
    problem: Problem
    engine: EngineOptions
    published: bool

    @classmethod
    def from_shards(
        cls,
        shards: Shards,
        affinity: Affinity,
        engine: EngineOptions,
        *,
        published: bool = False,
        **parameters: Any,
    ) -> Graph:
        """Return the graph of the rows of `shards`; `Problem` documents `parameters`.

        The sample is among them. An engine that can only compute Phi does not serve the graph:
        "auto" takes its place.
        """
        ones = Dependence(Gamma(np.ones(1)), np.ones((shards.n_rows, 1)))
        values = affinity.whole.mapped(ValueAsSlope)
        problem = Problem.from_dependence(shards, values, ones, **parameters)
        if engine.refusal(problem):
            engine = EngineOptions()
        affinity = replace(affinity, narrow=affinity.narrow and not published)
        return cls(affinity, problem, engine, published)

    def start(self, k: int) -> Embedding:
        """Return an embedding of X itself, a rough one if there are many rows."""
        problem, kernel = self.problem, self.affinity.whole
        if problem.shards.n_rows <= _DENSE:
            return self._by_kernel(kernel, problem.shards, k, extended=False)
        sample = np.asarray(problem.sample)
        engine = replace(self.engine, tol=max(_START_TOL, self.engine.tol))
        embed = partial(self._by_engine, kernel, problem.shards, sample, k, extended=False)
        return first_that_serves(engine.engines(problem, k), embed)

    def embedded(self, W: Array, k: int) -> Embedding:
        """Return the embedding of X W, for W (d, q)."""
        # W may have further coordinates, in which the rows are constant.
        W = W[: self.problem.d]
        sample = np.asarray(self.problem.sample) @ W
        kernel = self.affinity.between(sample)
        points = with_projection(self.problem.shards, W).persisted()
        points = points.fact_as_rows(PROJECTED, W.shape[1])
        problem = replace(self.problem, kernel=kernel.mapped(ValueAsSlope))
        embed = partial(self._by_engine, kernel, points, sample, k, extended=True)
        engines: list[Engine] = []
        for engine in self.engine.engines(problem, k):
            engines.append(engine)
            # After landmarks, landmarks with a larger tolerance.
            if isinstance(engine, LandmarkEngine) and engine.tol < _ROUGH_TOL:
                engines.append(LandmarkEngine(problem, k, _ROUGH_TOL))
        return first_that_serves(engines, embed)

    def _by_engine(
        self,
        kernel: Kernel,
        points: Shards,
        sample: Array,
        k: int,
        engine: Engine,
        *,
        extended: bool,
    ) -> Embedding:
        """Embed by the kernel, or with landmarks by the m x m Gram matrix of the factor."""
        if not isinstance(engine, LandmarkEngine):
            return self._by_kernel(kernel, points, k, extended=extended)
        expansion, moments, _ = engine.expand(points, sample)
        m, size = expansion.size, points.n_rows
        sums = moments[0, :, 0] * np.sqrt(expansion.slope)
        raised = self._raised(kernel, size)
        raw = FactorExtension(kernel, expansion, sums, raised, np.zeros(m), projection=np.eye(m))
        gram, means = points.fold(_embedding_sums, raw)
        means *= (not self.published) / size
        count = min(k, m)
        values, vectors = scipy.linalg.eigh(
            gram - size * np.outer(means, means), subset_by_index=[m - count, m - 1]
        )
        values = _without_rounding(_padded(values[::-1], k), _NULL)
        # U = B V S^-1; the eigenvalues are S^2.
        projection = _padded(vectors[:, ::-1], k) * _inverse_roots(values)
        extension = replace(raw, mean=means, projection=projection)
        shards = points.derive(EMBEDDING, _embed_rows, extension).persisted()
        if engine.tol < _ROUGH_TOL:
            return Embedding(values, shards, extension)
        note = (
            f"the graph of X W stands on {m} landmarks, which may leave {engine.tol:g} of its trace"
        )
        return Embedding(values, shards, extension, note, _ROUGH_MOVEMENT)

    def _by_kernel(self, kernel: Kernel, points: Shards, k: int, *, extended: bool) -> Embedding:
        """Embed by products with the kernel: dense if it is one tile, otherwise tile by tile."""
        n, dense = points.n_rows, points.n_rows <= _DENSE
        all_rows = points.rows(np.arange(n)) if dense or extended else None
        times: Callable[[Array], Array] = partial(kernel_matvec, points, kernel)
        if dense and all_rows is not None:
            times = partial(np.matmul, kernel.matrix(all_rows, all_rows))
        raised = self._raised(kernel, n)
        roots = _inverse_roots(times(np.ones((n, 1)))[:, 0] + raised)[:, None]

        def means(columns: Array) -> Array:
            """Return what centring subtracts from columns (n, k): (k,)."""
            return (not self.published) / n * column_sums(columns)

        def normalised_product(V: Array) -> Array:
            """Return `H D^-1/2 K D^-1/2 H V` (n, b)."""
            product = roots * times(roots * (V - means(V)))
            return np.asarray(product - means(product))

        tol = max(_ROUNDINGS * float(np.finfo(points.dtype).eps), _SMALLEST_TOL)
        values, V, off = leading_eigenpairs_by_products(normalised_product, n, min(k, n - 1), tol)
        values = _without_rounding(_padded(values, k), max(_NULL, _NULL_RESIDUALS * off))
        U = canonical_signs(_padded(V, k)) * (values > 0)
        note = ""
        if off > tol and values.any():
            note = f"the embedding's eigenvectors are off by {off:.1g} of the largest eigenvalue"
        extension = None
        if all_rows is not None:
            # One more product makes U equal to what the extension returns for the same rows.
            weights = roots * U * _inverse(values)
            raw = roots * times(weights)
            offset = means(raw)
            weights, U = np.column_stack([weights, np.ones(n)]), raw - offset
            extension = KernelExtension(kernel, all_rows, raised, weights, offset)
        shards = points.with_rows(EMBEDDING, np.column_stack([U, roots]))
        return Embedding(values, shards, extension, note)

    def _raised(self, kernel: Kernel, n: int) -> float:
        """Return what is added to each degree in a graph of n rows."""
        return 0.0 if self.published else _RAISED * n * _self_affinity(kernel)


def _embedding_sums(piece: LoadedShard, extension: FactorExtension) -> tuple[Array, Array]:
    rows, _ = extension.normalised(piece.X.astype(np.float64))
    return rows.T @ rows, column_sums(rows)


def _embed_rows(piece: LoadedShard, extension: Extension) -> Array:
    return extension(piece.X)


def _self_affinity(kernel: Kernel) -> float:
    """Return the affinity of a row with itself: an affinity depends on the distance, here 0."""
    return float(kernel.own(np.zeros((1, 1)))[0])


def _inverse(values: Array) -> Array:
    """Return the reciprocals of values, and 0 for values of 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _inverse_roots(values: Array) -> Array:
    """Return `values^-1/2`, and 0 for values of 0: an isolated row has no embedding."""
    return np.sqrt(_inverse(values))


def _without_rounding(values: Array, share: float) -> Array:
    """Return the eigenvalues (k,) with those that are rounding set to 0."""
    least = max(share * values.max(initial=0.0), _NULL_VALUE)
    return np.where(values > least, values, 0.0)


def _padded(columns: Array, k: int) -> Array:
    """Return (..., k) columns: the given ones, then zeros."""
    missing = k - columns.shape[-1]
    return np.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, missing)])
