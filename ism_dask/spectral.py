"""Spectral embedding: what the graph of the rows of X W says of their clusters.

Rows are nodes, an affinity K weighs the edges, D holds its row sums. The embedding U is the k
leading eigenvectors of `H D^-1/2 K D^-1/2 H`. Where K has a thin factor, all of it is sums over
rows, and U stays in shards; else products with tiles of K.
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

from ism_dask.eigen import canonical_signs, leading_by_products
from ism_dask.engines import ENGINES, Engine, Exact, Landmarks, Problem, attempt, candidates
from ism_dask.engines.base import projected
from ism_dask.engines.cholesky import shape_diagonal
from ism_dask.engines.expansion import Expansion
from ism_dask.engines.product import Points, points_of, product, values_between
from ism_dask.gamma import Dependence, FactorGamma
from ism_dask.kernels import Kernel, Values
from ism_dask.shards import ROWS_PER_SHARD, Piece, Shards
from ism_dask.typing import Array

# Up to here the whole matrix is one tile.
_DENSE = ROWS_PER_SHARD
# What landmarks may leave of the trace where only a start is wanted, in the space of all
# features: there a kernel is far from low rank, but its leading eigenvectors are not.
_START_TOL = 0.5
# Eigenvalues below this share of the largest are rounding: their columns of U are left 0.
_NULL = 1e-10
# Mean degrees, added to each (regularised spectral clustering): a row that lies apart from all
# others would else be a cluster of its own, with the largest eigenvalue there is. One is what the
# theory asks for, and with it all five data sets were clustered best (0, 0.03, 0.1, 0.3 tried).
_BALLAST = 1.0
# Rows that are embedded at a time.
_ROWS_AT_ONCE = 1024
# Residual of eigenvectors by products with tiles, in roundings of these.
_ROUNDINGS = 100.0


class Extension(ABC):
    """What embeds projected rows, whether they were in the fit or not."""

    @abstractmethod
    def __call__(self, points: Points) -> Array:
        """Return the (b, k) rows of U, and beside them `D^-1/2` of each: (b, k + 1)."""


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
    """

    values: Array
    shards: Shards
    engine: str
    extension: Extension | None


@dataclass(frozen=True)
class Graph:
    """The rows as nodes.

    Attributes
    ----------
    kernel : Kernel
        The affinity, with nothing left to resolve.
    problem : Problem
        Of its values with a Gamma of ones: sums of these are degrees.
    engine : str
        How to come by them: a name of `ENGINES`, or "auto".
    """

    kernel: Kernel
    problem: Problem
    engine: str

    @classmethod
    def of(cls, shards: Shards, kernel: Kernel, engine: str, **approximation: Any) -> Graph:
        """Return the graph of the rows of `shards`; see `Problem` for `approximation`."""
        ones = Dependence(FactorGamma(np.ones(1)), np.ones((shards.n_rows, 1)))
        problem = Problem.of(shards, Values.of(kernel), ones, **approximation)
        # An engine that serves Phi alone leaves the graph to others.
        kind = ENGINES.get(engine)
        name = "auto" if kind is not None and kind.refusal(problem, 1) else engine
        return cls(kernel.carried(_nothing_of), problem, name)

    def embedded(self, W: Array, k: int) -> Embedding:
        """Return the embedding of X W, for W (d, q)."""
        points = self.problem.shards.derive(projected, W).settled().through(W.shape[1])
        return self._attempted(self.problem, points, W, k)

    def start(self, k: int) -> Embedding:
        """Return an embedding of X itself, of many rows roughly."""
        problem = self.problem
        if problem.shards.n_rows <= _DENSE:
            return _by_kernel(Exact(problem, k), self.kernel, problem.shards, k, extended=False)
        rough = replace(problem, engine_tol=max(_START_TOL, problem.engine_tol))
        return self._attempted(rough, rough.shards, None, k)

    def _attempted(self, problem: Problem, points: Shards, W: Array | None, k: int) -> Embedding:
        def embedded(engine: Engine) -> Embedding:
            if not isinstance(engine, Landmarks):
                return _by_kernel(engine, self.kernel, points, k, extended=W is not None)
            sample = engine.sample
            return _by_factor(engine, points, sample if W is None else sample @ W, k)

        return attempt(candidates(self.engine, problem, k), embedded)


@dataclass(frozen=True, eq=False)
class FactorExtension(Extension):
    """The embedding by a factor F of the kernel: `U = H D^-1/2 F V S^-1`.

    Attributes
    ----------
    kernel : Kernel
        Whose slopes are the values of the affinity.
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
    expansion: Expansion
    total: Array
    ballast: float
    mean: Array
    projection: Array

    def __call__(self, points: Points) -> Array:
        """Return U and `D^-1/2`, side by side."""
        rows, roots = self.normalised(points.Z.astype(np.float64))
        return np.column_stack([(rows - self.mean) @ self.projection, roots])

    def normalised(self, Z: Array) -> tuple[Array, Array]:
        """Return `D^-1/2 F` (b, m) and `D^-1/2` (b,) of Z (b, q)."""
        F = self.expansion.columns(Z) * np.sqrt(self.expansion.slope)
        own = sum(weight * shape_diagonal(term, Z) for weight, term in self.kernel.terms)
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
    points : Points
        All rows, projected.
    ballast : float
        What is added to every degree.
    weights : (n, k + 1) array
        `D^-1/2 U L^-1`, and ones.
    offset : (k,) array
        What centring takes off.
    """

    kernel: Kernel
    points: Points
    ballast: float
    weights: Array
    offset: Array

    def __call__(self, points: Points) -> Array:
        """Return U and `D^-1/2`, side by side."""
        sums = np.concatenate(
            [
                values_between(self.kernel, points.part(rows), self.points) @ self.weights
                for rows in _batches(len(points.Z))
            ]
        )
        roots = _inverse_roots(sums[:, -1] + self.ballast)
        return np.column_stack([sums[:, :-1] * roots[:, None] - self.offset, roots])


def _by_factor(engine: Landmarks, points: Shards, sample: Array, k: int) -> Embedding:
    """Embed by the m x m Gram matrix of the factor: O(n m^2)."""
    expansion, moments, _ = engine.expand(points, sample)
    m = expansion.size
    total = moments.ones[0] * np.sqrt(expansion.slope)
    raw = FactorExtension(
        kernel=engine.problem.kernel,
        expansion=expansion,
        total=total,
        ballast=_BALLAST * float(total @ total) / points.n_rows,
        mean=np.zeros(m),
        projection=np.eye(m),
    )
    gram, sums = points.fold(_gram_sums, raw)
    found = min(k, m)
    values, vectors = scipy.linalg.eigh(
        gram - np.outer(sums, sums) / points.n_rows, subset_by_index=[m - found, m - 1]
    )
    values, vectors = _filled(values[::-1], k), _filled(vectors[:, ::-1], k)
    # U = B V S^-1, where S^2 are the eigenvalues.
    projection = vectors * _inverse_roots(_known(values))
    extension = replace(raw, mean=sums / points.n_rows, projection=projection)
    return Embedding(values, points.derive(_extended, extension).settled(), engine.name, extension)


def _gram_sums(piece: Piece, extension: FactorExtension) -> tuple[Array, Array]:
    rows, _ = extension.normalised(piece.X.astype(np.float64))
    return rows.T @ rows, rows.sum(axis=0)


def _extended(piece: Piece, extension: Extension) -> Array:
    return extension(Points(piece.X))


def _by_kernel(
    engine: Engine, kernel: Kernel, points: Shards, k: int, *, extended: bool
) -> Embedding:
    """Embed by products with the kernel: dense where it is one tile, else tile by tile."""
    n, dense = points.n_rows, points.n_rows <= _DENSE
    every = _every_point(points, kernel) if dense or extended else None
    if dense and every is not None:
        times = partial(np.matmul, values_between(kernel, every, every))
    else:
        times = partial(product, points, kernel)
    degrees = times(np.ones((n, 1)))[:, 0]
    ballast = _BALLAST * float(degrees.mean())
    roots = _inverse_roots(degrees + ballast)
    tol = _ROUNDINGS * float(np.finfo(points.dtype).eps)
    values, U = leading_by_products(partial(_normalised, times, roots), n, min(k, n - 1), tol)
    values, U = _filled(values, k), canonical_signs(_filled(U, k))
    shards = points.with_rows(np.column_stack([U, roots]))
    if every is None:
        return Embedding(values, shards, engine.name, None)
    scaled = U * _inverse(_known(values))
    means = roots * times(roots[:, None])[:, 0] / n
    weights = np.column_stack([roots[:, None] * scaled, np.ones(n)])
    extension = KernelExtension(kernel, every, ballast, weights, means @ scaled)
    return Embedding(values, shards, engine.name, extension)


def _normalised(times: Callable[[Array], Array], roots: Array, V: Array) -> Array:
    """Return `H D^-1/2 K D^-1/2 H V` (n, b)."""
    product = roots[:, None] * times(roots[:, None] * (V - V.mean(axis=0)))
    return np.asarray(product - product.mean(axis=0))


def _every_point(points: Shards, kernel: Kernel) -> Points:
    piece = points.pick(np.arange(points.n_rows))
    return points_of(piece, kernel)


def _known(values: Array) -> Array:
    """Return the eigenvalues (k,) with those that are rounding set to 0."""
    return np.where(values > _NULL * values.max(initial=0.0), values, 0.0)


def _inverse(values: Array) -> Array:
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _inverse_roots(values: Array) -> Array:
    """Return `values^-1/2`, 0 where they are: what is joined to nothing has no place."""
    return np.sqrt(_inverse(values))


def _filled(columns: Array, k: int) -> Array:
    """Return (..., k) columns, zeros behind those there are."""
    missing = k - columns.shape[-1]
    return np.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, missing)])


def _batches(n: int) -> Iterator[slice]:
    return iter(gen_batches(n, _ROWS_AT_ONCE))


def _nothing_of(rows: Array) -> Array:
    return rows[:0]
