"""Gamma of class labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, Gamma
from ism_dask.rows.shards import Shards

# Labels with more distinct values than this, and more than half as many as rows, are no classes.
_FEW_CLASSES = 20


@dataclass(frozen=True)
class ClassGamma(Gamma):
    """`H Y Y^T H` for one-hot Y. The fact of a row is the number of its class.

    Attributes
    ----------
    frequencies : (c,) array
        The share of each class among the rows.
    """

    frequencies: Array

    @property
    def breadth(self) -> int:
        """One number for each class."""
        return len(self.frequencies)

    def absolute_sum_bound(self, shards: Shards) -> float:
        """Return the bound: a sum over classes of squares, for their rows and for their means."""
        return 8.0 * shards.n_rows**2 * float(self.frequencies @ self.frequencies)

    def as_rows(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the number of the class of each row (b,)."""
        return facts[:, 0].astype(np.intp)

    def as_columns(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the entries of Gamma of each row with a row of each class (c, b)."""
        p, codes = self.frequencies, facts[:, 0]
        columns = p @ p - p[:, None] - p[codes]
        # Cast last: for a class of nearly all rows the sum nearly cancels.
        columns[codes, np.arange(len(codes))] += 1
        return columns.astype(dtype, copy=False)

    def tile(self, rows: Array, columns: Array, out: Array) -> Array:
        """Fill the tile by looking up classes: several times faster than the thin product."""
        return np.take(columns, rows, axis=0, out=out, mode="clip")

    @property
    def signs(self) -> Array:
        """All are +1."""
        return np.ones(len(self.frequencies))

    def factor(self, facts: Array) -> Array:
        """Return the rows of `Y - frequencies`, where Y is V."""
        U = np.tile(-self.frequencies, (len(facts), 1))
        U[np.arange(len(facts)), facts[:, 0]] += 1
        return U

    def part(self, facts: Array) -> tuple[ClassGamma, Array]:
        """Return the Gamma of some rows, and their facts; a class may have none of these rows."""
        counts = np.bincount(facts[:, 0], minlength=len(self.frequencies))
        return ClassGamma(counts / len(facts)), facts

    @property
    def mixing(self) -> Array:
        """`I - 1 frequencies^T`."""
        return np.eye(len(self.frequencies)) - self.frequencies

    def memberships(self, facts: Array) -> Iterator[tuple[Array, None]]:
        """Yield the rows of each class."""
        codes = facts[:, 0]
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(1, len(self.frequencies)))
        bounds = [0, *edges.tolist(), len(order)]
        yield from ((order[start:stop], None) for start, stop in pairwise(bounds))


def class_dependence(y: Array, weights: Array | None = None) -> Dependence:
    """Return the Gamma of class labels y (n,), two of which need rows with weights (n,) above 0."""
    if np.ndim(y) != 1:
        raise ValueError(
            "`y` must be one label for each row where it is taken as classes; "
            f"got shape {np.shape(y)}"
        )
    classes, codes, counts = _distinct(y)
    if len(classes) < 2:
        raise ValueError(
            f"`y` has one class only ({classes.tolist()[0]!r}); a projection that tells "
            "classes apart needs two or more"
        )
    if weights is not None and np.count_nonzero(np.bincount(codes, weights)) < 2:
        raise ValueError("`y` has one class only in the rows with a weight above 0")
    if are_too_many(len(classes), len(y)):
        kind, advice = "labels", 'where `target` can be chosen, numbers go with target="numbers"'
        if classes.dtype.kind in "mM":
            kind, advice = "dates", "give numbers, such as the days since the first"
        raise ValueError(
            f"`y` has {len(classes)} different {kind} for {len(y)} rows, too many to be classes; "
            f"{advice}"
        )
    narrow = codes.astype(np.min_scalar_type(len(classes)))
    return Dependence(ClassGamma(counts / len(y)), narrow[:, None], classes)


def are_too_many(count: int, n_rows: int) -> bool:
    """Return whether a number of different labels is too large for `n_rows` rows to be classes."""
    return count > max(_FEW_CLASSES, n_rows / 2)


def check_labels(y: Array) -> None:
    """Raise a ValueError if labels y (n,) are missing or cannot be compared with each other."""
    check_complete("`y`", y)
    _distinct(y)


def check_complete(what: str, values: Array) -> None:
    """Raise a ValueError that names `what` if values (n,) are missing in some rows."""
    gaps = np.flatnonzero(is_missing(values))
    if gaps.size:
        raise ValueError(
            f"{what} has no value in {gaps.size} of {len(values)} rows (NaN, None or pandas' NA), "
            f"the first number {gaps[0]}; drop these rows, or give them a class of their own"
        )


def _distinct(labels: Array) -> tuple[Array, Array, Array]:
    """Return the distinct labels (c,), the index of each row's label (n,), and counts (c,)."""
    try:
        return np.unique(labels, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError(
            f"`y` has labels that cannot be compared with each other ({kinds_of(labels)}); "
            "expected all strings or all numbers. Convert them to one type"
        ) from error


def without_mask(values: Any) -> Any:
    """Return a masked array with None, a missing value, where it is masked; others unchanged."""
    if not np.ma.is_masked(values):
        return values
    objects = np.asarray(values.data, dtype=object)
    objects[np.ma.getmaskarray(values)] = None
    return objects


def is_missing(values: Array) -> Array:
    """Return which values (n, ...) are NaN, None or the NA of pandas, as a boolean array."""
    if values.dtype.kind in "fmM":
        return np.isnan(values)
    if values.dtype.kind == "O":
        with np.errstate(invalid="ignore"):  # NumPy 2.5 warns where NaN is compared
            return np.asarray(np.frompyfunc(_is_missing_value, 1, 1)(values).astype(bool))
    return np.zeros(values.shape, dtype=bool)


def _is_missing_value(value: Any) -> bool:
    """Return whether a value is None, NaN or the NA of pandas.

    NA is recognised by the name of its type: pandas is not a dependency, and comparing NA with
    itself yields neither True nor False.
    """
    return value is None or type(value).__name__ == "NAType" or bool(value != value)  # noqa: PLR0124


def kinds_of(values: Array) -> str:
    """Return a description of the types of values, for error messages."""
    if values.dtype.kind != "O":
        return f"dtype {values.dtype}"
    return "values of type " + ", ".join(sorted({type(value).__name__ for value in values.flat}))
