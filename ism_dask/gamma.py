"""Gamma, the dependence that W is to bring out, never held as an n x n matrix.

A Gamma is a small header that travels with a task, and `facts`: a few numbers for each row, cut
into shards like X. Any tile of it is made from the facts of the rows it spans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.multiclass import type_of_target

from ism_dask.checks import one_of
from ism_dask.kernels.widths import median_distance
from ism_dask.shards import Piece, Shards
from ism_dask.typing import Array

Rows: TypeAlias = Array | slice

# Rows at a time, and rows at most for the median, where all pairs of y are looked at.
_BATCH = 2048
_MEDIAN_ROWS = 5000
# With more classes than this, half of the rows must share theirs with another.
_FEW_CLASSES = 20


class Gamma(ABC):
    """An n x n symmetric matrix told by a few facts for each row."""

    @property
    @abstractmethod
    def breadth(self) -> int:
        """How many numbers a row brings to a tile at most."""

    @property
    def definite(self) -> bool:
        """Whether it is positive semi-definite, so that J is a criterion of dependence."""
        return True

    @abstractmethod
    def absolute_sum(self, shards: Shards) -> float:
        """Return a bound on the sum of |Gamma_ij|, also where Gamma is summed by its factors.

        Fact 0 of the shards is that of Gamma.
        """

    @abstractmethod
    def as_rows(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return what the rows of `facts` (b, f) bring to a tile, as a (b, ...) array."""

    @abstractmethod
    def as_columns(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return what the same rows bring as columns of a tile, as a (..., b) array."""

    @abstractmethod
    def tile(self, rows: Array, columns: Array, out: Array) -> Array:
        """Fill `out` (a, b) from a stretch of `as_rows` (a, ...) and of `as_columns` (..., b)."""


class FactoredGamma(Gamma):
    """A Gamma that is `U diag(signs) U^T` with a tall and thin U.

    U is `V @ mixing` of a V that may be sparse: sums over the rows of V cost least.
    """

    @property
    @abstractmethod
    def mixing(self) -> Array:
        """The (v, r) matrix that makes U of V."""

    @abstractmethod
    def memberships(self, facts: Array) -> Iterator[tuple[Rows, Array | None]]:
        """Yield for each column of V where it is not zero, and its values there (None: ones)."""

    @property
    @abstractmethod
    def signs(self) -> Array:
        """The (r,) signs, or weights, of the columns of U."""

    @abstractmethod
    def factor(self, facts: Array) -> Array:
        """Return the rows of U (b, r) that belong to `facts` (b, f)."""


@dataclass(frozen=True)
class ClassGamma(FactoredGamma):
    """`H Y Y^T H` of one-hot Y; the fact of a row is the number of its class.

    Attributes
    ----------
    frequencies : (c,) array
        The share of each class among the rows.
    """

    frequencies: Array

    @property
    def breadth(self) -> int:
        """One for each class."""
        return len(self.frequencies)

    def absolute_sum(self, shards: Shards) -> float:
        """Return the sum over classes of what their rows and their means add, squared."""
        return 8.0 * shards.n_rows**2 * float(self.frequencies @ self.frequencies)

    def as_rows(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the classes."""
        return facts[:, 0].astype(np.intp)

    def as_columns(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return for each row its value of Gamma with a row of each class (c, b)."""
        p, codes = self.frequencies, facts[:, 0]
        columns = p @ p - p[:, None] - p[codes]
        # Cast last: of a class that nearly all rows have, what is left of 1 is small.
        columns[codes, np.arange(len(codes))] += 1
        return columns.astype(dtype, copy=False)

    def tile(self, rows: Array, columns: Array, out: Array) -> Array:
        """Fill the tile by looking classes up: several times faster than the thin product."""
        return np.take(columns, rows, axis=0, out=out, mode="clip")

    @property
    def signs(self) -> Array:
        """All positive."""
        return np.ones(len(self.frequencies))

    def factor(self, facts: Array) -> Array:
        """Return the rows of `Y - frequencies`: Y is the V."""
        U = np.tile(-self.frequencies, (len(facts), 1))
        U[np.arange(len(facts)), facts[:, 0]] += 1
        return U

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


@dataclass(frozen=True)
class FactorGamma(FactoredGamma):
    """`U diag(signs) U^T`, the facts of a row being its row of U.

    Attributes
    ----------
    weights : (r,) array
        The signs.
    """

    weights: Array

    @property
    def signs(self) -> Array:
        """The weights."""
        return self.weights

    @property
    def definite(self) -> bool:
        """Whether no weight is negative."""
        return bool((self.weights >= 0).all())

    @property
    def breadth(self) -> int:
        """One for each column of U."""
        return len(self.weights)

    def absolute_sum(self, shards: Shards) -> float:
        """Return n times the weighted squares of U, by the inequality of Cauchy and Schwarz."""
        squares = shards.through(self.breadth, fact=0).fold(_column_squares)
        return shards.n_rows * float(np.abs(self.weights) @ squares)

    def as_rows(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return U with its signs."""
        return (facts * self.weights).astype(dtype)

    def as_columns(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return `U^T`."""
        return facts.T.astype(dtype)

    def tile(self, rows: Array, columns: Array, out: Array) -> Array:
        """Fill the tile by one thin product."""
        return np.matmul(rows, columns, out=out)

    def factor(self, facts: Array) -> Array:
        """Return the facts themselves, which are V as well."""
        return facts

    @property
    def mixing(self) -> Array:
        """The identity."""
        return np.eye(len(self.weights))

    def memberships(self, facts: Array) -> Iterator[tuple[slice, Array]]:
        """Yield all rows for each column of U."""
        yield from ((slice(None), column) for column in facts.T)


@dataclass(frozen=True)
class GaussianGamma(Gamma):
    """`H K H` of a gaussian K of y; the facts of a row are y and its mean of K.

    Attributes
    ----------
    rate : float
        `1 / 2 sigma^2`.
    mean : float
        The mean of K over all pairs.
    numbers : int
        How many a row of y has.
    """

    rate: float
    mean: float
    numbers: int

    @property
    def breadth(self) -> int:
        """As many as y has, and the mean."""
        return self.numbers + 1

    def absolute_sum(self, shards: Shards) -> float:
        """Return the sum of K and of the three means that are taken off or added."""
        return 4.0 * shards.n_rows**2 * self.mean

    def as_rows(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the facts: y is small, and stays in float64."""
        return facts

    def as_columns(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the facts as columns."""
        return facts.T

    def tile(self, rows: Array, columns: Array, out: Array) -> Array:
        """Fill the tile with `k(y_i, y_j) - m_i - m_j + m`."""
        kernel = _gaussian(rows[:, :-1], columns[:-1], self.rate)
        out[...] = kernel - rows[:, -1:] - columns[-1] + self.mean
        return out


@dataclass(frozen=True)
class Dependence:
    """A Gamma with the facts of all rows, as a target of `TARGETS` makes it.

    Attributes
    ----------
    gamma : Gamma
    facts : (n, f) array
    classes : (c,) array or None
        The distinct labels, where y are classes.
    """

    gamma: Gamma
    facts: Array
    classes: Array | None = None


def class_dependence(y: Array) -> Dependence:
    """Return the Gamma of class labels y (n,)."""
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
    if len(classes) > max(_FEW_CLASSES, len(y) / 2):
        raise ValueError(
            f"`y` has {len(classes)} different labels for {len(y)} rows, too many to be classes; "
            'where `target` can be chosen, numbers go with target="linear"'
        )
    narrow = codes.astype(np.min_scalar_type(len(classes)))
    return Dependence(ClassGamma(counts / len(y)), narrow[:, None], classes)


def check_labels(y: Array) -> None:
    """Raise a ValueError where labels y (n,) have gaps, or cannot be compared with each other."""
    labels = np.asarray(y)
    gaps = np.flatnonzero(is_missing(labels))
    if gaps.size:
        raise ValueError(
            f"`y` has no label in {gaps.size} of {len(labels)} rows (NaN, None or pandas' NA), the "
            f"first number {gaps[0]}; drop these rows from X and y, or give them a class of their "
            "own"
        )
    _distinct(labels)


def _distinct(labels: Array) -> tuple[Array, Array, Array]:
    """Return the distinct labels (c,), the number of each row's (n,), and how many have it (c,)."""
    try:
        return np.unique(labels, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError(
            f"`y` has labels that cannot be compared with each other ({kinds_of(labels)}); "
            "expected all strings or all numbers. Convert them to one type"
        ) from error


def is_missing(values: Array) -> Array:
    """Return which values (n, ...) are NaN, None or the NA of pandas, as a boolean array."""
    if values.dtype.kind in "fmM":
        return np.isnan(values)
    if values.dtype.kind == "O":
        return np.asarray(np.frompyfunc(_is_gap, 1, 1)(values).astype(bool))
    return np.zeros(values.shape, dtype=bool)


def _is_gap(value: Any) -> bool:
    """Return whether a value is None, NaN or the NA of pandas.

    NA is known by its name: pandas is no dependency, and NA neither is itself nor is not.
    """
    return value is None or type(value).__name__ == "NAType" or bool(value != value)  # noqa: PLR0124


def kinds_of(values: Array) -> str:
    """Return what the values are, for errors."""
    if values.dtype.kind != "O":
        return f"dtype {values.dtype}"
    return "values of type " + ", ".join(sorted({type(value).__name__ for value in values.flat}))


def linear_dependence(y: Array) -> Dependence:
    """Return the Gamma of numbers y (n,) or (n, t) under a linear kernel: U is y standardised."""
    U = standardised(y)
    return Dependence(FactorGamma(np.ones(U.shape[1])), U)


def gaussian_dependence(y: Array) -> Dependence:
    """Return the Gamma of numbers y (n,) or (n, t) under a gaussian kernel of median width."""
    U = standardised(y)
    rate = 0.5 / median_distance(_thinned(U), 'the median width of target="gaussian"') ** 2
    batches = gen_batches(len(U), _BATCH)
    means = np.concatenate([_gaussian(U[batch], U.T, rate).mean(axis=1) for batch in batches])
    return Dependence(
        GaussianGamma(rate, float(means.mean()), U.shape[1]), np.column_stack([U, means])
    )


def _thinned(U: Array) -> Array:
    """Return up to 5,000 rows of U (n, t), not all of them equal."""
    thinned = U[:: -(-len(U) // _MEDIAN_ROWS)]
    if np.ptp(thinned, axis=0).any():
        return thinned
    # Of a rare event the rows that were left out tell.
    return np.concatenate([thinned, U[U.argmin(axis=0)], U[U.argmax(axis=0)]])


TARGETS: dict[str, Callable[[Array], Dependence]] = {
    "classes": class_dependence,
    "linear": linear_dependence,
    "gaussian": gaussian_dependence,
}


def dependence(y: Array, target: str = "auto") -> Dependence:
    """Return what y says of its rows under `target`, a name of `TARGETS` or "auto".

    "auto" takes labels as classes and numbers that are not whole under the linear kernel.
    """
    name = one_of("`target`", target, ["auto", *TARGETS])
    if name == "auto":
        name = "linear" if _is_continuous(y) else "classes"
    return TARGETS[name](y)


def _is_continuous(y: Array) -> bool:
    """Return whether y are numbers that are not all whole."""
    # The kind of most labels rules that out, and looking at each of them takes a while.
    whole = np.asarray(y).dtype.kind in "biuU"
    return not whole and bool(type_of_target(y).startswith("continuous"))


def _column_squares(piece: Piece) -> Array:
    return np.einsum("ij,ij->j", piece.X, piece.X).astype(np.float64)


def standardised(y: Array) -> Array:
    """Return numbers y (n,) or (n, t) as columns (n, t) of mean 0 and deviation 1."""
    columns = _numbers(y)
    constant = np.flatnonzero(np.ptp(columns, axis=0) == 0)
    if constant.size:
        which = f"column {constant[0]} of `y`" if columns.shape[1] > 1 else "`y`"
        raise ValueError(f"{which} is constant; there is nothing that X could depend on")
    # The square of 1e200 overflows, that of 1e-200 vanishes; a power of two rounds nothing.
    _, exponents = np.frexp(np.abs(columns).max(axis=0))
    scaled = np.ldexp(columns, -exponents)
    # Differences of numbers that are close to each other are exact, so that none is lost by a
    # mean that is far from 0.
    nearest = np.abs(scaled - scaled.mean(axis=0)).argmin(axis=0)
    scaled -= scaled[nearest, np.arange(scaled.shape[1])]
    scaled -= scaled.mean(axis=0)
    scaled -= scaled.mean(axis=0)
    return np.asarray(scaled / np.sqrt((scaled**2).mean(axis=0)))


def _numbers(y: Array) -> Array:
    """Return y as columns (n, t) of float64."""
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`y` must be numbers for this `target`; got {np.asarray(y).dtype} values. "
            'Labels go with target="classes"'
        ) from error
    columns = numbers.reshape(len(numbers), -1)
    if not np.isfinite(columns).all():
        raise ValueError("`y` contains NaN or infinity; expected finite numbers")
    return columns


def _gaussian(rows: Array, columns: Array, rate: float) -> Array:
    """Return the gaussian kernel (a, b) of numbers `rows` (a, t) and `columns` (t, b)."""
    squared = np.zeros((len(rows), columns.shape[1]))
    for row, column in zip(rows.T, columns, strict=True):
        squared += (row[:, None] - column) ** 2
    return np.asarray(np.exp(-rate * squared))
