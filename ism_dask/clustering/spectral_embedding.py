"""Spectral embedding of the rows of X W: the leading eigenvectors of their normalised graph.

The rows are nodes, an affinity K weighs the edges, and D holds the row sums of K (degrees), each
raised by a share of n. The embedding U is the k leading eigenvectors of
`H D^-1/2 K D^-1/2 H`; in the published one, nothing is raised, and there is no H. If K has a
low-rank factor, everything is a sum over rows and U stays in shards; otherwise the eigenvectors
come from products with tiles of K.

A row of weight w counts as w equal rows, which share their row of U. So `D = K w`, and `w^1/2 U`
are the eigenvectors of the matrix above times `w^1/2` on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.clustering.extension import (
    Extension,
    FactorExtension,
    KernelExtension,
    inverse,
    inverse_roots,
    self_affinity,
)
from ism_dask.engines import (
    Auto,
    Engine,
    EngineOptions,
    ExactEngine,
    LandmarkEngine,
    Problem,
    first_that_serves,
)
from ism_dask.engines.kernel_matvec import kernel_matvec
from ism_dask.engines.row_facts import PROJECTED, with_projection
from ism_dask.gamma.base import Dependence, ThinGamma
from ism_dask.gamma.embedding_guides import EMBEDDING
from ism_dask.kernels import Affinity, Kernel, ValueAsSlope
from ism_dask.linalg.eigen import canonical_signs, leading_eigenpairs_by_products
from ism_dask.rows.column_statistics import ROW_WEIGHTS
from ism_dask.rows.shards import ROWS_PER_SHARD, Shards
from ism_dask.rows.tasks import LoadedShard

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
# Eigenvalues are rounding, and their columns of U are 0, below this share of the largest, or below
# this many times the residual. All are below 1, so that 1e-12 is rounding in any case.
_NULL, _NULL_RESIDUALS, _NULL_VALUE = 1e-8, 10.0, 1e-12
_RESIDUAL_NOTE = "the embedding's eigenvectors are off by {:.1g} of the largest eigenvalue"
_ROUGH_NOTE = "the graph of X W stands on {} landmarks, which may leave {:g} of its trace"


@dataclass(frozen=True)
class Normalisation:
    """How the affinities of rows of X W are chosen and normalised.

    Attributes
    ----------
    narrow : bool
        Whether gaussians get a width of their own, from the distances in X W.
    raised : float
        Share of n, in units of the affinity of a row with itself, that is added to each degree.
    centred : bool
        Whether the normalised matrix is centred, which removes its trivial eigenvector.
    """

    narrow: bool
    raised: float
    centred: bool


# Regularised spectral clustering: without a share, a row that lies apart from all others would be a
# cluster of its own, with the largest possible eigenvalue. Chosen by measurement
# (docs/clustering.md).
REGULARISED = Normalisation(narrow=True, raised=0.3, centred=True)
PUBLISHED = Normalisation(narrow=False, raised=0.0, centred=False)


@dataclass(frozen=True, eq=False)
class Embedding:
    """The embedding of all rows.

    Attributes
    ----------
    values : (k,) array
        The eigenvalues, in descending order.
    shards : Shards
        The projected rows, with the fact `EMBEDDING`.
    engine : str
        Name of the engine that computed the kernel.
    extension : Extension or None
        None for a start from many rows, as the extension would have to hold all of them.
    note : str
        A limitation of the embedding that the user should know; usually empty.
    movement : float
        The least movement from round to round that can be expected: 0 unless the embedding is
        rough.
    """

    values: Array
    shards: Shards
    engine: str
    extension: Extension | None
    note: str = ""
    movement: float = 0.0


@dataclass(frozen=True)
class Graph:
    """The graph of the rows.

    Attributes
    ----------
    affinity : Affinity
    problem : Problem
        A problem whose slopes are the values of the kernel, with a Gamma of ones: its row sums are
        the degrees. Its sample determines widths.
    engine : EngineOptions
        How to compute the affinities.
    normalisation : Normalisation
    weights : (n,) array
        The weights of the rows, which the shards of the problem have as well.
    """

    affinity: Affinity
    problem: Problem
    engine: EngineOptions
    normalisation: Normalisation
    weights: Array

    @classmethod
    def of(
        cls,
        shards: Shards,
        affinity: Affinity,
        engine: EngineOptions,
        normalisation: Normalisation = REGULARISED,
        weights: Array | None = None,
        **parameters: Any,
    ) -> Graph:
        """Return the graph of the rows of `shards`; `Problem` documents `parameters`.

        The sample is among them. An engine that can only compute Phi does not serve the graph:
        `Auto` takes its place.
        """
        weights = np.ones(shards.n_rows) if weights is None else weights
        shards = shards.with_rows(ROW_WEIGHTS, weights)
        ones = Dependence(ThinGamma(np.ones(1)), weights[:, None])
        values = ValueAsSlope.of(affinity.whole)
        problem = Problem.from_dependence(shards, values, ones, **parameters)
        if engine.refusal(problem, 1):
            engine = Auto(blocks=False)
        affinity = replace(affinity, narrow=affinity.narrow and normalisation.narrow)
        return cls(affinity, problem, engine, normalisation, weights)

    def embedded(self, W: Array, k: int) -> Embedding:
        """Return the embedding of X W, for W (d, q)."""
        # W may have further coordinates, in which the rows are constant.
        W = W[: self.problem.d]
        sample = np.asarray(self.problem.sample) @ W
        edges = _Edges(self.affinity.between(sample), self.normalisation, self.weights)
        points = with_projection(self.problem.shards, W).persisted()
        points = points.fact_as_rows(PROJECTED, W.shape[1])
        problem = replace(self.problem, kernel=ValueAsSlope.of(edges.kernel))
        embedded = partial(_by_engine, edges, points, sample, k, extended=True)
        return first_that_serves(list(self._engines(problem, k)), embedded)

    def start(self, k: int) -> Embedding:
        """Return an embedding of X itself, a rough one if there are many rows."""
        problem = self.problem
        edges = _Edges(self.affinity.whole, self.normalisation, self.weights)
        if problem.shards.n_rows <= _DENSE:
            return _by_kernel(edges, problem.shards, k, ExactEngine.name, extended=False)
        sample = np.asarray(problem.sample)
        embedded = partial(_by_engine, edges, problem.shards, sample, k, extended=False)
        return first_that_serves(self.engine.loosened(_START_TOL).engines(problem, k), embedded)

    def _engines(self, problem: Problem, k: int) -> Iterator[Engine]:
        """Yield the engines to try; after landmarks, landmarks with a larger tolerance."""
        for engine in self.engine.engines(problem, k):
            yield engine
            if isinstance(engine, LandmarkEngine) and engine.tol < _ROUGH_TOL:
                yield LandmarkEngine(problem, k, _ROUGH_TOL)


@dataclass(frozen=True)
class _Edges:
    """The affinity of rows of X W, or of X, how it is normalised, and the weights of the rows."""

    kernel: Kernel
    normalisation: Normalisation
    weights: Array

    @cached_property
    def total(self) -> float:
        """The sum of the weights: n, unless rows have some."""
        return float(self.weights.sum())

    @cached_property
    def root_weights(self) -> Array:
        """The roots of the weights (n, 1)."""
        return np.sqrt(self.weights)[:, None]

    @property
    def regulariser(self) -> float:
        """What is added to each degree."""
        return self.normalisation.raised * self.total * self_affinity(self.kernel)

    def means(self, columns: Array) -> Array:
        """Return what centring subtracts from V, given `w^1/2 V` (n, k): (k,)."""
        share = self.normalisation.centred / self.total
        return np.asarray(share * (self.root_weights.T @ columns)[0])


def _by_engine(
    edges: _Edges, points: Shards, sample: Array, k: int, engine: Engine, *, extended: bool
) -> Embedding:
    if isinstance(engine, LandmarkEngine):
        return _by_factor(engine, edges, points, sample, k)
    return _by_kernel(edges, points, k, engine.name, extended=extended)


def _by_factor(
    engine: LandmarkEngine, edges: _Edges, points: Shards, sample: Array, k: int
) -> Embedding:
    """Embed by the m x m Gram matrix of the factor, in O(n m^2)."""
    expansion, moments, _ = engine.expand(points, sample)
    m = expansion.size
    total = moments.ones[0] * np.sqrt(expansion.slope)
    raw = FactorExtension(
        kernel=edges.kernel,
        expansion=expansion,
        total=total,
        degree_regulariser=edges.regulariser,
        mean=np.zeros(m),
        projection=np.eye(m),
    )
    gram, sums = points.fold(_embedding_sums, raw)
    sums *= edges.normalisation.centred
    count = min(k, m)
    values, vectors = scipy.linalg.eigh(
        gram - np.outer(sums, sums) / edges.total, subset_by_index=[m - count, m - 1]
    )
    values, vectors = _zero_rounding(_padded(values[::-1], k), _NULL), _padded(vectors[:, ::-1], k)
    # U = B V S^-1; the eigenvalues are S^2.
    projection = vectors * inverse_roots(values)
    extension = replace(raw, mean=sums / edges.total, projection=projection)
    rough = engine.tol >= _ROUGH_TOL
    note = _ROUGH_NOTE.format(m, engine.tol) if rough else ""
    shards = points.derive(EMBEDDING, _embed_rows, extension).persisted()
    return Embedding(values, shards, engine.name, extension, note, _ROUGH_MOVEMENT * rough)


def _embedding_sums(piece: LoadedShard, extension: FactorExtension) -> tuple[Array, Array]:
    rows, _ = extension.normalised(piece.X.astype(np.float64))
    roots = np.sqrt(piece.facts[ROW_WEIGHTS])
    rows *= roots[:, None]
    return rows.T @ rows, roots @ rows


def _embed_rows(piece: LoadedShard, extension: Extension) -> Array:
    return extension(piece.X)


def _by_kernel(edges: _Edges, points: Shards, k: int, engine: str, *, extended: bool) -> Embedding:
    """Embed by products with the kernel: dense if it is one tile, otherwise tile by tile."""
    kernel, n, dense = edges.kernel, points.n_rows, points.n_rows <= _DENSE
    all_rows = points.rows(np.arange(n)) if dense or extended else None
    if dense and all_rows is not None:
        times = partial(np.matmul, kernel.matrix(all_rows, all_rows))
    else:
        times = partial(kernel_matvec, points, kernel)
    roots = inverse_roots(times(edges.weights[:, None])[:, 0] + edges.regulariser)
    tol = max(_ROUNDINGS * float(np.finfo(points.dtype).eps), _SMALLEST_TOL)
    pairs = leading_eigenpairs_by_products(
        partial(_normalised_product, times, roots, edges), n, min(k, n - 1), tol
    )
    values = _zero_rounding(_padded(pairs.values, k), max(_NULL, _NULL_RESIDUALS * pairs.residual))
    U = inverse(edges.root_weights) * _padded(pairs.vectors, k)
    U = canonical_signs(U) * (values > 0)
    not_converged = pairs.residual > tol and values.any()
    note = _RESIDUAL_NOTE.format(pairs.residual) if not_converged else ""
    if all_rows is None:
        return Embedding(values, _with_roots(points, U, roots), engine, None, note)
    # One more product makes U equal to what the extension returns for the same rows.
    weights = (edges.weights * roots)[:, None] * U * inverse(values)
    raw = roots[:, None] * times(weights)
    offset = edges.means(edges.root_weights * raw)
    weights = np.column_stack([weights, edges.weights])
    extension = KernelExtension(kernel, all_rows, edges.regulariser, weights, offset)
    return Embedding(values, _with_roots(points, raw - offset, roots), engine, extension, note)


def _with_roots(points: Shards, U: Array, roots: Array) -> Shards:
    return points.with_rows(EMBEDDING, np.column_stack([U, roots]))


def _normalised_product(
    times: Callable[[Array], Array], roots: Array, edges: _Edges, V: Array
) -> Array:
    """Return `H D^-1/2 K D^-1/2 H V` (n, b), without H if the matrix is not centred.

    If rows have weights w, V and the result are multiplied by `w^1/2`.
    """
    scale = edges.root_weights * roots[:, None]
    product = scale * times(scale * (V - edges.root_weights * edges.means(V)))
    return np.asarray(product - edges.root_weights * edges.means(product))


def _zero_rounding(values: Array, share: float) -> Array:
    """Return the eigenvalues (k,) with those that are rounding set to 0."""
    least = max(share * values.max(initial=0.0), _NULL_VALUE)
    return np.where(values > least, values, 0.0)


def _padded(columns: Array, k: int) -> Array:
    """Return (..., k) columns: the given ones, then zeros."""
    missing = k - columns.shape[-1]
    return np.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, missing)])
