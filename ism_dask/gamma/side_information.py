"""Variables s beside y, such as age and sex: what X W is not to depend on, or what is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.classes import (
    are_too_many,
    check_complete,
    class_dependence,
    kinds_of,
    without_mask,
)
from ism_dask.gamma.combined import frobenius_norm, weighted_sum
from ism_dask.gamma.targets import MAX_WHOLE_CLASSES, standardise_target, target_dependence


@dataclass(frozen=True, eq=False)
class SideInformation:
    """Columns of s, read as classes or as numbers.

    Attributes
    ----------
    name : str
        The argument that it comes from, for messages.
    labels : (n, l) array
        For each column of classes, the number of the class of each row.
    numbers : (n, t) array
    """

    name: str
    labels: Array
    numbers: Array

    @classmethod
    def of(cls, name: str, s: Any, n_rows: int, weights: Array | None = None) -> SideInformation:
        """Return s (n,) or (n, t), or a frame, by columns; raise a ValueError for bad ones.

        Strings, truth values, and whole numbers with up to 20 different values are classes; other
        numbers are numbers. Rows of weight 0 have no say in it.
        """
        labels, numbers = np.empty((n_rows, 0), dtype=np.intp), np.empty((n_rows, 0))
        for title, column in _columns(name, s, n_rows):
            values = _checked(title, column)
            counted = values if weights is None else values[weights > 0]
            if _are_classes(np.unique(counted)):
                codes = np.unique(values, return_inverse=True)[1]
                labels = np.column_stack([labels, codes])
            else:
                numbers = np.column_stack([numbers, values.astype(np.float64)])
        return cls(name, labels, numbers)

    def at(self, rows: Array) -> SideInformation:
        """Return the same for some rows (k,), or for all in another order."""
        return SideInformation(self.name, self.labels[rows], self.numbers[rows])

    @property
    def sort_keys(self) -> Array:
        """Numbers (n, l + t) by which rows can be sorted."""
        return np.hstack([self.labels, self.numbers])

    def points(self) -> Array:
        """Return the numbers in units of their deviations, beside indicators of the classes."""
        self._check_varies(None)
        scaled = [standardise_target(column) for column in self.numbers.T]
        indicators = [column[:, None] == np.unique(column) for column in self.labels.T]
        return np.hstack([*scaled, *indicators])

    def dependence(self, weights: Array | None = None) -> Dependence:
        """Return the dependence on s; rows count by their weights (n,), if there are some.

        Columns of classes make one class of each combination, and numbers have one kernel. With
        both, Gamma is the sum of the two, each divided by its norm.
        """
        self._check_varies(weights)
        parts = []
        if self.labels.shape[1]:
            parts.append(replace(self._class_dependence(weights), weights=weights))
        if count := self.numbers.shape[1]:
            target = "multiscale" if count == 1 else "gaussian"
            parts.append(target_dependence(self.numbers, target, weights))
        if len(parts) == 1:
            return parts[0]
        gamma, facts = weighted_sum(parts, [1.0 / frobenius_norm(each) for each in parts])
        return Dependence(gamma, facts, weights=weights)

    def _class_dependence(self, weights: Array | None) -> Dependence:
        combinations = np.unique(self.labels, axis=0, return_inverse=True)[1].reshape(-1)
        n, count = len(combinations), int(combinations.max()) + 1
        if are_too_many(count, n):
            raise ValueError(
                f"`{self.name}` has {count} different labels, or combinations of them, in {n} "
                "rows, too many to be classes; give numbers as numbers, or fewer columns"
            )
        return class_dependence(combinations, weights)

    def _check_varies(self, weights: Array | None) -> None:
        values = self.sort_keys if weights is None else self.sort_keys[weights > 0]
        if not np.ptp(values, axis=0).all():
            raise ValueError(
                f"`{self.name}` has a column that is the same in all rows; nothing can depend on "
                "it, so leave it out"
            )


def _columns(name: str, s: Any, n_rows: int) -> list[tuple[str, Array]]:
    """Return the columns (n,) of s, with titles for messages."""
    if hasattr(s, "columns"):
        columns = [(f"`{name}` has column {key!r}, which", np.asarray(s[key])) for key in s.columns]
    else:
        array = np.asarray(without_mask(s))
        if array.ndim not in {1, 2}:
            raise ValueError(
                f"`{name}` has shape {array.shape}; expected ({n_rows},) or ({n_rows}, t), dense"
            )
        single = array.ndim == 1 or array.shape[1] == 1
        table = array if array.ndim == 2 else array[:, None]
        titles = [
            f"`{name}`" if single else f"`{name}` has column {k}, which"
            for k in range(table.shape[1])
        ]
        columns = list(zip(titles, table.T, strict=True))
    lengths = {len(column) for _, column in columns}
    if lengths != {n_rows}:
        got = "no columns" if not lengths else f"{lengths.pop()} rows"
        raise ValueError(
            f"`{name}` has {got}, X has {n_rows} rows; expected one value for each row"
        )
    return columns


def _checked(title: str, column: Array) -> Array:
    """Return a column (n,) as numbers or strings; raise a ValueError for gaps and odd types."""
    check_complete(title, column)
    if column.dtype.kind in "OT":
        if all(isinstance(value, Real) for value in column):
            column = column.astype(np.float64)
        elif all(isinstance(value, str) for value in column):
            column = column.astype(str)
    if column.dtype.kind not in "biufUS":
        raise ValueError(
            f"{title} has {kinds_of(column)}; expected numbers, or labels that are all strings"
        )
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise ValueError(f"{title} has infinite values; expected finite numbers")
    return column


def _are_classes(distinct: Array) -> bool:
    """Return whether distinct values (k,) are classes rather than numbers."""
    if distinct.dtype.kind not in "iuf":
        return True
    return len(distinct) <= MAX_WHOLE_CLASSES and bool((distinct == np.floor(distinct)).all())
