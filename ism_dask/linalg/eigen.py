"""Leading eigenpairs of a symmetric matrix, told in one way only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.linalg.row_space import RowSpace

# Up to here LAPACK's partial spectrum beats Lanczos started from nothing (measured: 1 s at 2,000).
_DENSE_LIMIT = 2000
# Residual of the leading eigenvectors of larger ones, relative to the largest eigenvalue.
_KRYLOV_TOL = 1e-12
# How far a matrix is off, as a share of its norm, where nothing else is said.
_NOISE = 1e-13
# Entries that differ by less, relatively, are equal: rounding decides which of them is larger.
_TIE = 1e-6
# Vectors beside those asked for, and blocks kept at most: ten or so are needed.
_SPARE, _MOST_BLOCKS = 6, 24
# Of a matrix in memory fewer are tried: where eigenvalues lie close LAPACK is faster.
_TRIED_BLOCKS = 10


@dataclass(frozen=True)
class Spectrum:
    """The q leading eigenpairs of a d x d matrix.

    Attributes
    ----------
    values : (q,) array
        The largest eigenvalues, falling.
    vectors : (d, q) array
        Their orthonormal eigenvectors, the largest entry of each positive.
    following : float
        The next eigenvalue; `values[-1] - following` is the eigengap.
    null : (q,) boolean array
        Which of the values are zero up to rounding.
    """

    values: Array
    vectors: Array
    following: float
    null: Array

    @property
    def gap(self) -> float:
        """The smallest chosen eigenvalue minus the largest not chosen."""
        return float(self.values[-1]) - self.following

    @property
    def determined(self) -> Array:
        """The (d, k) vectors that belong to values other than zero."""
        return self.vectors[:, ~self.null]


@dataclass(frozen=True)
class Pairs:
    """Leading eigenpairs by products.

    Attributes
    ----------
    values : (k,) array
        Falling.
    vectors : (n, k) array
    residual : float
        The largest, relative to the largest eigenvalue.
    """

    values: Array
    vectors: Array
    residual: float


def leading_eigenpairs(
    matrix: Array,
    q: int,
    guess: Array | None = None,
    *,
    noise: float = _NOISE,
    space: RowSpace | None = None,
) -> Spectrum:
    """Return the q largest (algebraic) eigenpairs of a symmetric `matrix` (d, d), q < d.

    Eigenvectors of zero are rounding noise, different on every machine. `space` says what
    takes their place.

    Parameters
    ----------
    matrix : (d, d) array
    q : int
    guess : (d, k) array, optional
        Vectors near the answer, for the Krylov method that large matrices get.
    noise : float
        How far the matrix is off, as a share of its norm.
    space : Space, optional
        Default: all coordinates are features that vary.
    """
    d = len(matrix)
    if not 1 <= q < d:
        raise ValueError(f"q must be from 1 to {d - 1} for a {d} x {d} matrix; got {q}")
    values, vectors = largest_pairs(matrix, q + 1, guess)
    zero = _zero(matrix, values, noise)
    if (np.abs(values[:q]) <= zero).any():
        values, vectors = _with_fixed_null_space(matrix, q, zero, space or RowSpace(d))
    null = np.abs(values[:q]) <= zero
    return Spectrum(values[:q], canonical_signs(vectors[:, :q]), float(values[q]), null)


def determined_eigenvectors(matrix: Array, q: int, noise: float = _NOISE) -> tuple[Array, Array]:
    """Return the q largest eigenvalues of `matrix` (d, d), and the vectors of those that are not 0.

    Parameters
    ----------
    matrix, q, noise
        As in `leading`.

    Returns
    -------
    values : (q,) array
        Falling.
    vectors : (d, k) array
        k is at most q.
    """
    values, vectors = largest_pairs(matrix, q)
    null = np.abs(values) <= _zero(matrix, values, noise)
    return values, canonical_signs(vectors[:, ~null])


def leading_eigenpairs_by_products(
    apply: Callable[[Array], Array],
    n: int,
    k: int,
    tol: float,
    *,
    seed: int = 0,
    guess: Array | None = None,
    most: int = _MOST_BLOCKS,
) -> Pairs:
    """Return the k largest eigenpairs of a symmetric operator told by its products with blocks.

    Block Lanczos with every block kept: passes over tiles are dear, tall vectors are not.

    Parameters
    ----------
    apply : callable
        Takes (n, b) to (n, b).
    n, k : int
    tol : float
        What residual to stop at.
    seed : int
    guess : (n, g) array, optional
        Vectors near the answer, to begin with beside random ones.
    most : int
        After so many passes it is over in any case.
    """
    width = min(n, k + _SPARE)
    block = np.random.default_rng(seed).normal(size=(n, width))
    if guess is not None:
        near = guess[:, :width]
        block[:, : near.shape[1]] = near + 1e-3 / np.sqrt(n) * block[:, : near.shape[1]]
    block = np.linalg.qr(block)[0]
    basis, images = block, apply(block)
    while True:
        values, mix = scipy.linalg.eigh(basis.T @ images)
        values, mix = values[::-1][:k], mix[:, ::-1][:, :k]
        vectors = basis @ mix
        off = float(np.linalg.norm(images @ mix - vectors * values, axis=0).max())
        residual = off / abs(values[0]) if values[0] else 0.0
        room = n - basis.shape[1]
        if residual <= tol or room < 1 or basis.shape[1] >= most * width:
            return Pairs(values, vectors, residual)
        block = images[:, -width:][:, :room]
        for _ in range(2):  # once more, for the rounding of the first time
            block = block - basis @ (basis.T @ block)
            block = np.linalg.qr(block)[0]
        basis, images = np.hstack([basis, block]), np.hstack([images, apply(block)])


def canonical_signs(vectors: Array) -> Array:
    """Return `vectors` (d, q) with the largest entry of each column positive.

    Of entries that are equal but for rounding the first one counts.
    """
    sizes = np.abs(vectors)
    peak = np.argmax(sizes >= (1.0 - _TIE) * sizes.max(axis=0), axis=0)
    signs = np.sign(vectors[peak, np.arange(vectors.shape[1])])
    return np.ascontiguousarray(vectors * np.where(signs == 0, 1.0, signs))


def rayleigh_ritz(W: Array, product: Array) -> tuple[Array, Array, Array]:
    """Return W (d, q) turned so that `W^T Phi W` is diagonal, its diagonal, and Phi W alike.

    Parameters
    ----------
    W : (d, q) array
        Orthonormal columns.
    product : (d, q) array
        Phi W.

    Returns
    -------
    W : (d, q) array
        With canonical signs.
    values : (q,) array
        Falling.
    product : (d, q) array
    """
    inner = W.T @ product
    values, turn = scipy.linalg.eigh((inner + inner.T) / 2)
    turned = W @ turn[:, ::-1]
    signed = canonical_signs(turned)
    signs = np.sign(np.einsum("ij,ij->j", signed, turned))
    return signed, values[::-1], product @ turn[:, ::-1] * signs


def largest_eigenvalue_outside(matrix: Array, W: Array) -> float:
    """Return the largest eigenvalue of `matrix` (d, d) outside of the columns of W (d, q)."""
    # In a basis of what is outside: none of W's own eigenvalues is to be taken for one of these.
    outside = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
    last = outside.shape[1] - 1
    values = scipy.linalg.eigh(
        outside.T @ matrix @ outside, eigvals_only=True, subset_by_index=[last, last]
    )
    return float(values[0])


def whitening_transform(covariance: Array, ridge: float) -> Array:
    """Return the (d, d) matrix A with `A^T covariance A = I`, but for a ridge.

    The ridge is a share of the mean eigenvalue, and added to all of them.
    """
    values, vectors = scipy.linalg.eigh(covariance)
    roots = np.sqrt(np.maximum(values, 0.0) + ridge * float(values.mean()))
    return np.asarray(vectors / roots)


def nearest_orthonormal(W: Array) -> Array:
    """Return the (d, q) array with orthonormal columns that is nearest to W (d, q)."""
    left, _, right = np.linalg.svd(W, full_matrices=False)
    return np.asarray(left @ right)


def subspace_sine(V: Array, W: Array) -> float:
    """Return the sine of the largest principal angle between the spans of V and W (d, q).

    1 where the spans differ in dimension.
    """
    if V.shape != W.shape:
        return 1.0
    # ||(I - V V^T) W|| keeps the digits of small angles that a cosine would lose.
    return min(1.0, float(np.linalg.svd(W - V @ (V.T @ W), compute_uv=False).max(initial=0.0)))


def largest_pairs(matrix: Array, k: int, guess: Array | None = None) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of `matrix` (d, d), falling, and their vectors (d, k)."""
    d = len(matrix)
    if d > _DENSE_LIMIT and k < d // 20:
        # Blocks, for a single vector misses copies of an eigenvalue.
        apply, most = matrix.__matmul__, _TRIED_BLOCKS
        pairs = leading_eigenpairs_by_products(apply, d, k, _KRYLOV_TOL, guess=guess, most=most)
        if pairs.residual <= _KRYLOV_TOL:
            return pairs.values, pairs.vectors
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[d - k, d - 1])
    if len(values) < k:  # LAPACK's partial spectrum may lose copies of an eigenvalue
        values, vectors = (part[..., d - k :] for part in scipy.linalg.eigh(matrix))
    return values[::-1], vectors[:, ::-1].copy()


def _zero(matrix: Array, values: Array, noise: float) -> float:
    """Return the size below which eigenvalues of `matrix` are zero up to rounding."""
    share = max(noise, len(matrix) * float(np.finfo(np.float64).eps))
    return share * max(float(np.abs(values).max()), _norm_lower_bound(matrix))


def _norm_lower_bound(matrix: Array) -> float:
    return float(np.abs(matrix).sum(axis=1).max()) / np.sqrt(len(matrix))


def _with_fixed_null_space(
    matrix: Array, q: int, zero: float, space: RowSpace
) -> tuple[Array, Array]:
    """Return q + 1 or more eigenvalues, falling, and q vectors (d, q), those of 0 by one rule.

    All come from one decomposition, so that they are orthonormal whatever is close to what.
    """
    values, vectors = scipy.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    null = np.abs(values) <= zero
    positive, negative = values > zero, values < -zero
    count = max(0, min(q - int(positive.sum()), int(null.sum())))
    filled = space.fill(vectors[:, null], count)
    chosen = np.column_stack([vectors[:, positive], filled, vectors[:, negative]])
    return np.where(null, 0.0, values), chosen[:, :q]
