"""What clustering is guided by: each makes a Gamma of an embedding and of what is known of rows.

`Omega = D^-1/2 U U^T D^-1/2` is what an embedding U says. A guide adds what somebody knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import ThinGamma
from ism_dask.rows import LoadedShard, Shards

# What keeps the regression of scores on an embedding defined where few rows have scores.
_RIDGE = 1e-2


class EmbeddingGuide(ABC):
    """A way to build Gamma. Every embedding is told by `Embedding.shards`.

    Attributes
    ----------
    steady : bool
        Whether all Gammas weigh the same, so that J of one round can be held against another's.
    """

    steady: ClassVar[bool] = False

    @abstractmethod
    def gamma(self, embedded: Shards) -> tuple[ThinGamma, Shards]:
        """Return Gamma, and the shards with what it knows of their rows as the last fact."""

    def first(self, embedded: Shards) -> tuple[ThinGamma, Shards] | None:
        """Return the Gamma of a W to begin with, None to begin with an embedding of all of X."""
        return None

    @property
    def known(self) -> Array | None:
        """What is known of each row (n, t), None for nothing."""
        return None

    def taken(self, order: Array) -> Self:
        """Return the same guide for rows in another order (n,)."""
        return self


class ClusterGuide(EmbeddingGuide):
    """Nothing is known: `Gamma = U U^T`, U being centred, with columns of length 1."""

    steady = True

    def gamma(self, embedded: Shards) -> tuple[ThinGamma, Shards]:
        """Return Gamma and U."""
        rows = embedded.derive(_embedding).settled()
        return ThinGamma(np.ones(_width(embedded))), rows


@dataclass(frozen=True, eq=False)
class ScoreGuide(EmbeddingGuide):
    """`Gamma = Omega + mu H Y Y^T H` of scores Y, which some rows may lack.

    For these they are told by a regression of the others' on the embedding, row by row of unit
    length: what a cluster's rows are scored its other rows are taken to be.

    Attributes
    ----------
    Y : (n, t) array
        The scores, numbers with deviation 1 or one-hot classes, over the rows that have any with
        mean 0; NaN for others.
    mu : float
    """

    Y: Array
    mu: float

    @property
    def known(self) -> Array:
        """The scores, or labels."""
        return self.Y

    def taken(self, order: Array) -> Self:
        """Return the same guide for rows in another order (n,)."""
        return replace(self, Y=self.Y[order])

    def gamma(self, embedded: Shards) -> tuple[ThinGamma, Shards]:
        """Return Gamma, and `D^-1/2 U` and the centred scores side by side."""
        scored = embedded.with_rows(self.Y)
        gram, cross = scored.fold(_regression_sums)
        ridge = _RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
        weights = np.linalg.solve(gram + ridge, cross)
        rows = scored.derive(_completed, weights).settled()
        mean = rows.fold(_last_sums)[_width(embedded) :] / embedded.n_rows
        signs = np.repeat([1.0, self.mu], [_width(embedded), self.Y.shape[1]])
        return ThinGamma(signs), rows.derive(_centred, mean).settled()


@dataclass(frozen=True, eq=False)
class AvoidGuide(EmbeddingGuide):
    """`Gamma = Omega / tr Omega - mu H Y Y^T H / tr(H Y Y^T H)` of one-hot labels Y to avoid.

    Attributes
    ----------
    Y : (n, c) array
        The labels, centred.
    mu : float
    """

    Y: Array
    mu: float

    @property
    def known(self) -> Array:
        """The scores, or labels."""
        return self.Y

    def taken(self, order: Array) -> Self:
        """Return the same guide for rows in another order (n,)."""
        return replace(self, Y=self.Y[order])

    def gamma(self, embedded: Shards) -> tuple[ThinGamma, Shards]:
        """Return Gamma, and `D^-1/2 U` and `H Y` side by side."""
        rows = embedded.with_rows(self.Y).derive(_both).settled()
        k = _width(embedded)
        squares = rows.fold(_last_squares)
        # Of length 0 is the embedding of rows that are all apart: it says nothing.
        weight = 1.0 / squares[:k].sum() if squares[:k].any() else 0.0
        avoided = self.mu / squares[k:].sum()
        return ThinGamma(np.repeat([weight, -avoided], [k, self.Y.shape[1]])), rows

    def first(self, embedded: Shards) -> tuple[ThinGamma, Shards]:
        """Return the part to stay away from alone.

        Begun with the clusters of X, the rounds would stay on the labels that they should leave.
        """
        weight = self.mu / float((self.Y**2).sum())
        rows = embedded.with_rows(self.Y).derive(_last).settled()
        return ThinGamma(np.full(self.Y.shape[1], -weight)), rows


def _width(embedded: Shards) -> int:
    """Return k."""
    return embedded.pick(np.arange(1)).facts[-1].shape[1] - 1


def _embedding(piece: LoadedShard) -> Array:
    return piece.facts[-1][:, :-1].copy()


def _omega(rows: Array) -> Array:
    """Return `D^-1/2 U` (b, k) of rows of U and `D^-1/2`."""
    return rows[:, :-1] * rows[:, -1:]


def _regression_sums(piece: LoadedShard) -> tuple[Array, Array]:
    rows, Y = piece.facts[-2:]
    known = np.isfinite(Y).all(axis=1)
    sides = _sides(rows[known])
    return sides.T @ sides, sides.T @ Y[known]


def _completed(piece: LoadedShard, weights: Array) -> Array:
    rows, Y = piece.facts[-2:]
    known = np.isfinite(Y).all(axis=1)[:, None]
    return np.column_stack([_omega(rows), np.where(known, Y, _sides(rows) @ weights)])


def _centred(piece: LoadedShard, mean: Array) -> Array:
    rows = piece.facts[-1].copy()
    rows[:, -len(mean) :] -= mean
    return rows


def _last_sums(piece: LoadedShard) -> Array:
    return np.asarray(piece.facts[-1].sum(axis=0))


def _last_squares(piece: LoadedShard) -> Array:
    return np.einsum("ij,ij->j", piece.facts[-1], piece.facts[-1])


def _both(piece: LoadedShard) -> Array:
    return np.column_stack([_omega(piece.facts[-2]), piece.facts[-1]])


def _last(piece: LoadedShard) -> Array:
    return np.asarray(piece.facts[-1].copy())


def _sides(rows: Array) -> Array:
    """Return 1 and the row of U, of unit length, for each row of U and `D^-1/2`."""
    return np.column_stack([np.ones(len(rows)), normalise_rows(rows[:, :-1])])


def normalise_rows(U: Array) -> Array:
    """Return the rows of U (b, k) with length 1, those of zeros as they are."""
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    return np.divide(U, lengths, out=np.zeros_like(U), where=lengths > 0)
