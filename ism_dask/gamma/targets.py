"""Gamma from a target y: classes, several labels of each row, or numbers under a kernel of y.

Several labels are an indicator matrix, or columns of classes. A kernel of numbers is replaced by a
low-rank factor, so that every engine can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.multiclass import type_of_target

from ism_dask._types import Array
from ism_dask._validation import check_choice
from ism_dask.gamma.base import (
    Dependence,
    Gamma,
    check_weights,
    repeated_rows,
    weighted_by_class,
)
from ism_dask.gamma.row_values import distinct_labels, finite_numbers, is_indicator, near_zero
from ism_dask.kernels.pairing import MULTISCALE, mean_of_gaussians, median_distance
from ism_dask.linalg.cholesky import PivotedCholesky
from ism_dask.linalg.eigen import largest_pairs
from ism_dask.linalg.subspaces import centred_by

# The most rows from which the median distance of y is computed.
_MEDIAN_ROWS = 5000
# Whole numbers with more distinct values than this may be classes or numbers.
MAX_WHOLE_CLASSES = 20
# So may this many values if one of them is as rare as this.
_FEWEST_COUNTS, _RARE = 8, 2
# Labels with more distinct values than this, and more than half as many as rows, are no classes.
_FEW_CLASSES = 20
# A factor of the kernel of y gets columns until it leaves out at most this share of the trace, or
# until it has the most columns. One normally distributed number takes 15 columns with one width, 46
# with three. More columns of an indicator are replaced by their leading principal columns.
_REMAINDER, _MOST_COLUMNS = 1e-6, 100


@dataclass(frozen=True)
class ClassGamma(Gamma):
    """`H Y Y^T H` for one-hot Y. The fact of a row is the number of its class.

    The frequencies (c,) are the shares of the classes among the rows.
    """

    frequencies: Array

    def as_rows(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the number of the class of each row (b,)."""
        return facts[:, 0].astype(np.intp)

    def as_columns(self, facts: Array, dtype: np.dtype[Any]) -> Array:
        """Return the entries of Gamma of each row with a row of each class (c, b)."""
        p, codes = self.frequencies, facts[:, 0]
        columns = p @ p - p[:, None] - p[codes]
        # For a class of nearly all rows, 1 and these nearly cancel: squares are added instead.
        others, top = p @ p - p**2, p.argmax()
        others[top] = (np.delete(p, top) ** 2).sum()
        columns[codes, np.arange(len(codes))] = ((1 - p) ** 2 + others)[codes]
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
    """Return the dependence on classes y (n,), two of which need rows with weights (n,) above 0."""
    if np.ndim(y) != 1:
        raise ValueError(
            "`y` must be one label for each row where it is taken as classes; "
            f"got shape {np.shape(y)}"
        )
    classes, codes, counts = distinct_labels(y)
    if len(classes) < 2:
        raise ValueError(f"`y` has one class only ({classes.tolist()[0]!r}); expected two or more")
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
    n_labels = U.shape[1]
    if n_labels > _MOST_COLUMNS:
        U = U @ largest_pairs(U.T * counts @ U, _MOST_COLUMNS)[1]
    return Dependence(Gamma(np.ones(U.shape[1])), U, columns=n_labels)


def linear_dependence(y: Array, weights: Array | None = None) -> Dependence:
    """Return the `Dependence` on numbers y (n,) or (n, t), linear: U is y standardised."""
    U = standardise_target(y, weights)
    return Dependence(Gamma(np.ones(U.shape[1])), U, columns=U.shape[1])


def _kernel_dependence(y: Array, weights: Array | None, widths: tuple[float, ...]) -> Dependence:
    """Return the `Dependence` on numbers y (n,) or (n, t) under the mean of gaussian kernels.

    Their widths are multiples of the median distance.
    """
    points = standardise_target(y, weights)
    counted = points if weights is None else points[repeated_rows(weights)]
    some = counted[:: -(-len(counted) // _MEDIAN_ROWS)]
    if not np.ptp(some, axis=0).any():
        # These rows are equal, and a rare event is among the others: add rows of its extremes.
        every = points if weights is None else points[weights > 0]
        extremes = every[every.argmin(axis=0)], every[every.argmax(axis=0)]
        some = np.concatenate([some, *extremes])
    scaled = points / median_distance(some, "the median width of the kernel of `y`")

    def columns(rows: Array) -> Array:
        squared = np.empty((len(scaled), len(rows)))
        for column, row in zip(squared.T, scaled[rows], strict=True):
            # Differences of rows lose no digits.
            column[:] = np.einsum("ij,ij->i", offsets := scaled - row, offsets)
        return mean_of_gaussians(squared, 1.0, widths)

    # The row of largest error is the next landmark; its share of all rows is its weight.
    share = np.full(len(points), 1 / len(points)) if weights is None else weights / weights.sum()
    cholesky = PivotedCholesky(columns, np.where(share > 0, 1.0, 0.0))
    most = min(_MOST_COLUMNS, len(points))
    while cholesky.size < most and share @ cholesky.left > _REMAINDER:
        cholesky.add(np.array([cholesky.left.argmax()]), np.zeros(1))
    factor = cholesky.factor - cholesky.factor.mean(axis=0)
    return Dependence(Gamma(np.ones(factor.shape[1])), factor, columns=points.shape[1])


# The readings of y as classes, and those of numbers by a kernel.
CLASS_TARGETS = ("classes", "labels")
NUMERIC_KERNELS = ("gaussian", "multiscale")
TARGETS: dict[str, Callable[[Array, Array | None], Dependence]] = {
    "classes": class_dependence,
    "labels": labels_dependence,
    "linear": linear_dependence,
    "gaussian": partial(_kernel_dependence, widths=MULTISCALE[:1]),
    "multiscale": partial(_kernel_dependence, widths=MULTISCALE),
}


def target_dependence(y: Array, target: str = "auto", weights: Array | None = None) -> Dependence:
    """Return the dependence on y under `target`, a name in `TARGETS` or "auto".

    Rows count by their weights (n,), if there are some.

    "auto" takes labels and whole numbers of few values as classes, several of them for each row as
    "labels", one other number for each row as "multiscale", and several as "gaussian": with
    several, narrow kernels have no low-rank factor.
    """
    return replace(TARGETS[target_name(y, target)](y, weights), weights=weights)


def target_name(y: Array, target: str) -> str:
    """Return the name in `TARGETS` of the way in which `target` reads y."""
    name = check_choice("`target`", target, ["auto", "numbers", *TARGETS])
    if name == "numbers":
        return "gaussian" if np.ndim(y) > 1 else "multiscale"
    return _automatic_target(y) if name == "auto" else name


def _automatic_target(y: Array) -> str:
    """Return the target that suits y, or raise a ValueError if y may be classes or numbers."""
    values = np.asarray(y)
    # The dtype of most labels rules numbers out; `type_of_target` looks at each label, which takes
    # time.
    kind = ""
    if values.dtype.kind not in "biuU":
        # scikit-learn casts to int64, which holds no 1e200, and sorts columns of different types.
        with np.errstate(invalid="ignore", over="ignore"), suppress(TypeError):
            kind = type_of_target(y)
    classes = "labels" if values.ndim > 1 else "classes"
    if kind.startswith("continuous"):
        return "gaussian" if kind.endswith("multioutput") else "multiscale"
    if values.dtype.kind not in "iuf" or is_indicator(values):
        return classes
    for column in values.reshape(len(values), -1).T:
        counts = np.unique(column, return_counts=True)[1]
        many = len(counts) > MAX_WHOLE_CLASSES
        # Among counts, the largest ones occur once or twice.
        if many or (len(counts) >= _FEWEST_COUNTS and counts.min() <= _RARE):
            rarest = "" if many else f", the rarest of them in {counts.min()} rows"
            raise ValueError(
                f"`y` has {len(counts)} different whole numbers{rarest}, which may be classes or "
                f"numbers; expected at most {MAX_WHOLE_CLASSES}, each in several rows, where "
                "`target` is 'auto'. Give target='numbers' for counts and other numbers, or "
                f"target={classes!r}"
            )
    return classes


def normal_scores(y: Array, weights: Array | None) -> Array:
    """Return numbers y (n,) or (n, t) as the values that normal numbers of their ranks would have.

    Outlying and skewed numbers then rule no sum. Equal numbers have equal scores.
    """
    counts = np.ones(len(y)) if weights is None else weights
    scores = np.empty((len(y), np.size(y) // len(y)))
    for column, score in zip(np.asarray(y).reshape(len(y), -1).T, scores.T, strict=True):
        _, codes = np.unique(column, return_inverse=True)
        sums = np.bincount(codes, counts)
        least = sums[sums > 0].min() / 2  # rows of weight 0 may be beyond all others
        below = np.clip(np.cumsum(sums) - sums / 2, least, sums.sum() - least)
        score[:] = ndtri(below / sums.sum())[codes]
    return scores.reshape(np.shape(y))


def standardise_target(y: Array, weights: Array | None = None) -> Array:
    """Return numbers y (n,) or (n, t) as columns (n, t) of mean 0 and standard deviation 1.

    Both count rows by their weights (n,), if there are some.
    """
    given = np.asarray(y).reshape(len(y), -1)
    columns = finite_numbers(near_zero(given))
    counted = np.flatnonzero(np.ones(len(columns)) if weights is None else weights)
    constant = np.flatnonzero((columns[counted] == columns[counted[:1]]).all(axis=0))
    if constant.size:
        which = f"column {constant[0]} of `y`" if columns.shape[1] > 1 else "`y`"
        value = float(given[counted[0], constant[0]])
        raise ValueError(
            f"{which} is constant, {value:g} in all {len(counted)} rows; "
            "nothing can depend on it. Leave such a column out, or give a y that varies"
        )
    # Scale first: the square of 1e200 overflows and that of 1e-200 underflows. Scaling by a power
    # of two does not round.
    _, exponents = np.frexp(np.abs(columns).max(axis=0))
    scaled = np.ldexp(columns, -exponents)
    # Subtract a value near the mean before the mean: differences of numbers that are close to each
    # other are exact, so that a mean far from 0 costs no digits.
    mean = np.average(scaled, axis=0, weights=weights)
    nearest = np.abs(scaled - mean).argmin(axis=0)
    scaled -= scaled[nearest, np.arange(scaled.shape[1])]
    scaled -= np.average(scaled, axis=0, weights=weights)
    scaled -= np.average(scaled, axis=0, weights=weights)
    return np.asarray(scaled / np.sqrt(np.average(scaled**2, axis=0, weights=weights)))


def row_weights(
    y: Array, target: str, class_weight: dict[Any, float] | str | None, sample_weight: Any
) -> Array | None:
    """Return the weight (n,) of each row of y, from the weights of classes and of rows.

    None means that all rows count alike. `target` says how y is read, as in `SupervisedIKDR`.
    """
    weights = None if sample_weight is None else check_weights(sample_weight, len(y))
    if class_weight is None:
        return weights
    if (name := target_name(y, target)) != "classes":
        read = "several labels" if name == "labels" else "numbers"
        raise ValueError(
            f"`class_weight`={class_weight!r} is for classes, but `y` is read as {read}; give "
            "`sample_weight`" + ("" if y.ndim > 1 else ", or target='classes'")
        )
    return weighted_by_class(y, class_weight, weights)
