"""Variables s beside y, such as age and sex: what X W is not to depend on, or what is given.

Regressions on s have as residuals what s leaves of y, and of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, Gamma, frobenius_norm, weighted_sum
from ism_dask.gamma.row_values import check_complete, kinds_of, near_zero, target_as_array
from ism_dask.gamma.targets import (
    MAX_WHOLE_CLASSES,
    check_few,
    class_dependence,
    standardise_target,
    target_dependence,
)
from ism_dask.gamma.thin_factors import cross_products, row_products
from ism_dask.linalg.subspaces import centred_by

# Ridges of the regression, as shares of the largest eigenvalue of the kernel of s.
_RIDGES = np.geomspace(1e-8, 1e2, 41)
# If s leaves less than this share of X or y, nothing is left.
_NOTHING = 1e-8


@dataclass(frozen=True, eq=False)
class SideInformation:
    """Columns of s: `labels` (n, l) are the codes of classes, `numbers` (n, t) those of numbers.

    The name is that of the argument that s comes from, for messages.
    """

    name: str
    labels: Array
    numbers: Array

    @classmethod
    def from_columns(
        cls, name: str, s: Any, n_rows: int, weights: Array | None = None
    ) -> SideInformation:
        """Return s (n,) or (n, t), or a frame, by columns; raise a ValueError for bad ones.

        Strings, truth values, and whole numbers with up to 20 different values are classes; other
        numbers are numbers. Rows of weight 0 have no say in it.
        """
        labels, numbers = np.empty((n_rows, 0), dtype=np.intp), np.empty((n_rows, 0))
        for values in _columns(name, s, n_rows):
            distinct = np.unique(values if weights is None else values[weights > 0])
            are_classes = distinct.dtype.kind not in "iuf" or (
                len(distinct) <= MAX_WHOLE_CLASSES and (distinct == np.floor(distinct)).all()
            )
            if are_classes:
                codes = np.unique(values, return_inverse=True)[1]
                labels = np.column_stack([labels, codes])
            else:
                numbers = np.column_stack([numbers, values.astype(np.float64)])
        return cls(name, labels, numbers)

    def part(self, rows: Array) -> SideInformation:
        """Return the same for some rows (k,), or for all in another order."""
        return SideInformation(self.name, self.labels[rows], self.numbers[rows])

    @property
    def sort_keys(self) -> Array:
        """Numbers (n, l + t) by which rows can be sorted."""
        return np.hstack([self.labels, self.numbers])

    def points(self) -> Array:
        """Return the numbers in units of their deviations, beside indicators of the classes."""
        self._check_varies(None)
        scaled = [standardise_target(column) for column in self.numbers.T]
        indicators = [column[:, None] == np.unique(column) for column in self.labels.T]
        return np.hstack([*scaled, *indicators], dtype=np.float64)

    def dependence(self, weights: Array | None = None) -> Dependence:
        """Return the dependence on s; rows count by their weights (n,), if there are some.

        Columns of classes make one class of each combination, and numbers have one kernel. With
        both, Gamma is the sum of the two, each divided by its norm.
        """
        self._check_varies(weights)
        parts = []
        if self.labels.shape[1]:
            combinations = np.unique(self.labels, axis=0, return_inverse=True)[1].reshape(-1)
            count = int(combinations.max()) + 1
            what = f"`{self.name}` has {count} different labels, or combinations of them,"
            advice = "give numbers as numbers, or fewer columns"
            check_few(what, count, len(combinations), advice)
            parts.append(replace(class_dependence(combinations, weights), weights=weights))
        if count := self.numbers.shape[1]:
            target = "multiscale" if count == 1 else "gaussian"
            parts.append(target_dependence(self.numbers, target, weights))
        if len(parts) == 1:
            return parts[0]
        gamma, facts = weighted_sum(parts, [1.0 / frobenius_norm(each) for each in parts])
        return Dependence(gamma, facts, weights=weights)

    def _check_varies(self, weights: Array | None) -> None:
        values = self.sort_keys if weights is None else self.sort_keys[weights > 0]
        if not np.ptp(values, axis=0).all():
            raise ValueError(
                f"`{self.name}` has a column that is the same in all rows; nothing can depend on "
                "it, so leave it out"
            )


@dataclass(frozen=True, eq=False)
class SideRegression:
    """Kernel ridge regression on s. Each column has the ridge of least cross-validation score.

    The factor (n, m) of the kernel of s has columns of mean 0, by the counts (n,) of the rows.
    """

    factor: Array
    counts: Array

    @classmethod
    def on_side(cls, side: Dependence) -> SideRegression:
        """Return the regression on s, where rows count by their weights."""
        counts = np.ones(len(side.facts)) if side.weights is None else side.weights
        return cls(centred_by(side.scaled_factor, counts), counts)

    def fit(self, cross: Array, squares: Array) -> tuple[Array, Array, Array]:
        """Return regressions on the factor of k columns: coefficients, parameters and scores.

        The coefficients are (m, k), the parameters (k,) effective numbers of coefficients, and the
        scores (k,) those of generalised cross-validation, in closed form. `cross` (m, k) has the
        weighted products of the factor with the columns, `squares` (k,) the weighted sums of
        squares of the columns, less those of their means.
        """
        values, vectors = self._eigenpairs
        roots = np.sqrt(values)[:, None]
        along = vectors.T @ cross / roots
        # What ridge regressions fit of each direction: (ridges, m).
        shares = values / (values + values.max() * _RIDGES[:, None])
        errors = squares - (2.0 * shares - shares**2) @ along**2
        free = 1.0 - (shares.sum(axis=1, keepdims=True) + 1.0) / self.counts.sum()
        scores = np.divide(errors, free**2, out=np.full(errors.shape, np.inf), where=free > 0)
        best = np.argmin(scores, axis=0)
        chosen = shares[best].T
        coefficients = vectors @ (chosen / roots * along)
        return coefficients, chosen.sum(axis=0), scores[best, np.arange(len(best))]

    @cached_property
    def _eigenpairs(self) -> tuple[Array, Array]:
        """The eigenvalues above rounding, ascending, and eigenvectors of `factor^T factor`."""
        weighted = self.factor * np.sqrt(self.counts)[:, None]
        values, vectors = np.linalg.eigh(cross_products(weighted, weighted))
        positive = values > np.finfo(np.float64).eps * len(values) * values[-1]
        return values[positive], vectors[:, positive]


def remainder(
    regressions: Sequence[SideRegression], columns: Array, name: str
) -> tuple[Array, float]:
    """Return what s leaves of columns (n, k), of mean 0, and the mean number of parameters.

    Raise a ValueError with the name of the columns if nothing is left.
    """
    left, parameters = residuals(regressions, columns)
    counts = regressions[0].counts
    sizes = counts @ left**2
    total = counts @ centred_by(columns, counts) ** 2
    check_left(float(sizes.sum() / total.sum()), _NOTHING, name)
    return left, float(np.average(parameters, weights=sizes))


def residuals(regressions: Sequence[SideRegression], columns: Array) -> tuple[Array, Array]:
    """Return what s leaves of columns (n, k), of mean 0, and the numbers of parameters (k,).

    Each column has the regression of least score; they differ in their kernel of s.
    """
    counts = regressions[0].counts
    left = centred_by(columns, counts)
    weighted = counts[:, None] * left
    squares = np.einsum("ij,ij->j", weighted, left)
    fits = [each.fit(cross_products(each.factor, weighted), squares) for each in regressions]
    best = np.argmin([scores for *_, scores in fits], axis=0)
    parameters = np.ones(len(squares))
    for number, (regression, fit) in enumerate(zip(regressions, fits, strict=True)):
        (coefficients, taken, _), own = fit, best == number
        left[:, own] -= row_products(regression.factor, coefficients[:, own])
        parameters[own] += taken[own]
    return left, parameters


def check_left(share: float, least: float, name: str) -> None:
    """Raise a ValueError if s leaves at most the least share of the squares of `name`."""
    if share <= least:
        raise ValueError(
            f"`given` explains {name} completely, but for {share:.1g} of its squares: too little "
            f"is left to explain or to test. Leave out of `given` what {name} follows from"
        )


def conditional(dependence: Dependence, regression: SideRegression) -> Dependence:
    """Return the dependence on what s leaves of y: `U - E[U | s]` instead of U.

    J is then the squared norm of the mean covariance of kernel features of X W and y at fixed s.
    It is 0 if X W and y are independent at each value of s, however both depend on s.
    """
    left, _ = remainder([regression], dependence.factor, "y")
    return replace(dependence, gamma=Gamma(dependence.gamma.signs), facts=left)


def _columns(name: str, s: Any, n_rows: int) -> Iterator[Array]:
    """Yield the columns (n,) of s as numbers or strings; raise a ValueError for bad ones."""
    array = target_as_array(s, f"`{name}`")
    if array.ndim not in {1, 2}:
        raise ValueError(
            f"`{name}` has shape {array.shape}; expected ({n_rows},) or ({n_rows}, t), dense"
        )
    table = array if array.ndim == 2 else array[:, None]
    if len(table) != n_rows or not table.shape[1]:
        got = f"{len(table)} rows" if table.shape[1] else "no columns"
        raise ValueError(
            f"`{name}` has {got}, X has {n_rows} rows; expected one value for each row"
        )
    named = table.shape[1] > 1 or hasattr(s, "columns")
    keys = getattr(s, "columns", range(table.shape[1]))
    for key, column in zip(keys, table.T, strict=True):
        title = f"`{name}`" + (f" has column {key!r}, which" if named else "")
        check_complete(title, column)
        values = _of_one_type(title, column)
        if values.dtype.kind not in "biufUS":
            raise ValueError(
                f"{title} has {kinds_of(column)}; expected numbers, or labels that are all strings"
            )
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(f"{title} has infinite values; expected finite numbers")
        yield values


def _of_one_type(title: str, column: Array) -> Array:
    """Return objects (n,) as numbers or strings, if all are; whole numbers stay different."""
    values = near_zero(column[:, None])[:, 0]
    for kind, dtype in ((Real, np.float64), (str, str)):
        if values.dtype.kind == "O" and all(isinstance(value, kind) for value in values):
            try:
                return values.astype(dtype)
            except OverflowError as error:
                expected = "numbers below 1.8e308; take another unit"
                raise ValueError(f"{title} has a larger number than float64; {expected}") from error
    return values
