"""Subspaces: the leading eigenvectors that span one, angles, rotation, null-space directions.

Leading eigenpairs are made unique by rules for signs and for the null space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy  # its linalg waits for the first use: programs that compute nothing import this, too

from ism_dask._types import Array

# Up to this size LAPACK's partial spectrum is faster than Lanczos from a random start (measured:
# 1 s at 2,000).
_DENSE_LIMIT = 2000
# For larger matrices, the residual at which Lanczos ends, relative to the largest eigenvalue.
_KRYLOV_TOL = 1e-12
# The default for the error of a matrix, as a share of its norm.
_NOISE = 1e-13
# The ridge of a covariance that is inverted, as a share of its mean eigenvalue.
_COVARIANCE_RIDGE = 0.2
# Entries, or lengths, whose relative difference is smaller are equal: rounding decides which one is
# larger.
_TIE = 1e-6
# Extra vectors in a block of Lanczos, and the most blocks in its basis. It needs about ten.
_SPARE, _MOST_BLOCKS = 6, 24
# The most blocks for a matrix in memory: if its eigenvalues are close together LAPACK is faster.
_MOST_DENSE_BLOCKS = 10
# Names of the rotations.
ROTATIONS = ("varimax",)
# The relative gain of the criterion below which a rotation has converged, and the most steps.
_TOL, _STEPS = 1e-12, 1000
# A projection of an axis that is shorter than this is rounding: the axis is outside of the space.
_NEGLIGIBLE = 1e-6


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


def canonical_signs(vectors: Array) -> Array:
    """Return `vectors` (d, q) with the largest entry of each column positive.

    Among entries that are equal up to rounding, the first one decides.
    """
    sizes = np.abs(vectors)
    peak = np.argmax(sizes >= (1.0 - _TIE) * sizes.max(axis=0), axis=0)
    signs = np.sign(vectors[peak, np.arange(vectors.shape[1])])
    return np.ascontiguousarray(vectors * np.where(signs == 0, 1.0, signs))


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


def inverse_covariance(covariance: Array) -> Callable[[Array], Array]:
    """Return the function that multiplies (d, k) by the inverse of a covariance with a ridge."""
    ridged = covariance.copy()
    ridged[np.diag_indices(len(ridged))] += _COVARIANCE_RIDGE * np.trace(covariance) / len(ridged)
    factor = scipy.linalg.cho_factor(ridged)
    return partial(scipy.linalg.cho_solve, factor, check_finite=False)


def nearest_orthonormal(W: Array) -> Array:
    """Return the (d, q) array with orthonormal columns that is nearest to W (d, q)."""
    left, _, right = np.linalg.svd(W, full_matrices=False)
    return np.asarray(left @ right)


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


def subspace_sine(V: Array, W: Array) -> float:
    """Return the sine of the largest principal angle between the spans of V and W (d, q).

    It is 1 if the spans differ in dimension.
    """
    if V.shape != W.shape:
        return 1.0
    # ||(I - V V^T) W|| resolves small angles, whose digits a cosine would lose.
    return min(1.0, float(np.linalg.svd(tangent(V, W), compute_uv=False).max(initial=0.0)))


def subspace_distance(V: Array, W: Array) -> float:
    """Return |P - Q|_F / sqrt(2 q) of the projectors onto the columns of V and of W (d, q).

    It is 0 if the subspaces are equal and 1 if they are orthogonal. Its square is the mean of the
    squared sines of the principal angles. The columns need not be orthonormal.
    """
    V, W = np.linalg.qr(V)[0], np.linalg.qr(W)[0]
    return min(1.0, float(np.linalg.norm(tangent(V, W)) / np.sqrt(V.shape[1])))


def subspace_shares(components: Array) -> Array:
    """Return the share of each coordinate in the space that the rows of `components` (q, d) span.

    The shares (d,) are from 0 to 1 / q and sum to 1. They depend on the space alone, not on which
    rows span it.
    """
    Q, _ = np.linalg.qr(components.T)
    return np.asarray((Q**2).sum(axis=1) / Q.shape[1])


def tangent(W: Array, Z: Array) -> Array:
    """Return the part of Z (d, k) outside of W (d, k), whose columns are orthonormal."""
    return Z - W @ (W.T @ Z)


def relative_residual(W: Array, product: Array) -> float:
    """Return `||P - W (W^T P)|| / ||P||` for P = Phi W (d, k), or 0 if P = 0."""
    norm = float(np.linalg.norm(product))
    return float(np.linalg.norm(product - W @ (W.T @ product))) / norm if norm > 0 else 0.0


def centred_by(U: Array, weights: Array) -> Array:
    """Return columns (n, r) minus their means by weights (n,)."""
    centred = U - weights @ U / weights.sum()
    # The mean of the centred rows is the rounding error of the mean.
    centred -= weights @ centred / weights.sum()
    return np.asarray(centred)


def varimax(loadings: Array) -> Array:
    """Return the rotation R (q, q) for which `loadings` (d, q) R has the largest criterion.

    The criterion is the sum over columns of the variance of the squared weights (Kaiser 1958). It
    is large if a column has few large weights and many small ones. The maximum is a local one,
    reached from R = I.
    """
    rotation = following = np.eye(loadings.shape[1])
    criterion = -np.inf
    for _ in range(_STEPS):
        rotated = loadings @ following
        reached = float((rotated**2).var(axis=0).sum())
        if not reached > criterion:
            break
        gain, criterion, rotation = reached - criterion, reached, following
        if gain <= _TOL * reached:
            break
        slope = loadings.T @ (rotated**3 - rotated * np.mean(rotated**2, axis=0))
        left, _, right = np.linalg.svd(slope)
        following = left @ right
    return rotation


@dataclass(frozen=True)
class RowSpace:
    """The coordinates of W: first those in which the rows vary, then some in which they do not.

    If W needs a direction in the null space of Phi, it takes the projection of a single feature
    onto that null space: the longest projection, and the first among equally long ones. Features
    that vary come first, and then, in their order, the coordinates in which the rows are constant.
    So W depends neither on the machine nor on the order of the rows.

    Attributes
    ----------
    n_varying, n_constant : int
        r and s; W is (r + s, q).
    basis : (d, r) array or None
        The first r coordinates in terms of features; None if they are the features themselves.
    """

    n_varying: int
    n_constant: int = 0
    basis: Array | None = None

    @property
    def size(self) -> int:
        """The number of rows of W."""
        return self.n_varying + self.n_constant

    def limited(self, n_constant: int) -> RowSpace:
        """Return the space with at most `n_constant` coordinates in which the rows are constant."""
        return replace(self, n_constant=min(self.n_constant, n_constant))

    def fill(self, null_space: Array, count: int) -> Array:
        """Return up to `count` orthonormal directions of a null space (r + s, m), as columns."""
        varying, constant = np.split(null_space, [self.n_varying])
        features = varying if self.basis is None else self.basis @ varying
        chosen = np.zeros((null_space.shape[1], 0))
        for axes in (features, constant):
            remainder = axes - (axes @ chosen) @ chosen.T
            while chosen.shape[1] < count:
                lengths = np.einsum("ij,ij->i", remainder, remainder)
                if not lengths.max(initial=0.0) > _NEGLIGIBLE**2:
                    break
                direction = _orthogonalised(remainder[_first_longest(lengths)], chosen)
                chosen = np.column_stack([chosen, direction])
                remainder -= np.outer(remainder @ direction, direction)
        return np.asarray(null_space @ chosen)


def axes_outside(basis: Array, count: int) -> Array:
    """Return `count` orthonormal directions (d, count), orthogonal to a `basis` (d, r).

    Each is the projection of the coordinate axis that is furthest from the span so far.
    """
    span = basis
    for _ in range(count):
        index = _first_longest(1.0 - np.einsum("ij,ij->i", span, span))
        span = np.column_stack([span, _orthogonalised(np.eye(1, len(basis), index)[0], span)])
    return span[:, basis.shape[1] :]


def _orthogonalised(direction: Array, basis: Array) -> Array:
    """Return `direction` (d,) made orthogonal to a basis (d, r), with length 1."""
    for _ in range(2):  # the second time removes the rounding of the first
        direction = direction - basis @ (basis.T @ direction)
    return np.asarray(direction / np.linalg.norm(direction))


def _first_longest(lengths: Array) -> int:
    """Return the index of the first of the largest lengths, equal up to rounding."""
    return int(np.argmax(lengths >= (1.0 - _TIE) * lengths.max()))
