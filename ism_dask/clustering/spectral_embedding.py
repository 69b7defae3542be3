"""Spectral embedding: what the graph of the rows of X W says of their clusters.

Rows are nodes, an affinity K weighs the edges, D holds its row sums, each raised by a share of
n. The embedding U is the k leading eigenvectors of `H D^-1/2 K D^-1/2 H`. Where K has a thin
factor, all of it is sums over rows, and U stays in shards; else products with tiles of K.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.utils import gen_batches

from ism_dask._types import Array
from ism_dask.engines import (
    ENGINES,
    Engine,
    Exact,
    Landmarks,
    Problem,
    candidate_engines,
    first_that_serves,
)
from ism_dask.engines.kernel_matvec import kernel_matvec, kernel_values
from ism_dask.engines.lowrank.row_sums import FactoredSlope
from ism_dask.engines.tile_walk import project_piece
from ism_dask.gamma.base import Dependence, ThinGamma
from ism_dask.kernels import Affinity, Kernel, ValueAsSlope
from ism_dask.linalg.eigen import canonical_signs, leading_eigenpairs_by_products
from ism_dask.rows import ROWS_PER_SHARD, LoadedShard, Shards

# Up to here the whole matrix is one tile.
_DENSE = ROWS_PER_SHARD
# What landmarks may leave of the trace where only a start is wanted, in the space of all
# features: there a kernel is far from low rank, but its leading eigenvectors are not.
_START_TOL = 0.5
# The same of a narrow kernel of X W, which is not of low rank either: eigenvalues were then right
# to 0.8%, eigenvectors to an angle of 0.01 (10,000 images, 776 landmarks; `outer_tol` is 0.01).
_ROUGH_TOL = 0.3
# Residual of eigenvectors by products with tiles, relative to the largest eigenvalue: in roundings,
# and the least that is worth a pass over all tiles.
_ROUNDINGS, _LEAST_TOL = 100.0, 1e-9
# Eigenvalues below this share of the largest, or this many times what they are known to, are
# rounding: their columns of U are 0. All are below 1, so that 1e-12 is rounding in any case.
_NULL, _UNKNOWN, _NOTHING = 1e-8, 10.0, 1e-12
# Share of n that is added to each degree, where 1 is the affinity of a row with itself
# (regularised spectral clustering): a row that lies apart from all others would else be a cluster
# of its own, with the largest eigenvalue there is. Chosen by measurement (docs/clustering.md).
_BALLAST = 0.3
_UNSURE = "the embedding's eigenvectors are off by {:.1g} of the largest eigenvalue"
_ROUGH = "the graph of X W stands on {} landmarks, which may leave {:g} of its trace"
# Rows that are embedded at a time.
_ROWS_AT_ONCE = 1024


class Extension(ABC):
    """What embeds projected rows, whether they were in the fit or not.

    Attributes
    ----------
    kernel : Kernel
        The affinity.
    """

    kernel: Kernel

    @abstractmethod
    def __call__(self, Z: Array) -> Array:
        """Return the (b, k) rows of U of rows Z (b, q), beside them `D^-1/2`: (b, k + 1)."""


@dataclass(frozen=True, eq=False)
class Embedding:
    """The embedding of all rows.

    Attributes
    ----------
    values : (k,) array
        The eigenvalues, falling.
    shards : Shards
        The projected rows, their last fact being U and `D^-1/2`, (b, k + 1).
    engine : str
        How the kernel was come by.
    extension : Extension or None
        None for a start from many rows, which would have to be kept.
    note : str
        What a user should know of how it came about; most often nothing.
    """

    values: Array
    shards: Shards
    engine: str
    extension: Extension | None
    note: str = ""


@dataclass(frozen=True)
class Graph:
    """The rows as nodes.

    Attributes
    ----------
    affinity : Affinity
    problem : Problem
        Of the values of a kernel with a Gamma of ones: sums of these are degrees.
    sample : (s, d) array
        Some of the rows, for widths.
    engine : str
        How to come by them: a name of `ENGINES`, or "auto".
    """

    affinity: Affinity
    problem: Problem
    sample: Array
    engine: str

    @classmethod
    def of(
        cls, shards: Shards, affinity: Affinity, engine: str, *, sample: Array, **approximation: Any
    ) -> Graph:
        """Return the graph of the rows of `shards`; see `Problem` for `approximation`."""
        ones = Dependence(ThinGamma(np.ones(1)), np.ones((shards.n_rows, 1)))
        values = ValueAsSlope.of(affinity.whole)
        problem = Problem.of(shards, values, ones, sample=sample, **approximation)
        # An engine that serves Phi alone leaves the graph to others.
        kind = ENGINES.get(engine)
        name = "auto" if kind is not None and kind.refusal(problem, 1) else engine
        return cls(affinity, problem, sample, name)

    def embedded(self, W: Array, k: int) -> Embedding:
        """Return the embedding of X W, for W (d, q)."""
        # Directions in which the rows are constant may come after those.
        W = W[: self.problem.d]
        sample = self.sample @ W
        kernel = self.affinity.between(sample)
        points = self.problem.shards.derive(project_piece, W).settled().through(W.shape[1])

        def embedded(engine: Engine) -> Embedding:
            if isinstance(engine, Landmarks):
                return _by_factor(engine, kernel, points, sample, k)
            return _by_kernel(kernel, points, k, engine.name, extended=True)

        problem = replace(self.problem, kernel=ValueAsSlope.of(kernel))
        return first_that_serves(list(self._ways(problem, k)), embedded)

    def start(self, k: int) -> Embedding:
        """Return an embedding of X itself, of many rows roughly."""
        problem, kernel = self.problem, self.affinity.whole
        if problem.shards.n_rows <= _DENSE:
            return _by_kernel(kernel, problem.shards, k, Exact.name, extended=False)

        def embedded(engine: Engine) -> Embedding:
            if isinstance(engine, Landmarks):
                return _by_factor(engine, kernel, problem.shards, engine.sample, k)
            return _by_kernel(kernel, problem.shards, k, engine.name, extended=False)

        rough = replace(problem, engine_tol=max(_START_TOL, problem.engine_tol))
        return first_that_serves(candidate_engines(self.engine, rough, k), embedded)

    def _ways(self, problem: Problem, k: int) -> Iterator[Engine]:
        """Yield the engines to try; landmarks that decline may still do roughly."""
        for engine in candidate_engines(self.engine, problem, k):
            yield engine
            if isinstance(engine, Landmarks) and problem.engine_tol < _ROUGH_TOL:
                yield Landmarks(replace(problem, engine_tol=_ROUGH_TOL), k)


@dataclass(frozen=True, eq=False)
class FactorExtension(Extension):
    """The embedding by a factor F of the kernel: `U = H D^-1/2 F V S^-1`.

    Attributes
    ----------
    kernel : Kernel
        The affinity.
    expansion : Expansion
    total : (m,) array
        The sum of F over all rows.
    ballast : float
        What is added to every degree.
    mean : (m,) array
        Of `D^-1/2 F`.
    projection : (m, k) array
        `V S^-1`.
    """

    kernel: Kernel
    expansion: FactoredSlope
    total: Array
    ballast: float
    mean: Array
    projection: Array

    def __call__(self, Z: Array) -> Array:
        """Return U and `D^-1/2`, side by side."""
        rows, roots = self.normalised(Z.astype(np.float64))
        return np.column_stack([(rows - self.mean) @ self.projection, roots])

    def normalised(self, Z: Array) -> tuple[Array, Array]:
        """Return `D^-1/2 F` (b, m) and `D^-1/2` (b,) of Z (b, q)."""
        F = self.expansion.factor(Z) * np.sqrt(self.expansion.slope)
        own = _of_a_row_with_itself(self.kernel)
        # What the factor leaves out of a row's nearness to itself is known, and keeps the degree
        # of rows that no landmark is near to away from 0.
        degrees = F @ self.total + np.maximum(own - np.einsum("ij,ij->i", F, F), 0.0)
        roots = _inverse_roots(degrees + self.ballast)
        return F * roots[:, None], roots


@dataclass(frozen=True, eq=False)
class KernelExtension(Extension):
    """The embedding by the kernel with all rows of the fit.

    Attributes
    ----------
    kernel : Kernel
    rows : (n, q) array
        All of them, projected.
    ballast : float
        What is added to every degree.
    weights : (n, k + 1) array
        `D^-1/2 U L^-1`, and ones.
    offset : (k,) array
        What centring takes off.
    """

    kernel: Kernel
    rows: Array
    ballast: float
    weights: Array
    offset: Array

    def __call__(self, Z: Array) -> Array:
        """Return U and `D^-1/2`, side by side."""
        sums = np.concatenate(
            [
                kernel_values(self.kernel, Z[batch], self.rows) @ self.weights
                for batch in gen_batches(len(Z), _ROWS_AT_ONCE)
            ]
        )
        roots = _inverse_roots(sums[:, -1] + self.ballast)
        return np.column_stack([sums[:, :-1] * roots[:, None] - self.offset, roots])


def _by_factor(
    engine: Landmarks, kernel: Kernel, points: Shards, sample: Array, k: int
) -> Embedding:
    """Embed by the m x m Gram matrix of the factor: O(n m^2)."""
    expansion, moments, _ = engine.expand(points, sample)
    m = expansion.size
    total = moments.ones[0] * np.sqrt(expansion.slope)
    raw = FactorExtension(
        kernel=kernel,
        expansion=expansion,
        total=total,
        ballast=_diagonal_regulariser(kernel, points.n_rows),
        mean=np.zeros(m),
        projection=np.eye(m),
    )
    gram, sums = points.fold(_gram_sums, raw)
    found = min(k, m)
    values, vectors = scipy.linalg.eigh(
        gram - np.outer(sums, sums) / points.n_rows, subset_by_index=[m - found, m - 1]
    )
    values, vectors = _zero_rounding(_filled(values[::-1], k), _NULL), _filled(vectors[:, ::-1], k)
    # U = B V S^-1, where S^2 are the eigenvalues.
    projection = vectors * _inverse_roots(values)
    extension = replace(raw, mean=sums / points.n_rows, projection=projection)
    left = engine.problem.engine_tol
    note = _ROUGH.format(m, left) if left >= _ROUGH_TOL else ""
    shards = points.derive(_extended, extension).settled()
    return Embedding(values, shards, engine.name, extension, note)


def _gram_sums(piece: LoadedShard, extension: FactorExtension) -> tuple[Array, Array]:
    rows, _ = extension.normalised(piece.X.astype(np.float64))
    return rows.T @ rows, rows.sum(axis=0)


def _extended(piece: LoadedShard, extension: Extension) -> Array:
    return extension(piece.X)


def _by_kernel(kernel: Kernel, points: Shards, k: int, engine: str, *, extended: bool) -> Embedding:
    """Embed by products with the kernel: dense where it is one tile, else tile by tile."""
    n, dense = points.n_rows, points.n_rows <= _DENSE
    every = points.rows(np.arange(n)) if dense or extended else None
    if dense and every is not None:
        times = partial(np.matmul, kernel_values(kernel, every, every))
    else:
        times = partial(kernel_matvec, points, kernel)
    ballast = _diagonal_regulariser(kernel, n)
    roots = _inverse_roots(times(np.ones((n, 1)))[:, 0] + ballast)
    tol = max(_ROUNDINGS * float(np.finfo(points.dtype).eps), _LEAST_TOL)
    found = leading_eigenpairs_by_products(
        partial(_normalised, times, roots), n, min(k, n - 1), tol
    )
    values = _zero_rounding(_filled(found.values, k), max(_NULL, _UNKNOWN * found.residual))
    U = canonical_signs(_filled(found.vectors, k)) * (values > 0)
    unsure = found.residual > tol and values.any()
    note = _UNSURE.format(found.residual) if unsure else ""
    if every is None:
        return Embedding(values, _with_roots(points, U, roots), engine, None, note)
    # One more product makes U what the extension makes of the same rows.
    weights = roots[:, None] * U * _inverse(values)
    raw = roots[:, None] * times(weights)
    offset = raw.mean(axis=0)
    extension = KernelExtension(
        kernel, every, ballast, np.column_stack([weights, np.ones(n)]), offset
    )
    return Embedding(values, _with_roots(points, raw - offset, roots), engine, extension, note)


def _with_roots(points: Shards, U: Array, roots: Array) -> Shards:
    return points.with_rows(np.column_stack([U, roots]))


def _normalised(times: Callable[[Array], Array], roots: Array, V: Array) -> Array:
    """Return `H D^-1/2 K D^-1/2 H V` (n, b)."""
    product = roots[:, None] * times(roots[:, None] * (V - V.mean(axis=0)))
    return np.asarray(product - product.mean(axis=0))


def _diagonal_regulariser(kernel: Kernel, n: int) -> float:
    return _BALLAST * n * _of_a_row_with_itself(kernel)


def _of_a_row_with_itself(kernel: Kernel) -> float:
    """Return what an affinity, which goes by distances, is at none."""
    row = np.zeros((1, 1))
    return float(kernel_values(kernel, row, row)[0, 0])


def _zero_rounding(values: Array, share: float) -> Array:
    """Return the eigenvalues (k,) with those that are rounding set to 0."""
    least = max(share * values.max(initial=0.0), _NOTHING)
    return np.where(values > least, values, 0.0)


def _inverse(values: Array) -> Array:
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _inverse_roots(values: Array) -> Array:
    """Return `values^-1/2`, 0 where they are: what is joined to nothing has no place."""
    return np.sqrt(_inverse(values))


def _filled(columns: Array, k: int) -> Array:
    """Return (..., k) columns, zeros behind those there are."""
    missing = k - columns.shape[-1]
    return np.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, missing)])
