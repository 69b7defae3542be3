"""From what the user gives to rows that the mathematics sees, and back for W."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.utils import check_random_state

from ism_dask.engines import Problem
from ism_dask.gamma import Dependence
from ism_dask.kernels import Kernel
from ism_dask.rows import Affine, RowSource
from ism_dask.shards import Piece, Shards, cut, is_dask
from ism_dask.typing import Array

# Pairwise distances are looked at on this many rows; more are sampled.
SAMPLE_ROWS = 5000


@dataclass(frozen=True)
class Prepared:
    """Standardised rows, without constant columns, in their row space where d > n.

    Attributes
    ----------
    shards : Shards
        (n, r) rows.
    affine : Affine
        Which d columns they came from, and how.
    basis : (kept, r) array or None
        Orthonormal basis of the row space, where the rows are coordinates in it.
    """

    shards: Shards
    affine: Affine
    basis: Array | None = None

    def lift(self, rows: Array) -> Array:
        """Return (k, r) rows, or directions, in terms of the original features (k, d)."""
        varying = rows if self.basis is None else rows @ self.basis.T
        lifted = np.zeros((len(rows), len(self.affine.kept)))
        lifted[:, self.affine.kept] = varying
        return lifted

    def lower(self, rows: Array) -> Array:
        """Return rows (k, d) in terms of the original features as rows (k, r) of this space."""
        if rows.shape[1] != len(self.affine.kept):
            raise ValueError(
                f"the kernel keeps rows of {rows.shape[1]} features, X has "
                f"{len(self.affine.kept)}; its widths belong to the space they were taken in"
            )
        varying = rows[:, self.affine.kept]
        return varying if self.basis is None else varying @ self.basis

    def problem(
        self, kernel: Kernel, dependence: Dependence, engine_tol: float, random_state: Any
    ) -> tuple[Kernel, Problem]:
        """Return `kernel` with the numbers that these rows give it, and the problem with it."""
        drawn = self.drawn(kernel, engine_tol, random_state)
        problem = Problem.of(self.shards, drawn.kernel, dependence, **drawn.approximation)
        return drawn.kernel, problem

    def drawn(self, kernel: Kernel, engine_tol: float, random_state: Any) -> Drawn:
        """Return what a fit needs beside the rows and Gamma."""
        random = check_random_state(random_state or 0)
        sample = self._sample(random)
        resolved = kernel.carried(self.lower).resolve(sample)
        return Drawn(resolved, engine_tol, sample, int(random.randint(2**31)))

    def _sample(self, random_state: np.random.RandomState) -> Array:
        """Return up to 5,000 of the rows (m, r), all of them or a random choice."""
        n = self.shards.n_rows
        chosen = np.arange(n)
        if n > SAMPLE_ROWS:
            chosen = np.sort(random_state.choice(n, SAMPLE_ROWS, replace=False))
        return self.shards.rows(chosen)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a fit draws from its rows.

    Attributes
    ----------
    kernel : Kernel
        With nothing left to resolve.
    engine_tol : float
    sample : (s, r) array
        Some of the rows.
    seed : int
        For engines.
    """

    kernel: Kernel
    engine_tol: float
    sample: Array
    seed: int

    @property
    def approximation(self) -> dict[str, Any]:
        """What `Problem` wants to know of it."""
        return {"engine_tol": self.engine_tol, "sample": self.sample, "seed": self.seed}


def prepare(X: Any, kernel: Kernel, *, standardize: bool) -> Prepared:
    """Return the `Prepared` rows of a NumPy array, Dask array or `RowSource` X (n, d).

    Rows that are not to be standardised are still centred where the kernel cannot tell: distances
    between rows far from the origin would lose their digits.
    """
    raw = cut(X)
    affine = _statistics(raw)
    if not standardize:
        unmoved = any(not term.pairing.degree for _, term in kernel.terms)
        affine = _unscaled(affine, centred=not unmoved)
    shards = raw.standardised(affine)
    n, d = shards.n_rows, shards.n_columns
    if d == 0:
        raise ValueError("all features are constant over these rows; there is nothing to reduce")
    if d > n:
        rows = shards.rows(np.arange(n))
        basis, _ = scipy.linalg.qr(rows.T.astype(np.float64), mode="economic")
        return Prepared(cut((rows @ basis).astype(rows.dtype)), affine, basis)
    if isinstance(X, RowSource) or is_dask(X):
        return Prepared(shards, affine)
    # In memory, standardising once is cheaper than in every tile.
    return Prepared(cut(affine.apply(X, raw.dtype)), affine)


def _unscaled(affine: Affine, *, centred: bool) -> Affine:
    d = len(affine.mean)
    mean = affine.mean if centred else np.zeros(d)
    return Affine(mean, np.ones(d), np.ones(d, dtype=bool))


class _Columns:
    """Count, mean and squared deviations of the columns of some rows; sums are of all rows."""

    def __init__(self, count: int, mean: Array, squares: Array) -> None:
        self.count, self.mean, self.squares = count, mean, squares

    def __add__(self, other: _Columns) -> _Columns:
        # By deviations from means (Chan, Golub and LeVeque): sums of squares would lose digits.
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        between = apart**2 * (self.count * other.count / count)
        return _Columns(count, mean, self.squares + other.squares + between)


def _statistics(raw: Shards) -> Affine:
    """Return mean and population deviation in one pass over the rows, sums in float64."""
    columns = raw.fold(_columns)
    n, mean = raw.n_rows, columns.mean
    if not np.isfinite(mean).all():
        bad = np.flatnonzero(~np.isfinite(mean))
        raise ValueError(
            f"Input X contains NaN or infinity, in {len(bad)} columns, the first number {bad[0]}; "
            "fill or drop these rows first"
        )
    variance = columns.squares / n
    # A constant column has a variance of rounding only: its mean times epsilon, squared.
    eps = np.finfo(np.float64).eps
    kept = variance > n * eps * variance + (n * mean * eps) ** 2
    return Affine(mean, np.where(kept, np.sqrt(variance), 1.0), kept)


@np.errstate(invalid="ignore", over="ignore")  # told once, of all rows
def _columns(piece: Piece) -> _Columns:
    n, X = len(piece.X), piece.X
    mean = X.sum(axis=0, dtype=np.float64) / n
    rounded = mean.astype(X.dtype)
    deviations = X - rounded
    squares = np.square(deviations, out=deviations).sum(axis=0, dtype=np.float64)
    return _Columns(n, mean, squares - n * (mean - rounded) ** 2)
