"""What y says of its rows: classes, or numbers under a kernel, as a Gamma with facts.

A kernel of numbers becomes a thin factor, which every engine serves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.utils.multiclass import type_of_target

from ism_dask.checks import one_of
from ism_dask.gamma import Dependence, FactorGamma, class_dependence
from ism_dask.kernels.widths import median_distance
from ism_dask.typing import Array

# Rows at most that the median distance of y is taken from.
_MEDIAN_ROWS = 5000
# Whole numbers with more values than this may be classes or numbers.
_CLEARLY_CLASSES = 20
# A factor of the kernel of y leaves out at most this share of its trace, or has as many columns
# as it may. One number takes about 15.
_REMAINDER, _MOST_COLUMNS = 1e-6, 100


def linear_dependence(y: Array) -> Dependence:
    """Return the Gamma of numbers y (n,) or (n, t) under a linear kernel: U is y standardised."""
    U = standardised(y)
    return Dependence(FactorGamma(np.ones(U.shape[1])), U, columns=U.shape[1])


def gaussian_dependence(y: Array) -> Dependence:
    """Return the Gamma of numbers y (n,) or (n, t) under a gaussian kernel of median width."""
    points = standardised(y)
    width = median_distance(_thinned(points), 'the median width of target="gaussian"')
    factor, remainder = _gaussian_factor(points / width)
    factor -= factor.mean(axis=0)
    gamma = FactorGamma(np.ones(factor.shape[1]))
    return Dependence(gamma, factor, remainder=remainder, columns=points.shape[1])


def _gaussian_factor(points: Array) -> tuple[Array, float]:
    """Return F (n, m) with `F F^T` near the gaussian kernel of points (n, t), and what is missing.

    The rows of largest error become landmarks, one after the other (pivoted Cholesky). The second
    number is the share of the trace that is not in F.
    """
    n = len(points)
    columns = np.empty((_MOST_COLUMNS, n))
    errors, size = np.ones(n), 0
    while size < min(_MOST_COLUMNS, n) and errors.sum() > _REMAINDER * n:
        pivot = int(errors.argmax())
        column = np.exp(-0.5 * np.einsum("ij,ij->i", apart := points - points[pivot], apart))
        column -= columns[:size, pivot] @ columns[:size]
        column /= np.sqrt(errors[pivot])
        columns[size] = column
        errors = np.maximum(errors - column**2, 0.0)
        errors[pivot] = 0.0
        size += 1
    return columns[:size].T.copy(), float(errors.sum() / n)


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

    "auto" takes labels and few whole numbers as classes, other numbers under the gaussian kernel.
    """
    name = one_of("`target`", target, ["auto", *TARGETS])
    return TARGETS[_automatic(y) if name == "auto" else name](y)


def _automatic(y: Array) -> str:
    """Return the target that y calls for, or raise a ValueError where it could be either."""
    values = np.asarray(y)
    # The kind of most labels rules numbers out, and looking at each of them takes a while.
    if values.dtype.kind not in "biuU" and type_of_target(y).startswith("continuous"):
        return "gaussian"
    if values.dtype.kind in "iuf" and values.ndim == 1:
        distinct = len(np.unique(values))
        if distinct > _CLEARLY_CLASSES:
            raise ValueError(
                f"`y` has {distinct} different whole numbers, which may be classes or numbers; "
                f"expected at most {_CLEARLY_CLASSES} where `target` is 'auto'. Give "
                "target='classes' or target='gaussian'"
            )
    return "classes"


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
