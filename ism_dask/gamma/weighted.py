"""Weights of rows: a row of weight 2 counts as two equal rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, ThinGamma

# Rows of whole weights are repeated in a sample, up to this sum of the weights.
_MOST_REPEATED = 10**6


def with_weights(dependence: Dependence, weights: Array) -> Dependence:
    """Return a dependence in which rows have weights (n,).

    `Gamma_ij` is multiplied by `w_i w_j`, after U was centred by the weights.
    """
    return replace(
        dependence,
        gamma=ThinGamma(dependence.gamma.signs),
        facts=weights[:, None] * centred_by(dependence.factor, weights),
        equal_rows=dependence,
    )


def check_weights(weights: Any, n_rows: int) -> Array:
    """Return weights (n,) of rows as float64; raise a ValueError if they are none."""
    numbers = np.asarray(weights, dtype=np.float64)
    if numbers.shape != (n_rows,):
        raise ValueError(
            f"`sample_weight` has shape {numbers.shape}; expected ({n_rows},), one for each row"
        )
    if not np.isfinite(numbers).all():
        raise ValueError("`sample_weight` contains NaN or infinity; give these rows the weight 0")
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise ValueError(
            f"`sample_weight` is {numbers[row]:g} in row {row}; expected numbers from 0 up"
        )
    if not numbers.any():
        raise ValueError("every `sample_weight` is zero; expected some above 0")
    return numbers


def centred_by(U: Array, weights: Array) -> Array:
    """Return columns (n, r) minus their means by weights (n,)."""
    centred = U - weights @ U / weights.sum()
    # The mean of the centred rows is the rounding error of the mean.
    centred -= weights @ centred / weights.sum()
    return np.asarray(centred)


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
