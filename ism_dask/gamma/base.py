"""Gamma, the dependence that W is to bring out, never held as an n x n matrix.

A Gamma is a small header that travels with a task, and `facts`: a few numbers for each row, cut
into shards like X. Any tile of it is made from the facts of the rows it spans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask.rows import LoadedShard, Shards

Rows: TypeAlias = Array | slice


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
    def is_psd(self) -> bool:
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
class ThinGamma(Gamma):
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
    def is_psd(self) -> bool:
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

    def part(self, facts: Array) -> tuple[ThinGamma, Array]:
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


def _column_squares(piece: LoadedShard) -> Array:
    return np.einsum("ij,ij->j", piece.X, piece.X).astype(np.float64)
