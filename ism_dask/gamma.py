"""Gamma, the dependence that W is to bring out, never held as an n x n matrix.

A Gamma is a small header that travels with a task, and `facts`: a few numbers for each row, cut
into shards like X. Any tile of it is made from the facts of the rows it spans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from ism_dask.shards import Piece, Shards
from ism_dask.typing import Array

Rows: TypeAlias = Array | slice

# With more classes than this, half of the rows must share theirs with another.
_FEW_CLASSES = 20


class Gamma(ABC):
    """An n x n symmetric matrix `U diag(signs) U^T` with a tall and thin U.

    A few facts for each row make U and any tile of the matrix. U is `V @ mixing` of a V that may
    be sparse: sums over the rows of V cost least.
    """

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

    @abstractmethod
    def part(self, facts: Array) -> tuple[Gamma, Array]:
        """Return the Gamma of some rows alone, centred on them, and their facts (k, f)."""


@dataclass(frozen=True)
class ClassGamma(Gamma):
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

    def part(self, facts: Array) -> tuple[ClassGamma, Array]:
        """Return that of some rows; a class may have none of them."""
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


@dataclass(frozen=True)
class FactorGamma(Gamma):
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

    def part(self, facts: Array) -> tuple[FactorGamma, Array]:
        """Return that of some rows: U less its mean over them."""
        return self, facts - facts.mean(axis=0)

    @property
    def mixing(self) -> Array:
        """The identity."""
        return np.eye(len(self.weights))

    def memberships(self, facts: Array) -> Iterator[tuple[slice, Array]]:
        """Yield all rows for each column of U."""
        yield from ((slice(None), column) for column in facts.T)


@dataclass(frozen=True, eq=False)
class Dependence:
    """A Gamma with the facts of all rows, as a target makes it.

    Attributes
    ----------
    gamma : Gamma
    facts : (n, f) array
    classes : (c,) array or None
        The distinct labels, where y are classes.
    remainder : float
        The share of the trace of the kernel of y that its factor leaves out.
    columns : int
        Numbers that each row of y has.
    """

    gamma: Gamma
    facts: Array
    classes: Array | None = None
    remainder: float = 0.0

    columns: int = 1

    def part(self, rows: Array) -> Dependence:
        """Return that of some rows (k,): classes keep their numbers."""
        gamma, facts = self.gamma.part(self.facts[rows])
        return replace(self, gamma=gamma, facts=facts)


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
            'where `target` can be chosen, numbers go with target="gaussian"'
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


def _column_squares(piece: Piece) -> Array:
    return np.einsum("ij,ij->j", piece.X, piece.X).astype(np.float64)
