"""The prediction criterion over many rows: one kernel ridge regression of low rank.

The m landmarks are rows of X, so that they turn with W. With the kernel matrices K (n, m) between
rows and landmarks and M (m, m) between landmarks, the regression of Y (n, r) is `K beta`, where

    beta = (K^T D K + n lambda M)^-1 K^T D Y,    J = tr(Y^T D K beta) / n,

and D has the weights of the rows, of mean 1. If all rows are landmarks, J is that of the regression
of `criteria.prediction`. J takes the sums `K^T D K` and `K^T D Y` alone: a first pass over the rows
gives them, and beta for every ridge. A second pass gives Phi W, with `grad J = 2 Phi W`.

The sums of some rows and of others tell how well the ones predict the others, again for every ridge
and without another pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import sub
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.criteria.prediction import Explained, slope_terms
from ism_dask.kernels import Kernel
from ism_dask.linalg.cholesky import PivotedCholesky, cholesky
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.raw import LoadedShard, RowFact
from ism_dask.rows.shards import Shards

# The columns of Y (b, r), then the weights (b,).
TARGET = RowFact("regression target")
# Rows at a time: their kernel values with the landmarks stay in the caches of a core.
_CHUNK = 1024
# What is added to the kernel matrix of the landmarks, as a share of its diagonal, against rounding.
_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-7}
# Columns of a triangular matrix are multiplied in this many blocks, without most of its zeros.
_COLUMN_BLOCKS = 4
# Landmarks that are drawn at a time, and how many of the worst rows join each draw.
_DRAWN, _WORST = 32, 8


class KernelSums(NamedTuple):
    """Sums over rows of weight `size` that a regression needs.

    They are those of `F^T D F` (m, m), `F^T D Y` (m, r) and `D Y^2` (r,), where `F = K T` are m
    functions that are orthonormal for the kernel: sums of K itself would lose the digits of small
    ridges.
    """

    gram: Array
    cross: Array
    squares: Array
    size: float

    def without(self, other: KernelSums) -> KernelSums:
        """Return the sums over the rows that are not among the `other` ones."""
        return KernelSums(*map(sub, self, other))

    def coefficients(self, ridge: float) -> Array:
        """Return those (m, r) by which F predicts Y."""
        shifted = self.gram.copy()
        shifted[np.diag_indices_from(shifted)] += self.size * ridge
        factor = cholesky(shifted)
        assert factor is not None  # sums of squares, and a ridge
        return factor.solution(self.cross)

    def errors(self, coefficients: Array) -> Array:
        """Return the sums (r,) of the squared errors with which coefficients predict these rows."""
        predicted = 2.0 * (coefficients * self.cross).sum(axis=0)
        squared = (coefficients * (self.gram @ coefficients)).sum(axis=0)
        return np.asarray(self.squares - predicted + squared)


@dataclass(frozen=True, eq=False)
class LandmarkRegression:
    """Kernel ridge regression of Y on X W over all rows, on kernels with landmarks (m, d).

    `kernel` is positive definite and has all its numbers, and `ridge` is lambda. `signs` (r,) are
    the weights of the columns of Y in J, negative for what X W is not to predict; None if all are
    1. `shards` have the rows, and their Y and weights as the fact `TARGET`.
    """

    shards: Shards
    landmarks: Array
    kernel: Kernel
    ridge: float
    signs: Array | None = None

    def explained(self, W: Array) -> Explained:
        """Return J and Phi W at W (d, q), by two passes over the rows.

        The noise is the standard error of Phi W between rows with the landmarks held fixed.
        """
        V = (self.landmarks @ W).astype(np.float64)
        basis = orthonormal_basis(self.kernel, V, self.shards.dtype)
        sums = KernelSums(*self.shards.fold(kernel_sums, self.kernel, W, V, basis))
        n, gamma = sums.size, sums.coefficients(self.ridge)
        signs = np.ones(gamma.shape[1]) if self.signs is None else self.signs
        objective = float(((gamma * sums.cross).sum(axis=0) * signs).sum()) / n
        beta = basis @ gamma
        changes = beta * (2.0 * signs / n)
        of_rows, turned, squares = self.shards.fold(slope_sums, self.kernel, W, V, (beta, changes))
        # The landmarks turn with W, in K and in M.
        between = pair_products(self.kernel, V, V, (-self.ridge * beta * signs) @ beta.T)
        product = of_rows + self.landmarks.T @ (turned + between[0] + between[1])
        spread = float(squares) - float(np.sum(tangent(W, of_rows) ** 2)) / self.shards.n_rows
        return Explained(objective, product, float(np.sqrt(max(spread, 0.0))))

    def left_out(self, X: Array, W: Array) -> float:
        """Return the mean kernel of rows X (k, d) with themselves that the landmarks leave out."""
        V, Z = self.landmarks.astype(np.float64) @ W, X @ W
        F = self.kernel.matrix(Z, V) @ orthonormal_basis(self.kernel, V, self.shards.dtype)
        return max(0.0, float(np.mean(self.kernel.own(Z) - np.einsum("ij,ij->i", F, F))))


def landmark_rows(
    kernel: Kernel, Z: Array, most: int, share: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """Return the numbers (m,) of landmarks among projected rows Z (n, q), and what they leave.

    That is a share of the trace of the kernel matrix; with the given `share` or `most` landmarks
    they suffice. They are drawn with probabilities in proportion to what the earlier ones leave of
    each row, and the worst rows join each draw.
    """
    Z = Z.astype(np.float64, copy=False)
    diagonal = kernel.own(Z)
    trace = float(diagonal.sum())
    cholesky = PivotedCholesky(lambda rows: kernel.matrix(Z, Z[rows]), diagonal)
    while cholesky.size < most and (left := float(cholesky.left.sum())) > share * trace:
        drawn = rng.choice(len(Z), _DRAWN, p=cholesky.left / left)
        block = np.concatenate([np.argsort(-cholesky.left, kind="stable")[:_WORST], drawn])
        if not cholesky.add(block, np.concatenate([np.zeros(_WORST), rng.random(_DRAWN)])):
            break
    return np.sort(cholesky.pivots), float(cholesky.left.sum()) / trace


def orthonormal_basis(kernel: Kernel, V: Array, dtype: np.dtype[Any]) -> Array:
    """Return T (m, m) with `T T^T = M^-1` for landmarks V (m, q) of rows in a precision."""
    M = kernel.matrix(V, V)
    M[np.diag_indices_from(M)] *= 1.0 + _ROUNDING[dtype]
    triangle = scipy.linalg.cholesky(M, lower=True)
    return np.asarray(scipy.linalg.solve_triangular(triangle, np.eye(len(M)), lower=True).T)


def kernel_sums(piece: LoadedShard, kernel: Kernel, W: Array, V: Array, basis: Array) -> KernelSums:
    """Return the sums over a shard, for projected landmarks V (m, q)."""
    Y, counts = _target(piece)
    gram, cross = np.zeros((len(V), len(V))), np.zeros((len(V), Y.shape[1]))
    # Products of tiny numbers would be subnormal, and slow.
    tiny = np.finfo(piece.X.dtype).eps ** 2
    narrow = np.where(np.abs(basis) > tiny, basis, 0.0).astype(piece.X.dtype)
    ends = np.linspace(0, len(V), _COLUMN_BLOCKS + 1).astype(int)
    for run, _, K in _kernel_chunks(piece.X, kernel, W, V):
        np.add(K, tiny, out=K)
        roots, F = np.sqrt(counts[run]).astype(K.dtype), np.empty_like(K)
        for first, last in pairwise(ends):  # the basis is upper triangular
            np.matmul(K[:, :last], narrow[:last, first:last], out=F[:, first:last])
        F *= roots
        # F.T @ F is a symmetric product, at half the cost of any other.
        gram += F.T @ F
        cross += F.T @ (roots * Y[run].astype(K.dtype))
    return KernelSums(gram, cross, (counts * Y**2).sum(axis=0), float(counts.sum()))


def slope_sums(
    piece: LoadedShard, kernel: Kernel, W: Array, V: Array, predicting: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    """Return a shard's part of Phi W (d, q), that of the landmarks (m, q), and its squared slopes.

    These are the squares of the tangential parts of the slopes of the rows. `predicting` are the
    coefficients (m, r) that predict Y, and by how much an error of Y changes J for each landmark
    (m, r).
    """
    coefficients, changes = predicting
    Y, counts = _target(piece)
    of_rows, of_landmarks, squares = np.zeros(W.shape), np.zeros(V.shape), 0.0
    for run, Z, K in _kernel_chunks(piece.X, kernel, W, V):
        X = piece.X[run]
        errors = Y[run].astype(K.dtype) - K @ coefficients.astype(K.dtype)
        gamma = (errors * counts[run].astype(K.dtype)) @ changes.T.astype(K.dtype)
        turned, others = pair_products(kernel, Z, V.astype(K.dtype), gamma, K)
        of_rows += X.T @ turned
        of_landmarks += others
        # Without the part of each row within the span of W.
        lengths, sizes = (np.einsum("ij,ij->i", each, each) for each in (X, turned))
        squares += float((lengths - np.einsum("ij,ij->i", Z, Z)) @ sizes)
    return of_rows, of_landmarks, np.array(squares)


def pair_products(
    kernel: Kernel, left: Array, right: Array, gamma: Array, values: Array | None = None
) -> tuple[Array, Array]:
    """Return half the slopes (a, q) and (b, q) of `sum_ij gamma_ij k(left_i, right_j)`.

    Multiplied by the rows of X, they are parts of Phi W. `gamma` (a, b) is held fixed; `values` may
    be overwritten: the kernel matrix, if it is at hand.
    """
    of_left, of_right = np.zeros_like(left), np.zeros_like(right)
    for psi, *factors in slope_terms(kernel, left, right, gamma, values):
        coupling, degree = (left.dtype.type(factor / 2) for factor in factors)
        of_left += coupling * (psi @ right)
        of_right += coupling * (psi.T @ left)
        if degree:
            of_left += degree * psi.sum(axis=1)[:, None] * left
            of_right += degree * psi.sum(axis=0)[:, None] * right
    return of_left, of_right


def _target(piece: LoadedShard) -> tuple[Array, Array]:
    """Return Y (b, r) and the weights (b, 1) of the rows of a shard."""
    facts = piece.facts[TARGET]
    return facts[:, :-1], facts[:, -1:]


def _kernel_chunks(
    X: Array, kernel: Kernel, W: Array, V: Array
) -> Iterator[tuple[slice, Array, Array]]:
    """Yield the rows of each chunk of X (b, d), X W (k, q), and kernels with landmarks (k, m)."""
    W, V = W.astype(X.dtype, copy=False), V.astype(X.dtype, copy=False)
    for start in range(0, len(X), _CHUNK):
        run = slice(start, min(start + _CHUNK, len(X)))
        Z = X[run] @ W
        yield run, Z, kernel.matrix(Z, V, resolved=False)
