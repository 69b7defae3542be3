"""From what the user gives to rows that the mathematics sees, and back for W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.utils import check_random_state

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.engines import Problem
from ism_dask.engines.rounding_error import needs_double
from ism_dask.estimators.partial_targets import as_array
from ism_dask.gamma.base import Dependence
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import whitening_transform
from ism_dask.linalg.row_space import RowSpace, axes_outside
from ism_dask.rows import LoadedShard, Shards, cut, is_dask
from ism_dask.rows.source import is_row_source
from ism_dask.rows.standardise import Standardisation
from ism_dask.solvers.starts import SampledRows
from ism_dask.solvers.width_selection import SELECTION_ROWS, SelectionProblem

# Pairwise distances are looked at on this many rows; more are sampled.
SAMPLE_ROWS = 5000
# Rows in memory up to this size are put in an order of their own.
_ORDERED_BYTES = 64 * 2**20
# Directions of the row space that hold less than so many roundings of the rows hold nothing else.
_ROUNDINGS = 16
# What is added to the eigenvalues of a covariance that rows are whitened by, as a share of their
# mean.
_WHITENING_RIDGE = 1e-3
# Squares of numbers beyond this, or below its inverse, are scaled before they are summed.
_LARGE = 1e120


def row_order(X: Any, y: Any = None) -> Array | None:
    """Return an order (n,) of rows in memory that does not depend on the order they come in.

    Sums over rows in another order differ by rounding, which an iteration can blow up: whoever
    sorts a table is not to get another answer. None stands for rows that are streamed, or so many
    that putting them in order would cost time and memory.
    """
    if not isinstance(X, np.ndarray) or X.nbytes > _ORDERED_BYTES:
        return None
    keys = [_digests(X)]
    if y is not None:
        known = as_array(y)
        if known.dtype.kind not in "biuf":
            known = np.unique(known.astype(str), return_inverse=True)[1].reshape(known.shape)
        keys.insert(0, _digests(known.reshape(len(X), -1)))
    return np.lexsort(keys)


def _digests(rows: Array) -> Array:
    """Return a 64-bit digest (n,) of each of some numeric rows (n, d)."""
    # Adding 0 makes -0 and 0 the same. Of whole numbers only the upper bits are not 0: they are
    # taken down before the multiples by odd numbers, which wrap around.
    bits = (np.ascontiguousarray(rows, dtype=np.float64) + 0.0).view(np.uint64)
    bits ^= bits >> np.uint64(32)
    return np.asarray(bits @ _odd_numbers(bits.shape[1]))


@lru_cache(maxsize=8)
def _odd_numbers(count: int) -> Array:
    """Return random odd numbers (count,), always the same."""
    return np.random.default_rng(0).integers(2**63, size=count, dtype=np.uint64) * 2 + 1


@dataclass(frozen=True)
class Prepared:
    """Standardised rows, without constant columns, in their row space where d > n.

    W lives in coordinates of its own: first the r in which the rows vary, then some in which they
    are constant, so that W may have columns that carry nothing where no other raises J.

    Attributes
    ----------
    shards : Shards
        (n, r) rows.
    affine : Affine
        Which d columns they came from, and how.
    basis : (kept, r) array or None
        Orthonormal basis of the row space, where the rows are coordinates in it.
    origin : (d,) array
        The zero of these rows, in features that are standardised by `mean_` and `scale_`.
    whitening : (r, r) array or None
        What the coordinates were multiplied by, where their covariance was brought to I.
    """

    shards: Shards
    affine: Standardisation
    origin: Array
    basis: Array | None = None
    whitening: Array | None = None

    @property
    def n_varying(self) -> int:
        """How many directions the rows vary in, r."""
        return self.shards.n_columns

    @property
    def n_constant(self) -> int:
        """How many directions of the feature space the rows are constant in."""
        return len(self.affine.kept) - self.n_varying

    def lift(self, directions: Array) -> Array:
        """Return (k, r + s) directions in terms of the original features (k, d)."""
        varying, constant = np.split(directions, [self.n_varying], axis=1)
        if self.whitening is not None:
            varying = varying @ self.whitening.T
        lifted = np.zeros((len(directions), len(self.affine.kept)))
        lifted[:, self.affine.kept] = varying if self.basis is None else varying @ self.basis.T
        if constant.any():
            lifted += constant @ self._constant_directions(constant.shape[1]).T
        return lifted

    def lift_rows(self, rows: Array) -> Array:
        """Return rows (k, r) of this space as standardised rows (k, d) of the user's."""
        if self.whitening is not None:
            inverse = np.linalg.inv(self.whitening)
            rows = rows @ inverse @ inverse.T  # `lift` multiplies by the whitening once more
        return self.lift(rows) + self.origin

    def lower_rows(self, rows: Array) -> Array:
        """Return standardised rows (k, d) of the user's as rows (k, r) of this space."""
        if rows.shape[1] != len(self.affine.kept):
            raise ValueError(
                f"the kernel keeps rows of {rows.shape[1]} features, X has "
                f"{len(self.affine.kept)}; its widths belong to the space they were taken in"
            )
        varying = (rows - self.origin)[:, self.affine.kept]
        varying = varying if self.basis is None else varying @ self.basis
        return varying if self.whitening is None else varying @ self.whitening

    def _constant_directions(self, count: int) -> Array:
        """Return orthonormal directions (d, count) in which the rows are constant.

        The constant columns come first, in their order. Then come the features that lie furthest
        outside of the row space, less what they have in it.
        """
        constant = np.eye(len(self.affine.kept))[:, ~self.affine.kept][:, :count]
        missing = count - constant.shape[1]
        if not missing or self.basis is None:
            return constant
        outside = np.zeros((len(self.affine.kept), missing))
        outside[self.affine.kept] = axes_outside(self.basis, missing)
        return np.hstack([constant, outside])

    def whitened(self) -> Prepared:
        """Return the rows in coordinates of covariance I, but for a ridge.

        W is orthonormal there: `W^T Sigma W = I` in terms of the columns.
        """
        covariance = self.shards.in_double().fold(_gram) / self.shards.n_rows
        whitening = whitening_transform(covariance, _WHITENING_RIDGE)
        return replace(self, shards=self.shards.times(whitening), whitening=whitening)

    def share(self, q: int) -> float:
        """Return how many of the columns that vary W (d, q) leaves: q / d."""
        return min(q / np.count_nonzero(self.affine.kept), 1.0)

    def drawn(self, kernel: Kernel, engine_tol: float, random_state: Any, q: int) -> FitRows:
        """Return what a fit of W (d, q) needs beside Gamma."""
        chosen, seed = _chosen(self.shards.n_rows, random_state or 0)
        sample = self.shards.in_double().rows(chosen)
        resolved = kernel.with_rows_mapped(self.lower_rows).resolve(sample, self.share(q))
        double = needs_double(resolved, sample, self.shards.dtype)
        return FitRows(
            kernel=resolved,
            shards=self.shards.in_double() if double else self.shards,
            engine_tol=engine_tol,
            chosen=chosen,
            sample=sample,
            seed=seed,
            space=RowSpace(self.n_varying, self.n_constant, self.basis),
        )


def _chosen(n: int, random_state: Any) -> tuple[Array, int]:
    """Return the numbers (m,) of up to 5,000 of n rows, all or a random choice, and a seed."""
    if n <= SAMPLE_ROWS:
        return np.arange(n), _seed(random_state)
    random = check_random_state(random_state)
    chosen = np.sort(random.choice(n, SAMPLE_ROWS, replace=False))
    return chosen, int(random.randint(2**31))


def _seed(random_state: Any) -> int:
    """Return the first number that is drawn from a random state."""
    if is_whole(random_state):
        return _seed_of(int(random_state))
    return int(check_random_state(random_state).randint(2**31))


@lru_cache(maxsize=64)
def _seed_of(number: int) -> int:
    """Return the first number drawn: starting a generator takes as long as some products of Phi."""
    return int(check_random_state(number).randint(2**31))


@dataclass(frozen=True, eq=False)
class FitRows:
    """What a fit takes from its rows.

    Attributes
    ----------
    kernel : Kernel
        With nothing left to resolve.
    shards : Shards
        The rows, in the precision that the kernel needs.
    engine_tol : float
    chosen : (s,) array
        The numbers of some rows.
    sample : (s, r) array
        These rows, in double precision.
    seed : int
        For engines.
    space : Space
        Where W lives.
    """

    kernel: Kernel
    shards: Shards
    engine_tol: float
    chosen: Array
    sample: Array
    seed: int
    space: RowSpace

    def with_kernel(self, kernel: Kernel) -> FitRows:
        """Return the same with another kernel, which may need other precision."""
        double = needs_double(kernel, self.sample, self.shards.dtype)
        return replace(
            self, kernel=kernel, shards=self.shards.in_double() if double else self.shards
        )

    def problem(self, dependence: Dependence) -> Problem:
        """Return the problem of all rows with what is known of them."""
        return Problem.of(self.shards, self.kernel, dependence, **self.parameters)

    def choice(self, dependence: Dependence, q: int, widths: Sequence[float]) -> SelectionProblem:
        """Return up to 2,000 of the rows, to choose among multiples of the width and starts."""
        picked = np.arange(len(self.chosen))
        if len(picked) > SELECTION_ROWS:
            random = np.random.default_rng(self.seed)
            picked = np.sort(random.choice(len(picked), SELECTION_ROWS, replace=False))
        # Folds are not to depend on the order of the rows, where they all are there.
        picked = picked[np.lexsort(self.sample[picked].T)]
        known = dependence.part(self.chosen[picked])
        X = self.sample[picked]
        classes = None if dependence.classes is None else known.facts[:, 0]
        evidence = SampledRows.of(X, known.gamma.factor(known.facts), classes)
        rows = X.astype(self.shards.dtype)

        def problem(part: Array, kernel: Kernel) -> Problem:
            return Problem.of(cut(rows[part]), kernel, known.part(part))

        return SelectionProblem(evidence, self.kernel, problem, q, widths)

    @property
    def parameters(self) -> dict[str, Any]:
        """What `Problem` takes beside the rows, the kernel and Gamma."""
        return {
            "engine_tol": self.engine_tol,
            "sample": self.sample,
            "seed": self.seed,
            "space": self.space,
        }


def prepare_rows(X: Any, kernel: Kernel, *, standardize: bool) -> Prepared:
    """Return the `Prepared` rows of a NumPy array, Dask array or `RowSource` X (n, d).

    Rows that are not to be standardised are still centred where the kernel cannot tell: distances
    between rows far from the origin would lose their digits.
    """
    raw = cut(X)
    affine = _statistics(raw)
    origin = np.zeros(len(affine.mean))
    if not standardize:
        _check_size(affine)
        moved = all(term.pairing.degree for _, term in kernel.terms)
        origin = affine.mean if moved else origin
        affine = Standardisation(origin, np.ones_like(origin), affine.kept | (not moved))
    shards = raw.standardised(affine)
    n, d = shards.n_rows, shards.n_columns
    if d == 0:
        raise ValueError("all features are constant over these rows; there is nothing to reduce")
    if d > n:
        return _in_row_space(shards, affine, origin)
    if is_row_source(X) or is_dask(X):
        return Prepared(shards, affine, origin)
    # In memory, standardising once is cheaper than in every tile.
    once = cut(affine.apply(X, raw.dtype), raw.largest)
    return Prepared(once.backed_by(shards), affine, origin)


def _check_size(affine: Standardisation) -> None:
    """Raise a ValueError for columns whose squares are beyond what a float holds."""
    size = float(affine.scale[affine.kept].max(initial=0.0))
    if size and not 1 / _LARGE < size < _LARGE:
        raise ValueError(
            f"X has a column of deviation {size:.2g}; without standardising it must be from "
            f"{1 / _LARGE:g} to {_LARGE:g}. Take another unit, or standardize=True"
        )


def _in_row_space(shards: Shards, affine: Standardisation, origin: Array) -> Prepared:
    """Return rows (n, d), d > n, as coordinates in the space that they span."""
    rows = shards.in_double().rows(np.arange(shards.n_rows))
    Q, R, _ = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(R))
    # Centred rows always leave a direction that is nothing but rounding.
    basis = Q[:, sizes > _ROUNDINGS * max(rows.shape) * np.finfo(np.float64).eps * sizes[0]]
    coordinates = rows @ basis
    double = cut(coordinates)
    single = cut(coordinates.astype(shards.dtype), double.largest).backed_by(double)
    return Prepared(single, affine, origin, basis)


class _Columns:
    """Count, mean, squared deviations and range of some rows' columns; they add to all rows'."""

    def __init__(self, count: int, mean: Array, squares: Array, low: Array, high: Array) -> None:
        self.count, self.mean, self.squares = count, mean, squares
        self.low, self.high = low, high

    def __add__(self, other: _Columns) -> _Columns:
        # By deviations from means (Chan, Golub and LeVeque): sums of squares would lose digits.
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        between = apart**2 * (self.count * other.count / count)
        return _Columns(
            count,
            mean,
            self.squares + other.squares + between,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def _statistics(raw: Shards) -> Standardisation:
    """Return mean and population deviation in one pass over the rows, sums in float64."""
    columns: _Columns = raw.in_double().fold(_columns)
    finite = np.isfinite(columns.low) & np.isfinite(columns.high)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise ValueError(
            f"Input X contains NaN or infinity, in {len(bad)} columns, the first number {bad[0]}; "
            "fill or drop these rows first"
        )
    size = np.maximum(np.abs(columns.low), np.abs(columns.high))
    if ((size > _LARGE) | ((size < 1 / _LARGE) & (size > 0))).any():
        return _scaled_statistics(raw, size)
    return _affine(columns)


def _scaled_statistics(raw: Shards, size: Array) -> Standardisation:
    """Return the statistics of columns whose squares would leave the range of float64."""
    # Powers of two round nothing.
    unit = np.ldexp(1.0, np.frexp(np.where(size > 0, size, 1.0))[1] - 1)
    whole = Standardisation(np.zeros_like(unit), unit, np.ones(len(unit), dtype=bool))
    affine = _affine(raw.in_double().standardised(whole).fold(_columns))
    return Standardisation(
        affine.mean * unit, np.where(affine.kept, affine.scale * unit, 1.0), affine.kept
    )


def _affine(columns: _Columns) -> Standardisation:
    n, mean, variance = columns.count, columns.mean, columns.squares / columns.count
    # A constant column has a variance of rounding only: its mean times epsilon, squared.
    eps = np.finfo(np.float64).eps
    kept = (columns.high > columns.low) & (variance > (n * mean * eps) ** 2)
    return Standardisation(mean, np.where(kept, np.sqrt(variance), 1.0), kept)


@np.errstate(invalid="ignore", over="ignore")  # an error names the columns, once for all rows
def _columns(piece: LoadedShard) -> _Columns:
    n, X = len(piece.X), piece.X
    low, high = X.min(axis=0), X.max(axis=0)
    mean = X.mean(axis=0)
    deviations = X - mean
    # The mean of the deviations is what rounding left of the mean.
    mean += deviations.mean(axis=0)
    squares = np.einsum("ij,ij->j", deviations, deviations)
    return _Columns(n, mean, squares, low, high)


def _gram(piece: LoadedShard) -> Array:
    return np.asarray(piece.X.T @ piece.X)
