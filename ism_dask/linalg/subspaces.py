"""Subspaces: signs of their columns, angles, rotation, null-space directions. It needs no SciPy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array

# Entries, or lengths, whose relative difference is smaller are equal: rounding decides which one is
# larger.
_TIE = 1e-6
# Names of the rotations.
ROTATIONS = ("varimax",)
# The relative gain of the criterion below which a rotation has converged, and the most steps.
_TOL, _STEPS = 1e-12, 1000
# A projection of an axis that is shorter than this is rounding: the axis is outside of the space.
_NEGLIGIBLE = 1e-6


def canonical_signs(vectors: Array) -> Array:
    """Return `vectors` (d, q) with the largest entry of each column positive."""
    return np.ascontiguousarray(vectors * signs_of(vectors))


def signs_of(vectors: Array) -> Array:
    """Return the sign (q,) of the largest entry of each column of `vectors` (d, q), 1 for 0.

    Among entries that are equal up to rounding, the first one decides.
    """
    sizes = np.abs(vectors)
    peak = np.argmax(sizes >= (1.0 - _TIE) * sizes.max(axis=0), axis=0)
    signs = np.sign(vectors[peak, np.arange(vectors.shape[1])])
    return np.asarray(np.where(signs == 0, 1.0, signs))


def nearest_orthonormal(W: Array) -> Array:
    """Return the (d, q) array with orthonormal columns that is nearest to W (d, q)."""
    left, _, right = np.linalg.svd(W, full_matrices=False)
    return np.asarray(left @ right)


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
    return float(np.linalg.norm(tangent(W, product))) / norm if norm > 0 else 0.0


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


def most_constant(q: int) -> int:
    """Return how many constant directions W may use: its q columns, and one for the eigengap."""
    return q + 1


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
