"""Weights of rows: a row of weight 2 counts as two equal rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import check_choice

# Rows of whole weights are repeated in a sample, up to this sum of the weights.
_MOST_REPEATED = 10**6


def check_weights(weights: Any, n_rows: int, name: str = "`sample_weight`") -> Array:
    """Return weights (n,) of rows as float64; raise a ValueError if they are none."""
    numbers = np.asarray(weights, dtype=np.float64)
    if numbers.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {numbers.shape}; expected ({n_rows},), one for each row"
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} contains NaN or infinity; give these rows the weight 0")
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise ValueError(f"{name} is {numbers[row]:g} in row {row}; expected numbers from 0 up")
    if not numbers.any():
        raise ValueError(f"every {name} is zero; expected some above 0")
    return numbers


def weighted_by_class(
    y: Array, class_weight: Mapping[Any, float] | str, weights: Array | None
) -> Array:
    """Return the weights (n,) of rows with labels y (n,), multiplied by the weights of classes.

    "balanced" gives all classes the same sum of weights; all together count as before.
    """
    classes, codes = np.unique(y, return_inverse=True)
    weights = np.ones(len(y)) if weights is None else weights
    if isinstance(class_weight, str):
        check_choice("`class_weight`", class_weight, ["balanced"])
        sums = np.bincount(codes, weights)
        counted = sums > 0
        shares = np.zeros(len(classes))
        shares[counted] = weights.sum() / (counted.sum() * sums[counted])
        return np.asarray(shares[codes] * weights)
    unknown = [label for label in class_weight if label not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"`class_weight` has {unknown[0]!r}, which is no class of `y`; the classes are "
            f"{classes.tolist()}"
        )
    for label, weight in class_weight.items():
        if not weight >= 0:
            raise ValueError(
                f"`class_weight` is {weight!r} for the class {label!r}; expected numbers from 0 up"
            )
    given = np.array([class_weight.get(label, 1.0) for label in classes.tolist()])
    return check_weights(given[codes] * weights, len(y), "`class_weight`")


def repeated_rows(weights: Array) -> Array:
    """Return ascending indices (m,) of rows, each as often as its weight says.

    If the weights are no whole numbers, or large ones, there are as many indices as rows, and a
    row has its share of them, rounded up or down.
    """
    total = weights.sum()
    if (weights == np.floor(weights)).all() and total <= _MOST_REPEATED:
        return np.repeat(np.arange(len(weights)), weights.astype(np.intp))
    ends = np.cumsum(weights)
    positions = (np.arange(len(weights)) + 0.5) * (ends[-1] / len(weights))
    return np.searchsorted(ends, positions, side="right")
