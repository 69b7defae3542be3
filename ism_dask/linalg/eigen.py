"""Leading eigenpairs of symmetric matrices, unique by rules for signs and for the null space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.linalg.subspaces import RowSpace, canonical_signs

# Up to this size LAPACK's partial spectrum is faster than Lanczos from a random start (measured:
# 1 s at 2,000).
_DENSE_LIMIT = 2000
# For larger matrices, the residual at which Lanczos ends, relative to the largest eigenvalue.
_KRYLOV_TOL = 1e-12
# The default for the error of a matrix, as a share of its norm.
_NOISE = 1e-13
# The ridge of a covariance that is inverted, as a share of its mean eigenvalue.
_COVARIANCE_RIDGE = 0.2
# Extra vectors in a block of Lanczos, and the most blocks in its basis. It needs about ten.
_SPARE, _MOST_BLOCKS = 6, 24
# The most blocks for a matrix in memory: if its eigenvalues are close together LAPACK is faster.
_MOST_DENSE_BLOCKS = 10


@dataclass(frozen=True)
class Spectrum:
    """The q largest eigenvalues, in decreasing order, and vectors (d, q) of a d x d matrix.

    Each vector has its largest entry positive. `following` is the next eigenvalue, and `null` (q,)
    marks values that are zero up to rounding.
    """

    values: Array
    vectors: Array
    following: float
    null: Array


def leading_eigenpairs(
    matrix: Array,
    q: int,
    guess: Array | None = None,
    *,
    noise: float = _NOISE,
    space: RowSpace | None = None,
) -> Spectrum:
    """Return the q largest (algebraic) eigenpairs of a symmetric `matrix` (d, d), q < d.

    Eigenvectors of the eigenvalue zero are rounding noise, different on every machine. Directions
    that `space` chooses replace them; by default every coordinate is a feature that varies. The
    guess (d, k) is near the leading eigenvectors: Lanczos starts there if the matrix is large.
    `noise` is the error of the matrix, as a share of its norm.
    """
    d = len(matrix)
    if not 1 <= q < d:
        raise ValueError(f"q must be from 1 to {d - 1} for a {d} x {d} matrix; got {q}")
    values, vectors = largest_pairs(matrix, q + 1, guess)
    # Eigenvalues are zero up to this share of the norm of the matrix, which is at least this large.
    share = max(noise, d * float(np.finfo(np.float64).eps))
    least_norm = np.abs(matrix).sum(axis=1).max() / np.sqrt(d)
    zero = share * float(max(np.abs(values).max(), least_norm))
    if (np.abs(values[:q]) <= zero).any():
        # All vectors come from one decomposition, so that they are orthonormal even if eigenvalues
        # are close to each other.
        values, vectors = (part[..., ::-1] for part in scipy.linalg.eigh(matrix))
        null = np.abs(values) <= zero
        positive, negative = values > zero, values < -zero
        count = max(0, min(q - int(positive.sum()), int(null.sum())))
        filled = (space or RowSpace(d)).fill(vectors[:, null], count)
        vectors = np.column_stack([vectors[:, positive], filled, vectors[:, negative]])
        values = np.where(null, 0.0, values)
    null = np.abs(values[:q]) <= zero
    return Spectrum(values[:q], canonical_signs(vectors[:, :q]), float(values[q]), null)


def leading_eigenpairs_by_products(
    apply: Callable[[Array], Array],
    n: int,
    k: int,
    tol: float,
    *,
    guess: Array | None = None,
    most: int = _MOST_BLOCKS,
) -> tuple[Array, Array, float]:
    """Return the k largest eigenvalues, decreasing, of a symmetric operator, vectors and residual.

    `apply` multiplies the operator by a block (n, b). The residual is the largest of a pair (n,),
    relative to the largest eigenvalue.

    This is block Lanczos without restarts: all blocks stay in memory, because passes over tiles are
    expensive and tall vectors are not. The first block consists of a guess (n, g) and random
    vectors. It ends at a residual of `tol`, or with `most` blocks in the basis, each a pass.
    """
    width = min(n, k + _SPARE)
    block = np.random.default_rng(0).normal(size=(n, width))
    if guess is not None:
        near = guess[:, :width]
        block[:, : near.shape[1]] = near + 1e-3 / np.sqrt(n) * block[:, : near.shape[1]]
    block = np.linalg.qr(block)[0]
    basis, images = block, apply(block)
    while True:
        values, mix = scipy.linalg.eigh(basis.T @ images)
        values, mix = values[::-1][:k], mix[:, ::-1][:, :k]
        vectors = basis @ mix
        error = float(np.linalg.norm(images @ mix - vectors * values, axis=0).max())
        residual = error / abs(values[0]) if values[0] else 0.0
        room = n - basis.shape[1]
        if residual <= tol or room < 1 or basis.shape[1] >= most * width:
            return values, vectors, residual
        block = images[:, -width:][:, :room]
        for _ in range(2):  # the second time removes the rounding of the first
            block = block - basis @ (basis.T @ block)
            block = np.linalg.qr(block)[0]
        basis, images = np.hstack([basis, block]), np.hstack([images, apply(block)])


def rayleigh_ritz(W: Array, product: Array) -> tuple[Array, Array, Array]:
    """Return W (d, q) rotated so that `W^T Phi W` is diagonal, that diagonal (q,), and Phi W.

    The columns of W are orthonormal, and `product` (d, q) is Phi W. The rotated W has canonical
    signs, and the diagonal decreases.
    """
    inner = W.T @ product
    values, rotation = scipy.linalg.eigh((inner + inner.T) / 2)
    rotated = W @ rotation[:, ::-1]
    signed = canonical_signs(rotated)
    signs = np.sign(np.einsum("ij,ij->j", signed, rotated))
    return signed, values[::-1], product @ rotation[:, ::-1] * signs


def largest_eigenvalue_outside(matrix: Array, W: Array) -> float:
    """Return the largest eigenvalue of `matrix` (d, d) on the orthogonal complement of W (d, q).

    It is 0, that of directions in which rows are constant, if q = d.
    """
    if W.shape[1] == len(W):
        return 0.0
    # In a basis of the complement no eigenvalue of W itself can be mistaken for one outside.
    complement = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
    last = complement.shape[1] - 1
    values = scipy.linalg.eigh(
        complement.T @ matrix @ complement, eigvals_only=True, subset_by_index=[last, last]
    )
    return float(values[0])


def inverse_covariance(X: Array, *, of_more: bool = False) -> Callable[[Array], Array]:
    """Return the product of (d, k) with the inverse covariance of centred rows X (n, d), ridged.

    If they are some `of_more`, no column has less than the mean variance: one that varies in few of
    all rows may hardly vary in these, and a step along it would be too long.
    """
    ridged = X.T @ X / len(X)
    diagonal = np.diag_indices(len(ridged))
    if of_more:
        ridged[diagonal] = np.maximum(ridged[diagonal], ridged[diagonal].mean())
    ridged[diagonal] += _COVARIANCE_RIDGE * np.trace(ridged) / len(ridged)
    factor = scipy.linalg.cho_factor(ridged)
    return partial(scipy.linalg.cho_solve, factor, check_finite=False)


def largest_pairs(matrix: Array, k: int, guess: Array | None = None) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of `matrix` (d, d), decreasing, and their vectors (d, k)."""
    d = len(matrix)
    if d > _DENSE_LIMIT and k < d // 20:
        # Lanczos with blocks, because a single vector misses copies of a multiple eigenvalue.
        apply, most = matrix.__matmul__, _MOST_DENSE_BLOCKS
        values, vectors, residual = leading_eigenpairs_by_products(
            apply, d, k, _KRYLOV_TOL, guess=guess, most=most
        )
        if residual <= _KRYLOV_TOL:
            return values, vectors
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[d - k, d - 1])
    if len(values) < k:  # LAPACK's partial spectrum may lose copies of a multiple eigenvalue
        values, vectors = (part[..., d - k :] for part in scipy.linalg.eigh(matrix))
    return values[::-1], vectors[:, ::-1].copy()
