"""Prepare the user's rows for the solver: standardise, drop constant columns; map W back."""

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
from ism_dask.estimators.partial_targets import target_as_array
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.weighted import repeated_rows
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import whitening_transform
from ism_dask.linalg.row_space import RowSpace, axes_outside
from ism_dask.rows.column_statistics import (
    ROW_WEIGHTS,
    check_range,
    standardisation_of,
    without_dependent_indicators,
)
from ism_dask.rows.execution import is_dask
from ism_dask.rows.shards import Shards, cut
from ism_dask.rows.source import is_row_source
from ism_dask.rows.standardise import Standardisation
from ism_dask.rows.tasks import LoadedShard
from ism_dask.solvers.starts import SampledRows
from ism_dask.solvers.width_selection import SELECTION_ROWS, SelectionProblem

# Pairwise distances are computed on at most this many rows; larger data are sampled.
SAMPLE_ROWS = 5000
# Rows in memory up to this many bytes are sorted into a canonical order.
_ORDERED_BYTES = 64 * 2**20
# A direction of the row space whose size is below this many roundings of the rows is rounding.
_ROUNDINGS = 16
# Ridge of the covariance that rows are whitened by, as a share of its mean eigenvalue.
_WHITENING_RIDGE = 1e-3


def row_order(X: Any, y: Any = None, *others: Array) -> Array | None:
    """Return an order (n,) of rows in memory that does not depend on the order they come in.

    y (n,) or (n, t) and others, numbers such as weights (n,), belong to the rows.

    Sums over rows in another order differ by rounding, which an iteration can amplify, so that a
    sorted table would give another answer. None means that the rows are streamed, or that there
    are so many of them that sorting would cost too much time and memory.
    """
    if not isinstance(X, np.ndarray) or X.nbytes > _ORDERED_BYTES:
        return None
    keys = [_digests(X)]
    if y is not None:
        target = target_as_array(y)
        if target.dtype.kind not in "biuf":
            target = np.unique(target.astype(str), return_inverse=True)[1].reshape(target.shape)
        keys.insert(0, _digests(target.reshape(len(X), -1)))
    keys = [*(_digests(each.reshape(len(X), -1)) for each in others), *keys]
    return np.lexsort(keys)


def _digests(rows: Array) -> Array:
    """Return a 64-bit digest (n,) of each of the numeric rows (n, d)."""
    # Adding 0 makes -0 and 0 the same. Whole numbers as floats have nonzero bits only at the upper
    # end: these are shifted down before the multiplication by odd numbers, which wraps around.
    bits = (np.ascontiguousarray(rows, dtype=np.float64) + 0.0).view(np.uint64)
    bits ^= bits >> np.uint64(32)
    return np.asarray(bits @ _odd_numbers(bits.shape[1]))


@lru_cache(maxsize=8)
def _odd_numbers(count: int) -> Array:
    """Return random odd numbers (count,), the same on every call."""
    return np.random.default_rng(0).integers(2**63, size=count, dtype=np.uint64) * 2 + 1


@dataclass(frozen=True)
class Prepared:
    """Standardised rows without constant columns, in coordinates of the space that they span.

    They are in such coordinates if d > n, or if indicators of levels depend on each other.

    W has its own coordinates: first the r directions in which the rows vary, then some in which
    the rows are constant. So W may have columns that carry nothing if no other column raises J.

    Attributes
    ----------
    shards : Shards
        The (n, r) rows.
    affine : Standardisation
        Which of the d columns the rows use, and how they are standardised.
    basis : (varying, r) array or None
        Orthonormal basis of the row space, if the rows are coordinates in it.
    origin : (d,) array
        The zero of these rows, in features standardised by `mean_` and `scale_`.
    whitening : (r, r) array or None
        The matrix by which the coordinates were multiplied, if their covariance was made I.
    """

    shards: Shards
    affine: Standardisation
    origin: Array
    basis: Array | None = None
    whitening: Array | None = None

    @property
    def n_varying(self) -> int:
        """Number of directions in which the rows vary, r."""
        return self.shards.n_columns

    @property
    def n_constant(self) -> int:
        """Number of directions of the feature space in which the rows are constant."""
        return len(self.affine.varying) - self.n_varying

    def lift(self, directions: Array) -> Array:
        """Return (k, r + s) directions in terms of the original features (k, d)."""
        varying, constant = np.split(directions, [self.n_varying], axis=1)
        if self.whitening is not None:
            varying = varying @ self.whitening.T
        lifted = np.zeros((len(directions), len(self.affine.varying)))
        lifted[:, self.affine.varying] = varying if self.basis is None else varying @ self.basis.T
        if constant.any():
            lifted += constant @ self._constant_directions(constant.shape[1]).T
        return lifted

    def lower(self, directions: Array) -> Array:
        """Return directions (k, d) of the features as orthonormal columns (r, k) of this space."""
        varying = directions[:, self.affine.varying]
        varying = varying if self.basis is None else varying @ self.basis
        if self.whitening is not None:
            varying = varying @ np.linalg.inv(self.whitening.T)
        return np.linalg.qr(varying.T)[0]

    def lift_rows(self, rows: Array) -> Array:
        """Return rows (k, r) of this space as standardised rows (k, d) of the user's features."""
        if self.whitening is not None:
            inverse = np.linalg.inv(self.whitening)
            rows = rows @ inverse @ inverse.T  # `lift` multiplies by the whitening once more
        return self.lift(rows) + self.origin

    def lower_rows(self, rows: Array) -> Array:
        """Return standardised rows (k, d) of the user's features as rows (k, r) of this space."""
        if rows.shape[1] != len(self.affine.varying):
            raise ValueError(
                f"the kernel keeps rows of {rows.shape[1]} features, X has "
                f"{len(self.affine.varying)}; its widths belong to the space they were taken in"
            )
        varying = (rows - self.origin)[:, self.affine.varying]
        varying = varying if self.basis is None else varying @ self.basis
        return varying if self.whitening is None else varying @ self.whitening

    def _constant_directions(self, count: int) -> Array:
        """Return orthonormal directions (d, count) in which the rows are constant.

        The constant columns come first, in their order. Then come the features that lie furthest
        outside the row space, minus their parts inside it.
        """
        constant = np.eye(len(self.affine.varying))[:, ~self.affine.varying][:, :count]
        missing = count - constant.shape[1]
        if not missing or self.basis is None:
            return constant
        outside = np.zeros((len(self.affine.varying), missing))
        outside[self.affine.varying] = axes_outside(self.basis, missing)
        return np.hstack([constant, outside])

    def whitened(self, weights: Array | None = None) -> Prepared:
        """Return the rows, with weights (n,), in coordinates whose covariance is I, up to a ridge.

        W is orthonormal in these coordinates: in terms of the columns, `W^T Sigma W = I`.
        """
        shards = _with_weights(self.shards.in_double(), weights)
        total = shards.n_rows if weights is None else weights.sum()
        covariance = shards.fold(_covariance_sums) / total
        whitening = whitening_transform(covariance, _WHITENING_RIDGE)
        return replace(self, shards=self.shards.times(whitening), whitening=whitening)

    def column_share(self, q: int) -> float:
        """Return q / d, the share of the varying columns that remains after W (d, q)."""
        return min(q / np.count_nonzero(self.affine.varying), 1.0)

    def fit_rows(
        self, kernel: Kernel, random_state: Any, q: int, weights: Array | None = None
    ) -> FitRows:
        """Return everything that a fit of W (d, q) needs except Gamma, with sampled rows.

        Rows with weights (n,) occur in the sample as often as these say.
        """
        candidates = repeated_rows(weights) if weights is not None else self.shards.n_rows
        indices, seed = _sample_indices(candidates, random_state or 0)
        sample = self.shards.in_double().rows(indices)
        resolved = kernel.with_rows_mapped(self.lower_rows).resolve(sample, self.column_share(q))
        double = needs_double(resolved, sample, self.shards.dtype)
        return FitRows(
            kernel=resolved,
            shards=self.shards.in_double() if double else self.shards,
            chosen=indices,
            sample=sample,
            seed=seed,
            space=RowSpace(self.n_varying, self.n_constant, self.basis),
        )


def _sample_indices(candidates: int | Array, random_state: Any) -> tuple[Array, int]:
    """Return the ascending indices (m,) of up to 5,000 rows, all or a random sample, and a seed.

    `candidates` are the indices to draw from, or the number of rows.
    """
    n = candidates if isinstance(candidates, int) else len(candidates)
    if n <= SAMPLE_ROWS:
        return np.arange(n) if isinstance(candidates, int) else candidates, _seed(random_state)
    random = check_random_state(random_state)
    indices = np.sort(random.choice(candidates, SAMPLE_ROWS, replace=False))
    return indices, int(random.randint(2**31))


def _seed(random_state: Any) -> int:
    """Return the first number that a random state draws."""
    if is_whole(random_state):
        return _seed_from_number(int(random_state))
    return int(check_random_state(random_state).randint(2**31))


@lru_cache(maxsize=64)
def _seed_from_number(number: int) -> int:
    """Return the first number drawn, cached: a new generator costs as much as products of Phi."""
    return int(check_random_state(number).randint(2**31))


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit, with the kernel and the sample that belong to them.

    Attributes
    ----------
    kernel : Kernel
        The kernel, resolved: all its numbers are set.
    shards : Shards
        The rows, in the precision that the kernel needs.
    chosen : (s,) array
        The indices of the sampled rows.
    sample : (s, r) array
        The sampled rows, in double precision.
    seed : int
        Seed of the engines.
    space : RowSpace
        The coordinates of W.
    """

    kernel: Kernel
    shards: Shards
    chosen: Array
    sample: Array
    seed: int
    space: RowSpace

    def with_kernel(self, kernel: Kernel) -> FitRows:
        """Return the same rows with another kernel, in the precision that it needs."""
        double = needs_double(kernel, self.sample, self.shards.dtype)
        return replace(
            self, kernel=kernel, shards=self.shards.in_double() if double else self.shards
        )

    def problem(self, dependence: Dependence) -> Problem:
        """Return the problem of all rows under a dependence, such as that of y."""
        return Problem.from_dependence(self.shards, self.kernel, dependence, **self.parameters)

    def selection_problem(
        self, dependence: Dependence, q: int, widths: Sequence[float]
    ) -> SelectionProblem:
        """Return the problem of choosing a width and a start, on up to 2,000 of the rows."""
        positions = np.arange(len(self.chosen))
        if len(positions) > SELECTION_ROWS:
            random = np.random.default_rng(self.seed)
            positions = np.sort(random.choice(len(positions), SELECTION_ROWS, replace=False))
        # If the sample has all rows, the held-out folds must not depend on the order of the rows.
        positions = positions[np.lexsort(self.sample[positions].T)]
        sample_dependence = dependence.part(self.chosen[positions])
        X = self.sample[positions]
        evidence = SampledRows.explaining(X, sample_dependence)
        rows = X.astype(self.shards.dtype)

        def problem(part: Array, kernel: Kernel) -> Problem:
            return Problem.from_dependence(cut(rows[part]), kernel, sample_dependence.part(part))

        return SelectionProblem(evidence, self.kernel, problem, q, widths)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of `Problem` other than the rows, the kernel and Gamma."""
        return {
            "sample": self.sample,
            "seed": self.seed,
            "space": self.space,
        }


def prepare_rows(
    X: Any, kernel: Kernel, *, standardize: bool, weights: Array | None = None
) -> Prepared:
    """Return the `Prepared` rows of a NumPy array, Dask array or `RowSource` X (n, d).

    Means and deviations count rows by their weights (n,).

    Rows that are not standardised are still centred if the kernel does not depend on the origin:
    distances between rows far from the origin would lose their digits.
    """
    raw = cut(X)
    affine = standardisation_of(_with_weights(raw, weights))
    origin, centred = np.zeros(len(affine.mean)), True
    if not standardize:
        check_range(affine)
        centred = all(term.pairing.degree for _, term in kernel.terms)
        origin = affine.mean if centred else origin
        affine = replace(
            affine, mean=origin, scale=np.ones_like(origin), varying=affine.varying | (not centred)
        )
    shards = raw.standardised(affine)
    n, d = shards.n_rows, shards.n_columns
    if d == 0:
        raise ValueError("all features are constant over these rows; there is nothing to reduce")
    if d > n:
        return _in_row_space(shards, affine, origin)
    spanned = without_dependent_indicators(raw, affine) if centred else affine
    shards = raw.standardised(spanned)
    if is_row_source(X) or is_dask(X):
        return Prepared(shards, affine, origin, spanned.basis)
    # Rows in memory: to standardise them once is cheaper than in every tile.
    once = cut(spanned.apply(X, raw.dtype), raw.largest)
    return Prepared(once.backed_by(shards), affine, origin, spanned.basis)


def _in_row_space(shards: Shards, affine: Standardisation, origin: Array) -> Prepared:
    """Return rows (n, d), d > n, as coordinates in the space that they span."""
    rows = shards.in_double().rows(np.arange(shards.n_rows))
    Q, R, _ = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(R))
    # Centred rows always span a direction that is nothing but rounding.
    basis = Q[:, sizes > _ROUNDINGS * max(rows.shape) * np.finfo(np.float64).eps * sizes[0]]
    coordinates = rows @ basis
    double = cut(coordinates)
    single = cut(coordinates.astype(shards.dtype), double.largest).backed_by(double)
    return Prepared(single, affine, origin, basis)


def _with_weights(shards: Shards, weights: Array | None) -> Shards:
    return shards if weights is None else shards.with_rows(ROW_WEIGHTS, weights)


def _covariance_sums(piece: LoadedShard) -> Array:
    weights = piece.facts.get(ROW_WEIGHTS)
    rows = piece.X if weights is None else weights[:, None] * piece.X
    return np.asarray(piece.X.T @ rows)
