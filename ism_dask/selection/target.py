"""What a regression on X W predicts: y itself, or the law of y, its leading functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import AvoidingDependence, Dependence, centred_by
from ism_dask.gamma.targets import NUMERIC_KERNELS, target_name
from ism_dask.linalg.subspaces import largest_pairs
from ism_dask.selection.rules import RULES

# The names of the two targets of numbers.
MEAN, LAW = "mean", "law"
_OF_CLASSES = ("classes", "labels")


@dataclass(frozen=True, eq=False)
class Target:
    """What a regression on X W is to predict.

    Columns of Y (n, r) have mean 0; the rows of those to predict have a mean square of 1. The signs
    (r,) are the weights of the columns in J, negative for what X W is not to predict. Rows of
    similar y have similar keys (n,).
    """

    Y: Array
    keys: Array
    signs: Array | None = None


def prediction_targets(
    y: Array,
    target: str,
    weights: Array | None,
    dependence_on: Callable[[str], Dependence],
) -> dict[str, Target]:
    """Return what X W may have to predict, with y read as `target` says.

    It is the "mean" of y, or the "law", its leading functions under a kernel, or one of both.
    `dependence_on` returns the dependence to explain for a reading of y.
    """
    name, counts = target_name(y, target), np.ones(len(y)) if weights is None else weights
    readings = {MEAN: name}
    if name in NUMERIC_KERNELS:
        readings = {LAW: name} if target == name else {MEAN: "linear", LAW: name}
    return {
        each: _target(y, reading, counts, dependence_on(reading))
        for each, reading in readings.items()
    }


def _target(y: Array, reading: str, counts: Array, dependence: Dependence) -> Target:
    """Return the target of y as `reading` says, and of what X W is not to predict."""
    explained = dependence.explained if isinstance(dependence, AvoidingDependence) else dependence
    U = _columns(explained)
    if reading in NUMERIC_KERNELS:
        U = _leading(U, counts, min(RULES.law_functions, U.shape[1]))
    U = _oriented(U) if reading == "linear" else U
    Y, keys = _unit(U, counts), _keys(y, reading, _leading(U, counts, 1))
    if not isinstance(dependence, AvoidingDependence):
        return Target(Y, keys)
    S = _unit(_columns(dependence.avoided), counts)
    signs = np.repeat([1.0, -dependence.weight], [Y.shape[1], S.shape[1]])
    return Target(np.hstack([Y, S]), keys, signs)


def _keys(y: Array, reading: str, leading: Array) -> Array:
    """Return keys (n,) by which rows of similar y are similar, whatever its sign or class names.

    Several columns of y have their `leading` function (n, 1).
    """
    if y.ndim > 1:
        return leading[:, 0] if reading in _OF_CLASSES else _oriented(leading)[:, 0]
    if reading not in _OF_CLASSES:
        return _oriented(y.astype(np.float64)[:, None])[:, 0]
    _, firsts, codes = np.unique(y, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(firsts))[codes].astype(np.float64)


def _oriented(columns: Array) -> Array:
    """Return columns (n, r) with signs such that the first number that differs is above the first.

    So rows are dealt in the same way for y and for -y, which could else end in different maxima.
    """
    other = (columns != columns[0]).argmax(axis=0)
    falls = columns[other, np.arange(columns.shape[1])] < columns[0]
    return np.where(falls, -columns, columns)


def _leading(U: Array, counts: Array, number: int) -> Array:
    """Return the leading functions (n, number) of rows that count by `counts` (n,)."""
    centred = centred_by(U.astype(np.float64), counts)
    return np.asarray(centred @ largest_pairs(centred.T @ (counts[:, None] * centred), number)[1])


def _columns(dependence: Dependence) -> Array:
    return dependence.factor * np.sqrt(np.abs(dependence.gamma.signs))


def _unit(U: Array, counts: Array) -> Array:
    """Return U (n, r), centred, with rows of mean square 1, where rows count by `counts` (n,)."""
    centred = centred_by(U.astype(np.float64), counts)
    return np.asarray(centred / np.sqrt(counts @ (centred**2).sum(axis=1) / counts.sum()))
