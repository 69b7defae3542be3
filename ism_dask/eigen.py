"""Leading eigenpairs of a symmetric matrix, told in one way only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from ism_dask.typing import Array

# Up to here LAPACK's partial spectrum beats Lanczos started from nothing (measured: 1 s at 2,000).
_DENSE_LIMIT = 2000


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
    determined : int
        How many of the vectors the matrix determines. The others belong to an eigenvalue that is
        zero up to rounding, and any basis of that null space would do as well.
    """

    values: Array
    vectors: Array
    following: float
    determined: int

    @property
    def gap(self) -> float:
        """The smallest chosen eigenvalue minus the largest not chosen."""
        return float(self.values[-1]) - self.following


def leading(matrix: Array, q: int, guess: Array | None = None) -> Spectrum:
    """Return the q largest (algebraic) eigenpairs of a symmetric `matrix` (d, d), q < d.

    Parameters
    ----------
    matrix : (d, d) array
    q : int
    guess : (d, k) array, optional
        Vectors near the answer, for the Krylov method that large matrices get.
    """
    d = len(matrix)
    if not 1 <= q < d:
        raise ValueError(f"q must be from 1 to {d - 1} for a {d} x {d} matrix; got {q}")
    values, vectors = _largest(matrix, q + 1, guess)
    noise = d * np.finfo(np.float64).eps * max(np.abs(values).max(), _norm_bound(matrix))
    null = np.abs(values[:q]) <= noise
    if null.any():
        vectors[:, :q] = _settled(vectors[:, :q], null)
    return Spectrum(
        values=values[:q],
        vectors=canonical_signs(vectors[:, :q]),
        following=float(values[q]),
        determined=int(np.count_nonzero(~null)),
    )


def canonical_signs(vectors: Array) -> Array:
    """Return `vectors` (d, q) with the largest-magnitude entry of each column positive."""
    peak = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[peak, np.arange(vectors.shape[1])])
    return np.ascontiguousarray(vectors * np.where(signs == 0, 1.0, signs))


def sine(V: Array, W: Array) -> float:
    """Return the sine of the largest principal angle between the spans of V and W (d, q).

    1 where the spans differ in dimension.
    """
    if V.shape != W.shape:
        return 1.0
    # ||(I - V V^T) W|| keeps the digits of small angles that a cosine would lose.
    return min(1.0, float(np.linalg.norm(W - V @ (V.T @ W), 2)))


def _largest(matrix: Array, k: int, guess: Array | None) -> tuple[Array, Array]:
    d = len(matrix)
    if d > _DENSE_LIMIT and k < d // 20:
        start = np.ones(d) if guess is None else guess.sum(axis=1)
        try:
            values, vectors = scipy.sparse.linalg.eigsh(matrix, k=k, which="LA", v0=start)
            order = np.argsort(-values, kind="stable")
            return values[order], vectors[:, order]
        except scipy.sparse.linalg.ArpackNoConvergence:
            pass  # clustered eigenvalues: the dense method has no such trouble
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[d - k, d - 1])
    return values[::-1], vectors[:, ::-1].copy()


def _norm_bound(matrix: Array) -> float:
    return float(np.abs(matrix).sum(axis=1).max()) / np.sqrt(len(matrix))


def _settled(vectors: Array, null: Array) -> Array:
    """Return `vectors` with the null ones replaced by the axes least used by the others.

    LAPACK returns rounding noise there, different on every machine. A pivoted QR of the
    projector picks whole coordinate axes as nearly as orthogonality allows: the same everywhere,
    and as readable as a vector that carries nothing can be.
    """
    kept = vectors[:, ~null]
    projector = np.eye(len(vectors)) - kept @ kept.T
    axes, _, _ = scipy.linalg.qr(projector, mode="economic", pivoting=True)
    settled = vectors.copy()
    settled[:, null] = axes[:, : int(null.sum())]
    return settled
