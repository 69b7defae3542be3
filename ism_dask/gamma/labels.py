"""Gamma of several labels of each row: an indicator matrix, or columns of classes."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, ThinGamma, centred_by
from ism_dask.gamma.classes import are_too_many
from ism_dask.linalg.eigen import largest_pairs

# More columns than this are replaced by their leading principal columns.
_MOST_COLUMNS = 100


def labels_dependence(y: Array, weights: Array | None = None) -> Dependence:
    """Return the dependence on labels y (n, t): `Gamma = H Y Y^T H` with an indicator Y.

    A matrix of 0 and 1 is the indicator itself; one with a single 1 in each row has the Gamma of
    classes. Other columns are classes, each with a column of Y for each of its values.
    """
    columns = np.asarray(y).reshape(len(y), -1)
    counts = np.ones(len(columns)) if weights is None else weights
    Y = columns if is_indicator(columns) else _one_hot(columns)
    U = centred_by(Y.astype(np.float64), counts)
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
    gamma = ThinGamma(np.ones(U.shape[1]))
    return Dependence(gamma, U, remainder=remainder, columns=n_labels)


def is_indicator(y: Array) -> bool:
    """Return whether labels y (n, t) are a matrix of 0 and 1."""
    return y.dtype.kind in "biuf" and bool(((y == 0) | (y == 1)).all())


def _one_hot(columns: Array) -> Array:
    """Return the indicator (n, sum of c) of columns (n, t) of classes."""
    blocks = []
    for number, column in enumerate(columns.T):
        distinct, codes = np.unique(column, return_inverse=True)
        if are_too_many(len(distinct), len(column)):
            raise ValueError(
                f"column {number} of `y` has {len(distinct)} different labels for {len(column)} "
                'rows, too many to be classes; numbers go with target="numbers"'
            )
        blocks.append(np.eye(len(distinct))[codes])
    return np.hstack(blocks)
