"""Prepare the user's rows for the solver: standardise, drop constant columns; map W back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.engines.base import SAMPLE_ROWS
from ism_dask.estimators.input_rows import is_lazy, row_order
from ism_dask.gamma.base import repeated_rows
from ism_dask.gamma.side_information import SideRegression
from ism_dask.kernels import Kernel
from ism_dask.linalg.subspaces import (
    axes_outside,
    most_constant,
    nearest_orthonormal,
)
from ism_dask.rows.raw import (
    LARGE,
    MANY_ROWS,
    RANGE_ROWS,
    ROW_WEIGHTS,
    ColumnMoments,
    LoadedShard,
    RowFact,
    SparseRows,
    Standardisation,
    as_dense,
    is_sparse,
)
from ism_dask.rows.shards import Shards, cut

# A direction of the row space whose size is below this many roundings of the rows is rounding.
_ROUNDINGS = 16
# More indicators than this are not compared with each other.
_MOST_INDICATORS = 1000
# Indicators depend on each other if a variance is a smaller share of the largest one.
_DEPENDENT = 1e-10
# The row of the factor of what is given (b, m), and how much the row counts (b,).
_SIDE, _COUNTS = RowFact("side"), RowFact("counts")


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
    origin : (d,) array
        The zero of these rows, in features standardised by `mean_` and `scale_`.
    basis : (varying, r) array or None
        Orthonormal basis of the row space, if the rows are coordinates in it.
    varying_only : bool
        Whether W may use no directions in which the rows are constant.
    others : (k, d) array or None
        Some of the rows without y, not standardised.
    """

    shards: Shards
    affine: Standardisation
    origin: Array
    basis: Array | None = None
    varying_only: bool = False
    others: Array | None = None

    @property
    def n_varying(self) -> int:
        """Number of directions in which the rows vary, r."""
        return self.shards.n_columns

    @property
    def n_constant(self) -> int:
        """Number of directions that W may use and in which the rows are constant."""
        return 0 if self.varying_only else len(self.affine.varying) - self.n_varying

    def check_varying(self, q: int) -> None:
        """Raise a ValueError if the rows vary in fewer than q directions."""
        if q > self.n_varying:
            raise ValueError(
                f"the rows vary in {self.n_varying} directions, fewer than the {q} new features; "
                "fit with fewer `n_components`"
            )

    def n_components(self, given: int | str | None, default: int) -> int:
        """Return q: the given number, or `default`, limited by the directions of the rows."""
        d, largest = len(self.affine.varying), self.n_varying - 1
        if largest < 1:
            raise ValueError(
                f"X varies in {largest + 1} direction only; there is nothing to reduce"
            )
        if given is None or given == "auto":
            return min(default, largest)
        if not is_whole(given) or not 1 <= given < d:
            raise ValueError(
                f"`n_components` must be a whole number from 1 to {d - 1} for {d} features, "
                f'"auto" or None; got {given!r}'
            )
        return int(given)

    def projection(self, W: Array) -> dict[str, Array]:
        """Return the fitted attributes that `transform` needs, for the W (r + s, q) `rotated`."""
        return {
            "components_": self.lift(W.T),
            "mean_": self.affine.mean - self.origin * self.affine.scale,
            "scale_": self.affine.scale,
        }

    def lift(self, directions: Array) -> Array:
        """Return (k, r + s) directions in terms of the original features (k, d).

        The last s are the constant columns, in their order, and then the features that lie furthest
        outside the row space, minus their parts inside it.
        """
        is_varying, d = self.affine.varying, len(self.affine.varying)
        varying, constant = np.split(directions, [self.n_varying], axis=1)
        lifted = np.zeros((len(directions), d))
        lifted[:, is_varying] = varying if self.basis is None else varying @ self.basis.T
        if constant.any():
            axes = np.eye(d)[:, ~is_varying][:, : constant.shape[1]]
            missing = constant.shape[1] - axes.shape[1]
            if missing and self.basis is not None:
                outside = np.zeros((d, missing))
                outside[is_varying] = axes_outside(self.basis, missing)
                axes = np.hstack([axes, outside])
            lifted += constant @ axes.T
        return lifted

    def lower(self, directions: Array) -> Array:
        """Return directions (k, d) of the features as orthonormal columns (r, k) of this space."""
        varying = directions[:, self.affine.varying]
        varying = varying if self.basis is None else varying @ self.basis
        return nearest_orthonormal(varying.T)

    def coordinates(self, components: Array) -> Array:
        """Return the W (r + s, q) that `lift` maps to the components (q, d) of a fit."""
        size = self.n_varying + min(self.n_constant, most_constant(len(components)))
        return np.asarray(self.lift(np.eye(size)) @ components.T)

    def orthonormal(self, components: Array) -> Array:
        """Return the orthonormal W (r + s, q) nearest to components (q, d) of other rows."""
        return nearest_orthonormal(self.coordinates(components))

    def lift_rows(self, rows: Array) -> Array:
        """Return rows (k, r) of this space as standardised rows (k, d) of the user's features."""
        return self.lift(rows) + self.origin

    def lower_rows(self, rows: Array) -> Array:
        """Return standardised rows (k, d) of the user's features as rows (k, r) of this space."""
        if rows.shape[1] != len(self.affine.varying):
            raise ValueError(
                f"the kernel keeps rows of {rows.shape[1]} features, X has "
                f"{len(self.affine.varying)}; its widths belong to the space they were taken in"
            )
        varying = (rows - self.origin)[:, self.affine.varying]
        return varying if self.basis is None else varying @ self.basis

    @property
    def features(self) -> Array:
        """The matrix (r, d) that turns rows of coordinates into rows of features."""
        return self.lift(np.eye(self.n_varying))

    def beyond(self, given: SideRegression) -> Prepared:
        """Return the rows minus what is given explains of each column, computed now.

        Without it, J would be larger where X W tells what is given: y at fixed s depends on X W in
        one way for each s.
        """
        shards, basis = self.shards.in_double(), self.basis
        # Each feature has a ridge of its own, whatever the axes of the coordinates are.
        features = shards if basis is None else shards.mapped(_turned, len(basis), basis.T)
        features = features.with_rows(_COUNTS, given.counts).with_rows(_SIDE, given.factor)
        cross, squares, sums = features.fold(_side_sums)
        squares -= sums**2 / given.counts.sum()
        coefficients, *_ = given.fit(cross, squares)
        coefficients = coefficients if basis is None else coefficients @ basis
        shards = shards.with_rows(_SIDE, given.factor)
        residuals = shards.mapped(_residual, self.n_varying, coefficients)
        return replace(self, shards=residuals, others=None)  # of which nothing is given

    def with_others(self, rows: Array) -> Array:
        """Return some of the rows (m, r), from which a kernel gets its widths, and the others."""
        if self.others is None:
            return rows
        others = self.affine.apply(self.others, np.dtype(np.float64))
        return np.vstack([rows, others if self.basis is None else others @ self.basis])

    def column_share(self, q: int) -> float:
        """Return q / d, the share of the varying columns that remains after W (d, q)."""
        return min(q / np.count_nonzero(self.affine.varying), 1.0)


@dataclass(frozen=True, eq=False)
class RowsWithoutY:
    """What rows without y tell of X: the moments of its columns, and some of the rows (k, d)."""

    moments: ColumnMoments
    some: Array

    @classmethod
    def of_rows(cls, X: Any, counts: Array) -> RowsWithoutY:
        """Return what the rows of an array of NumPy, Dask or scipy tell, by their weights (n,)."""
        if (order := row_order(X, weights=counts)) is not None:
            X, counts = X[order], counts[order]
        rows = SparseRows(X, RANGE_ROWS) if is_sparse(X) else X
        moments = column_moments(cut(rows).with_rows(ROW_WEIGHTS, counts))
        drawn = repeated_rows(counts)
        return cls(moments, as_dense(X[drawn[:: -(-len(drawn) // SAMPLE_ROWS)]]))


def prepare_rows(
    X: Any,
    kernel: Kernel,
    *,
    standardize: bool,
    weights: Array | None = None,
    support: Array | None = None,
    others: RowsWithoutY | None = None,
) -> Prepared:
    """Return the `Prepared` rows of an array of NumPy, Dask or scipy, or of a `RowSource` X (n, d).

    Means and deviations count rows by their weights (n,), and the `others`, too. A `support` (d,)
    limits W to the features for which it is true.
    """
    X = SparseRows(X, RANGE_ROWS) if is_sparse(X) else X
    raw = in_least_precision(cut(X))
    columns = column_moments(raw if weights is None else raw.with_rows(ROW_WEIGHTS, weights))
    affine = Standardisation.from_moments(columns)
    origin = np.zeros(len(affine.mean))
    # Rows that are not standardised are still centred if the kernel does not depend on the origin:
    # distances between rows far from it would lose their digits.
    is_free = all(term.pairing.degree for _, term in kernel.terms)
    centred = standardize or is_free
    if not standardize:
        origin = affine.mean if centred else origin
        varying = affine.varying | (not centred)
        affine = replace(affine, mean=origin, scale=np.ones_like(origin), varying=varying)
    elif others is not None:
        # The starts need rows whose mean is 0, and only some kernels depend on the origin.
        whole = Standardisation.from_moments(columns + others.moments)
        mean = affine.mean if is_free else whole.mean
        origin = (mean - whole.mean) / whole.scale
        affine = replace(affine, mean=mean, scale=whole.scale)
    if support is not None:
        affine = replace(affine, varying=affine.varying & support)
    shards = raw.standardised(affine)
    n, d = shards.n_rows, shards.n_columns
    if d == 0:
        raise ValueError("all features are constant over these rows; there is nothing to reduce")
    some = None if others is None else others.some
    prepared = Prepared(shards, affine, origin, varying_only=support is not None, others=some)
    if d > n:
        rows = shards.in_double().rows(np.arange(n))
        Q, R, _ = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
        sizes = np.abs(np.diag(R))
        # Centred rows always span a direction that is nothing but rounding.
        basis = Q[:, sizes > _ROUNDINGS * max(rows.shape) * np.finfo(np.float64).eps * sizes[0]]
        return replace(prepared, shards=replace(cut(rows @ basis), dtype=shards.dtype), basis=basis)
    counted = raw if weights is None else raw.with_rows(ROW_WEIGHTS, weights)
    spanned = without_dependent_indicators(counted, affine) if centred else affine
    shards = raw.standardised(spanned)
    if not is_lazy(X):  # to standardise rows in memory once is cheaper than in every tile
        shards = replace(cut(spanned.apply(X, raw.dtype), raw.largest), source=shards)
    return replace(prepared, shards=shards, basis=spanned.basis)


def _side_sums(piece: LoadedShard) -> tuple[Array, Array, Array]:
    weighted = piece.facts[_COUNTS][:, None] * piece.X
    squares = np.einsum("ij,ij->j", weighted, piece.X)
    return piece.facts[_SIDE].T @ weighted, squares, weighted.sum(axis=0)


def _turned(piece: LoadedShard, axes: Array) -> Array:
    return np.asarray(piece.X @ axes)


def _residual(piece: LoadedShard, coefficients: Array) -> Array:
    return np.asarray(piece.X - piece.facts[_SIDE] @ coefficients)


def column_moments(raw: Shards) -> ColumnMoments:
    """Return the moments of the columns in one pass over the rows, summed in float64.

    Rows count by the fact `ROW_WEIGHTS`, if the shards have it. Raise a ValueError for numbers that
    are not finite, or extreme.
    """
    columns: ColumnMoments = raw.in_double().fold(_column_moments)
    finite = np.isfinite(columns.low) & np.isfinite(columns.high)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise ValueError(
            f"Input X contains NaN or infinity, in {len(bad)} columns, the first number {bad[0]}; "
            'fit with missing="mean", fill them at ingestion or as scikit-learn\'s SimpleImputer '
            "does, or drop these rows"
        )
    size = np.maximum(np.abs(columns.low), np.abs(columns.high))
    extreme = np.flatnonzero((size > LARGE) | ((size < 1 / LARGE) & (size > 0)))
    if extreme.size:
        j = extreme[0]
        raise ValueError(
            f"X has numbers up to {size[j]:.2g} in column number {j}; expected a largest one from "
            f"{1 / LARGE:g} to {LARGE:g}. Take another unit"
        )
    return columns


# For columns that are not finite, `column_moments` raises one error.
@np.errstate(invalid="ignore", over="ignore")
def _column_moments(piece: LoadedShard) -> ColumnMoments:
    return ColumnMoments.from_rows(piece.X, piece.facts.get(ROW_WEIGHTS))


def in_least_precision(raw: Shards) -> Shards:
    """Return many rows in single precision if it holds all their numbers exactly.

    So the fit to bytes, and its time, do not depend on the type that they are stored as.
    """
    if raw.dtype == np.float32 or raw.n_rows < MANY_ROWS:
        return raw
    # Most rows that it does not hold show that in the first shard.
    first = replace(raw, parts=raw.parts[:1], n_rows=raw.bounds[1])
    is_exact = not any(each.fold(_rounded_in_single) for each in (first, raw))
    return replace(raw, dtype=np.dtype(np.float32)) if is_exact else raw


@np.errstate(over="ignore")
def _rounded_in_single(piece: LoadedShard) -> int:
    return int(np.count_nonzero(piece.X.astype(np.float32) != piece.X))


def without_dependent_indicators(raw: Shards, affine: Standardisation) -> Standardisation:
    """Return the standardisation to the space that the rows span, if indicators are dependent.

    The indicators of all levels of a category sum to 1. In that direction the rows are constant,
    so that W could turn into it to scale features down. Weights in it would say nothing.
    """
    if affine.indicators is None:
        return affine
    indicators = np.flatnonzero(affine.varying & affine.indicators)
    if not 1 < len(indicators) <= _MOST_INDICATORS:
        return affine
    sums = raw.in_double().fold(_indicator_covariance, indicators)
    sums /= sums[-1, -1]
    covariance = sums[:-1, :-1] - np.outer(sums[-1, :-1], sums[-1, :-1])
    scale = affine.scale[indicators]
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    dependent = values <= _DEPENDENT * values[-1]
    if not dependent.any():
        return affine
    varying = np.flatnonzero(affine.varying)
    others = np.eye(len(varying))[:, ~np.isin(varying, indicators)]
    spanned = np.zeros((len(varying), np.count_nonzero(~dependent)))
    spanned[np.isin(varying, indicators)] = vectors[:, ~dependent]
    return replace(affine, basis=np.hstack([others, spanned]))


def _indicator_covariance(piece: LoadedShard, columns: Array) -> Array:
    rows = np.column_stack([piece.X[:, columns], np.ones(len(piece.X))])
    counts = piece.facts.get(ROW_WEIGHTS)
    return np.asarray(rows.T @ (rows if counts is None else rows * counts[:, None]))
