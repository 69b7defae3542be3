"""Gamma of labels: one class for each row, or several labels of each row.

Several labels are an indicator matrix, or columns of classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, Gamma, centred_by
from ism_dask.gamma.row_values import distinct_labels
from ism_dask.linalg.eigen import largest_pairs
from ism_dask.rows.shards import Shards

# Labels with more distinct values than this, and more than half as many as rows, are no classes.
_FEW_CLASSES = 20
# More columns of an indicator than this are replaced by their leading principal columns.
_MOST_COLUMNS = 100


@dataclass(frozen=True)
class ClassGamma(Gamma):
    """`H Y Y^T H` for one-hot Y. The fact of a row is the number of its class.

    The frequencies (c,) are the shares of the classes among the rows.
    """

    frequencies: Array

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

    def factor(self, facts: Array) -> Array:
        """Return the rows of `Y - frequencies`, where Y is V."""
        U = np.tile(-self.frequencies, (len(facts), 1))
        U[np.arange(len(facts)), facts[:, 0]] += 1
        return U

    def part(self, facts: Array) -> tuple[ClassGamma, Array]:
        """Return the Gamma of some rows, and their facts; a class may have none of these rows."""
        counts = np.bincount(facts[:, 0], minlength=len(self.frequencies))
        return ClassGamma(self.signs, counts / len(facts)), facts

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
    classes, codes, counts = distinct_labels(y)
    if len(classes) < 2:
        raise ValueError(
            f"`y` has one class only ({classes.tolist()[0]!r}); a projection that tells "
            "classes apart needs two or more"
        )
    if weights is not None and np.count_nonzero(np.bincount(codes, weights)) < 2:
        raise ValueError("`y` has one class only in the rows with a weight above 0")
    kind, advice = "labels", 'where `target` can be chosen, numbers go with target="numbers"'
    if classes.dtype.kind in "mM":
        kind, advice = "dates", "give numbers, such as the days since the first"
    check_few(f"`y` has {len(classes)} different {kind}", len(classes), len(y), advice)
    narrow = codes.astype(np.min_scalar_type(len(classes)))
    return Dependence(ClassGamma(np.ones(len(classes)), counts / len(y)), narrow[:, None], classes)


def check_few(what: str, count: int, n_rows: int, advice: str) -> None:
    """Raise a ValueError about `what` if rows have too many different labels to be classes."""
    if count > max(_FEW_CLASSES, n_rows / 2):
        raise ValueError(f"{what} for {n_rows} rows, too many to be classes; {advice}")


def labels_dependence(y: Array, weights: Array | None = None) -> Dependence:
    """Return the dependence on labels y (n, t): `Gamma = H Y Y^T H` with an indicator Y.

    A matrix of 0 and 1 is the indicator itself; one with a single 1 in each row has the Gamma of
    classes. Other columns are classes, each with a column of Y for each of its values.
    """
    columns = np.asarray(y).reshape(len(y), -1)
    counts = np.ones(len(columns)) if weights is None else weights
    blocks = [columns]
    if not is_indicator(columns):
        blocks = []
        for number, column in enumerate(columns.T):
            distinct, codes = np.unique(column, return_inverse=True)
            what = f"column {number} of `y` has {len(distinct)} different labels"
            check_few(what, len(distinct), len(column), 'numbers go with target="numbers"')
            blocks.append(np.eye(len(distinct))[codes])
    U = centred_by(np.hstack(blocks).astype(np.float64), counts)
    squares = counts @ U**2
    # Labels that all rows have, or none, are common in a part of the rows.
    U = U[:, squares > 0]
    if not U.shape[1]:
        raise ValueError("`y` has the same labels in all rows; there is nothing to tell apart")
    n_labels, remainder = U.shape[1], 0.0
    if n_labels > _MOST_COLUMNS:
        gram = U.T * counts @ U
        values, vectors = largest_pairs(gram, _MOST_COLUMNS)
        U, remainder = U @ vectors, max(0.0, 1.0 - float(values.sum() / np.trace(gram)))
    gamma = Gamma(np.ones(U.shape[1]))
    return Dependence(gamma, U, remainder=remainder, columns=n_labels)


def is_indicator(y: Array) -> bool:
    """Return whether labels y (n, t) are a matrix of 0 and 1."""
    return y.dtype.kind in "biuf" and bool(((y == 0) | (y == 1)).all())
