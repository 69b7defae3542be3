"""Embedding guides: ways to build Gamma from a spectral embedding and from what a user gives.

An embedding U contributes `Omega = D^-1/2 U U^T D^-1/2`. A guide adds the scores or labels that the
user gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.rows.raw import LoadedShard, RowFact
from ism_dask.rows.shards import Shards

# The ridge of the regression of scores on an embedding, as a share of the mean eigenvalue of its
# Gram matrix. It keeps the regression defined if few rows have scores.
_RIDGE = 1e-2
# The rows of U with `D^-1/2` as the last column, (b, k + 1).
EMBEDDING = RowFact("embedding")
# The given scores or labels, (b, t).
_GIVEN = RowFact("given")


@dataclass(frozen=True, eq=False)
class EmbeddingGuide(ABC):
    """A way to build Gamma from shards with the fact `EMBEDDING`.

    Y (n, t) has the given scores or labels of each row, if there are some, with the weight mu.
    """

    Y: Array | None = None
    mu: float = 1.0

    @abstractmethod
    def gamma(self, embedded: Shards) -> tuple[Gamma, Shards]:
        """Return Gamma, and the shards with the fact `GAMMA_FACTS`."""

    def initial_gamma(self, embedded: Shards) -> tuple[Gamma, Shards] | None:
        """Return the Gamma for an initial W, or None to begin with an embedding of X itself."""
        return None

    def reordered(self, order: Array) -> Self:
        """Return the same guide for some rows (k,), or for all in another order."""
        return self if self.Y is None else replace(self, Y=self.Y[order])


@dataclass(frozen=True, eq=False)
class ClusterGuide(EmbeddingGuide):
    """`Gamma = U U^T` without given labels. U is centred and its columns have length 1.

    As `published` U is not centred, and `Gamma = D^-1/2 H U U^T H D^-1/2`.
    """

    published: bool = False

    def gamma(self, embedded: Shards) -> tuple[Gamma, Shards]:
        """Return Gamma, and the shards with U, or `D^-1/2 H U`."""
        if self.published:
            rows = embedded.derive(GAMMA_FACTS, _omega_rows, _means(embedded, EMBEDDING))
        else:
            rows = embedded.derive(GAMMA_FACTS, _embedding_rows)
        return Gamma(np.ones(_width(embedded))), rows.persisted()


@dataclass(frozen=True, eq=False)
class ScoreGuide(EmbeddingGuide):
    """`Gamma = Omega / tr Omega + mu sum_e H Y_e Y_e^T H / tr(H Y_e Y_e^T H)` with experts e.

    Each expert scores some of the rows. A ridge regression of these scores on the embedding, with
    rows scaled to unit length, predicts the others. So the rows of a cluster get the scores of its
    scored rows.

    Y (n, t) has the scores of all experts: numbers of standard deviation 1 or one-hot classes, with
    mean 0 over the rows that the expert has scored; NaN for the other rows. `experts` (t,) has the
    number of the expert of each column, and `classes` (c,) the classes of the first c columns, if
    the first expert gives classes.
    """

    Y: Array
    experts: Array = field(kw_only=True)
    classes: Array | None = None

    @property
    def groups(self) -> Array | None:
        """The number of the class of each row, -1 for rows without one, if there are classes."""
        if self.classes is None:
            return None
        labels = self.Y[:, : len(self.classes)]
        return np.where(np.isnan(labels[:, 0]), -1, labels.argmax(axis=1))

    def gamma(self, embedded: Shards) -> tuple[Gamma, Shards]:
        """Return Gamma, and the shards with `D^-1/2 U` and the centred scores side by side."""
        scored, k = embedded.with_rows(_GIVEN, self.Y), _width(embedded)
        grams, cross = scored.fold(_regression_sums)
        ridges = _RIDGE * np.trace(grams, axis1=1, axis2=2) / (k + 1)
        systems = grams + ridges[:, None, None] * np.eye(k + 1)
        weights = np.linalg.solve(systems, cross[..., None])[..., 0].T
        rows = scored.derive(GAMMA_FACTS, _predicted_scores, weights).persisted()
        means = _means(rows, GAMMA_FACTS)
        means[:k] = 0.0
        rows = rows.derive(GAMMA_FACTS, _centred, means).persisted()
        squares = rows.fold(_column_squares)
        traces = np.bincount(self.experts, squares[k:])
        return _added_to_omega(squares[:k], self.mu / traces[self.experts]), rows


@dataclass(frozen=True, eq=False)
class AvoidGuide(EmbeddingGuide):
    """`Gamma = Omega / tr Omega - mu H Y Y^T H / tr(H Y Y^T H)` with one-hot labels Y to avoid.

    If there are several clusterings to avoid, each has a part of its own, with a trace of its own.
    Their labels, centred, are side by side in Y (n, c), and `clusterings` (c,) has the number of
    the clustering of each column, from 0.
    """

    Y: Array
    clusterings: Array = field(kw_only=True)

    def gamma(self, embedded: Shards) -> tuple[Gamma, Shards]:
        """Return Gamma, and the shards with `D^-1/2 U` and `H Y` side by side."""
        given, k = embedded.with_rows(_GIVEN, self.Y), _width(embedded)
        rows = given.derive(GAMMA_FACTS, _omega_and_given).persisted()
        squares = rows.fold(_column_squares)
        return _added_to_omega(squares[:k], self._signs(squares[k:])), rows

    def initial_gamma(self, embedded: Shards) -> tuple[Gamma, Shards]:
        """Return only the part of Gamma with the labels to avoid.

        If the rounds began with the clusters of X, they would stay at the labels to avoid.
        """
        rows = embedded.with_rows(GAMMA_FACTS, self.Y)
        return Gamma(self._signs(rows.fold(_column_squares))), rows

    def _signs(self, squares: Array) -> Array:
        """Return what each column of Y counts, from the sums of its squares: (c,)."""
        return -self.mu / np.bincount(self.clusterings, squares)[self.clusterings]


def normalise_rows(U: Array) -> Array:
    """Return the rows of U (b, k) scaled to length 1; rows of zeros stay as they are."""
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    return np.divide(U, lengths, out=np.zeros_like(U), where=lengths > 0)


def column_sums(rows: Array) -> Array:
    """Return the sums of columns (n, k) by a product, which is faster than `sum` of few columns."""
    return np.asarray(np.ones(len(rows)) @ rows)


def _width(embedded: Shards) -> int:
    """Return k, the number of columns of U."""
    return embedded.load_rows(np.arange(1)).facts[EMBEDDING].shape[1] - 1


def _means(shards: Shards, fact: RowFact) -> Array:
    """Return the means of the columns of a fact."""
    return np.asarray(shards.fold(_fact_sums, fact) / shards.n_rows)


def _added_to_omega(squares: Array, signs: Array) -> Gamma:
    """Return Gamma of an Omega of trace one, with sums of squares (k,), beside signs (c,)."""
    # If no two rows are near each other the embedding is 0, and Omega as well.
    return Gamma(np.append(np.full(len(squares), 1.0 / (squares.sum() or 1.0)), signs))


def _embedding_rows(shard: LoadedShard) -> Array:
    return shard.facts[EMBEDDING][:, :-1].copy()


def _omega_rows(shard: LoadedShard, means: Array | float = 0.0) -> Array:
    """Return `D^-1/2 U` (b, k), U less its means (k + 1,) if they are given."""
    rows = shard.facts[EMBEDDING]
    return np.asarray((rows - means)[:, :-1] * rows[:, -1:])


def _omega_and_given(shard: LoadedShard) -> Array:
    return np.column_stack([_omega_rows(shard), shard.facts[_GIVEN]])


def _regressors(rows: Array) -> Array:
    """Return 1 and U of unit length (b, 1 + k) for rows of U and `D^-1/2` (b, k + 1)."""
    return np.column_stack([np.ones(len(rows)), normalise_rows(rows[:, :-1])])


def _regression_sums(shard: LoadedShard) -> tuple[Array, Array]:
    """Return Gram matrices (t, k + 1, k + 1) of rows with each score, and products (t, k + 1)."""
    regressors, Y = _regressors(shard.facts[EMBEDDING]), shard.facts[_GIVEN]
    has_score = np.isfinite(Y)
    grams = [regressors.T[:, rows] @ regressors[rows] for rows in has_score.T]
    return np.array(grams), (regressors.T @ np.where(has_score, Y, 0.0)).T


def _predicted_scores(shard: LoadedShard, weights: Array) -> Array:
    Y = shard.facts[_GIVEN]
    scores = np.where(np.isfinite(Y), Y, _regressors(shard.facts[EMBEDDING]) @ weights)
    return np.column_stack([_omega_rows(shard), scores])


def _fact_sums(shard: LoadedShard, fact: RowFact) -> Array:
    return column_sums(shard.facts[fact])


def _centred(shard: LoadedShard, means: Array) -> Array:
    return np.asarray(shard.facts[GAMMA_FACTS] - means)


def _column_squares(shard: LoadedShard) -> Array:
    return column_sums(shard.facts[GAMMA_FACTS] ** 2)
