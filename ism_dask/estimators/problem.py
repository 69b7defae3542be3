"""Pose the problem of a supervised fit: what a user gives, checked and in an order of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ism_dask._types import Array
from ism_dask._validation import check_bool, is_whole, positive_float
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.input_rows import (
    check_rows,
    row_digests,
    row_order,
    row_source,
    rows_in_memory,
    without_gaps,
)
from ism_dask.estimators.preparation import Prepared, RowsWithoutY, prepare_rows
from ism_dask.estimators.training_rows import Target, prediction_targets
from ism_dask.gamma.base import Dependence, avoiding, check_weights
from ism_dask.gamma.row_values import (
    Device,
    check_complete,
    exceeds_float64,
    on_this_host,
    target_as_array,
)
from ism_dask.gamma.side_information import SideInformation, SideRegression, conditional
from ism_dask.gamma.target_input import column_target, rows_with_target
from ism_dask.gamma.targets import normal_scores, row_weights, target_dependence, target_name
from ism_dask.kernels import Kernel
from ism_dask.rows.raw import as_dense, fits_memory, is_row_source
from ism_dask.selection.rules import RULES

# The numbers of X, at most, from which its digest is computed.
_DIGESTED_NUMBERS = 10_000_000
# From here on single precision, in which tiles are computed, has no digits for y.
_LARGEST_AVOID_WEIGHT = 1_000_000


@dataclass(eq=False, repr=False)
class SupervisedParameters(IKDR):
    """The parameters that both estimators of labels and numbers have."""

    judges_by_unseen_rows: ClassVar[bool] = False

    n_components: int | str | None = "auto"
    _: KW_ONLY
    kernel: str | Kernel = "gaussian"
    target: str = "auto"
    standardize: bool = True
    missing: str | None = None
    rotation: str | None = None
    avoid_weight: float = 10.0
    class_weight: dict[Any, float] | str | None = None
    warm_start: bool = False
    random_state: Any = None

    def check_parameters(self) -> None:
        """Raise a ValueError if a parameter is out of range, whatever the rows."""
        super().check_parameters()
        weight = self.avoid_weight
        check_bool("`warm_start`", self.warm_start)
        if weight != 0 and positive_float("`avoid_weight`", weight, "or 0") > _LARGEST_AVOID_WEIGHT:
            raise ValueError(
                f"`avoid_weight` is {weight:g}; expected at most {_LARGEST_AVOID_WEIGHT:,}: y is "
                "lost in the rounding errors of what is avoided. The default, 10, is strict already"
            )


@dataclass(frozen=True, eq=False)
class SupervisedProblem:
    """The problem of a supervised fit: checked rows, y, weights and what else `fit` was given.

    `parameters` is the estimator, which nothing here changes. Rows of equal `groups` (n,) stay
    together in folds. `library` is where fitted arrays go, None for NumPy. The gaps in X are
    filled; `gaps` are the fitted attributes that say how. `others` are the rows without y. `places`
    (n,) are the numbers of the rows before they were put in order.
    """

    parameters: SupervisedParameters
    X: Any
    y: Array
    weights: Array | None = None
    avoid: SideInformation | None = None
    given: SideInformation | None = None
    groups: Array | None = None
    library: Device | None = None
    gaps: Mapping[str, Array | None] = field(default_factory=dict)
    others: RowsWithoutY | None = None
    places: Array | None = None
    _dependences: dict[tuple[str, bool], Dependence] = field(default_factory=dict, init=False)

    @property
    def sides(self) -> tuple[str, ...]:
        """Which of "avoid", "given" and "groups" there are."""
        sides = {"avoid": self.avoid, "given": self.given, "groups": self.groups}
        return tuple(name for name, side in sides.items() if side is not None)

    @property
    def earlier(self) -> Array | None:
        """The components (q, d) of the estimator's last fit, if this one is to continue there."""
        return getattr(self.parameters, "components_", None) if self.parameters.warm_start else None

    @cached_property
    def dependence(self) -> Dependence:
        """The dependence that W is to explain."""
        return self.dependence_on(target_name(self.y, self.parameters.target))

    def dependence_on(self, reading: str, *, of_ranks: bool = False) -> Dependence:
        """Return the dependence to explain, for a reading of y; each is computed once."""
        if (key := (reading, of_ranks)) in self._dependences:
            return self._dependences[key]
        y = normal_scores(self.y, self.weights) if of_ranks else self.y
        dependence = target_dependence(y, reading, self.weights)
        if self.regression is not None:
            dependence = conditional(dependence, self.regression)
        if self.avoid is not None:
            avoided = self.avoid.dependence(self.weights)
            dependence = avoiding(dependence, avoided, self.parameters.avoid_weight)
        self._dependences[key] = dependence
        return dependence

    @cached_property
    def targets(self) -> dict[str, Target]:
        """What a regression on X W may have to predict: the "mean" of y, its "law", or both."""
        return prediction_targets(self.y, self.parameters.target, self.weights, self.dependence_on)

    @cached_property
    def regression(self) -> SideRegression | None:
        """The regression on what is given, if something is."""
        given = self.given
        return None if given is None else SideRegression.on_side(given.dependence(self.weights))

    def prepared(self, kernel: Kernel, support: Array | None = None) -> Prepared:
        """Return the rows for the solver, of all features or of those of a support (d,) alone."""
        standardize = self.parameters.standardize
        prepared = prepare_rows(
            self.X,
            kernel,
            standardize=standardize,
            weights=self.weights,
            support=support,
            others=self.others,
        )
        return prepared if self.regression is None else prepared.beyond(self.regression)

    def dependence_rows(self, prepared: Prepared, kernel: Kernel, q: int) -> DependenceRows:
        """Return all that a fit of W (d, q) needs except Gamma."""
        return DependenceRows.sampled(
            prepared, kernel, self.parameters.random_state, q, self.weights
        )

    def n_components(self, prepared: Prepared) -> int:
        """Return the number of new features, that of an earlier fit if this one continues it."""
        given, most = self.parameters.n_components, self.parameters.max_features
        q = prepared.n_components(given, limited(self.usual_components, most))
        if self.earlier is not None:
            (q, d), d_now = self.earlier.shape, self.X.shape[1]
            if d != d_now or given not in (None, "auto", q):
                raise ValueError(
                    f"`warm_start` continues from {q} new features of {d} features, but "
                    f"`n_components` is {given!r} and X has {d_now}; set warm_start=False"
                )
        if is_whole(most) and most < q:
            raise ValueError(
                f"`max_features` is {most}, but {q} new features need {q} features or more; raise "
                f"it, or set n_components={most}"
            )
        return q

    @property
    def usual_components(self) -> int:
        """The usual number of new features: one for each column of y, or one fewer than classes."""
        classes = self.dependence.classes
        return self.dependence.columns if classes is None else max(len(classes) - 1, 1)

    def in_order(self) -> SupervisedProblem:
        """Return the problem without rows of weight 0, with rows in an order of their own.

        Copies of a row become one row, where unseen rows judge: else they could be copies of seen
        ones. Rows that are too large for memory stay as they are.
        """
        rows = row_order(self.X, self.y, self.weights, self._sort_keys)
        if rows is None:
            return self
        ordered = replace(self._part(rows), places=rows)
        return ordered._without_copies() if self.parameters.judges_by_unseen_rows else ordered

    @property
    def _sort_keys(self) -> list[Array]:
        """What belongs to the rows beside X and y: arrays of n rows."""
        sides = [each.sort_keys for each in (self.avoid, self.given) if each is not None]
        return sides if self.groups is None else [*sides, self.groups]

    def _part(self, rows: Array) -> SupervisedProblem:
        """Return the problem with some of the rows (k,)."""
        avoid, given = (each and each.part(rows) for each in (self.avoid, self.given))
        facts = (self.weights, self.groups, self.places)
        weights, groups, places = (None if each is None else each[rows] for each in facts)
        part = replace(self, weights=weights, groups=groups, places=places)
        return replace(part, X=self.X[rows], y=self.y[rows], avoid=avoid, given=given)

    def _without_copies(self) -> SupervisedProblem:
        """Return the problem with neighbours that are equal as one row, with their sum of weights.

        In the order of rows, copies are neighbours.
        """
        is_copy = np.ones(len(self.y) - 1, dtype=bool)
        for values in (self.y, *self._sort_keys):
            equal = values[1:] == values[:-1]
            is_copy &= equal.reshape(len(equal), -1).all(axis=1)
        likely = np.flatnonzero(is_copy)
        above, below = (as_dense(self.X[each]) for each in (likely, likely + 1))
        is_copy[likely] = (above == below).all(axis=1)
        if not is_copy.any():
            return self
        firsts = np.flatnonzero(np.r_[True, ~is_copy])
        weights = np.ones(len(self.y)) if self.weights is None else self.weights
        return replace(self._part(firsts), weights=np.add.reduceat(weights, firsts))

    @property
    def digest(self) -> str:
        """A digest of rows, as many as take a tenth of a second, of y, weights and sides.

        Rows that are too large for memory have no part in it, since they would cost a pass.
        """
        counts = self.weights
        parts = [self.y, np.empty(0) if counts is None or not np.ptp(counts) else counts]
        parts += [*self._sort_keys, *([] if self.others is None else [self.others.some])]
        digest = blake2b(digest_size=16)
        if fits_memory(self.X.shape):
            some = self.X[:: -(-math.prod(self.X.shape) // _DIGESTED_NUMBERS)]
            digest.update(row_digests(some).tobytes())
        for part in parts:
            # Labels and numbers of another type, and -0 in place of 0, are the same rows.
            numeric = part.dtype.kind in "biuf" and not exceeds_float64(part)
            same = part.astype(np.float64) + 0.0 if numeric else part.astype(str)
            digest.update(repr(same.shape).encode() + same.tobytes())
        return digest.hexdigest()


def supervised_problem(
    parameters: SupervisedParameters,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    avoid: Any = None,
    given: Any = None,
    groups: Any = None,
) -> SupervisedProblem:
    """Return the problem that a fit to these rows solves, with all rows in the order given.

    The arguments are those of `SupervisedIKDR.fit`. Raise a ValueError for misfits.
    """
    parameters.check_parameters()
    library = Device.of_array(row_source(X))
    parameters = parameters.on_host()
    sample_weight, avoid, given, groups = map(on_this_host, (sample_weight, avoid, given, groups))
    if y is None:
        raise ValueError(
            f"{type(parameters).__name__} requires y to be passed, but the target y is None: give "
            "the labels or numbers that X W is to depend on"
        )
    y, has_y = rows_with_target(on_this_host(y))
    y = column_target(y)
    names, X = getattr(X, "columns", ()), check_rows(parameters, on_this_host(row_source(X)))
    check_consistent_length(X, has_y)
    most, d = parameters.max_features, X.shape[1]
    if not (most in (None, "auto", "significant") or (is_whole(most) and 1 <= most <= d)):
        raise ValueError(
            f"`max_features` must be a whole number from 1 to {d} for {d} features, "
            f'"auto", "significant" or None; got {most!r}'
        )
    X = rows_in_memory(X, type(parameters).__name__)
    counts = (
        np.ones(len(has_y)) if sample_weight is None else check_weights(sample_weight, len(has_y))
    )
    sides = (sample_weight, avoid, given, groups)
    sample_weight, avoid, given, groups = (_of_rows(side, has_y) for side in sides)
    weights = row_weights(y, parameters.target, parameters.class_weight, sample_weight)
    if weights is not None:
        counts[has_y] = weights
    if (n := np.count_nonzero(counts[has_y])) < 2:
        raise ValueError(f"`y` counts in {n} of {len(has_y)} rows; a fit needs two or more")
    X, gaps = without_gaps(parameters.missing, X, names, counts)
    X, others = _parted(X, has_y, counts)
    avoid, given = (
        None if side is None else SideInformation.from_columns(name, side, len(y), weights)
        for name, side in (("avoid", avoid), ("given", given))
    )
    groups = None if groups is None else checked_groups(parameters, groups, len(y))
    return SupervisedProblem(parameters, X, y, weights, avoid, given, groups, library, gaps, others)


def _of_rows(values: Any, has_y: Array) -> Any:
    """Return those of values of n rows, as in a list or a frame, that belong to rows with y."""
    if values is None or has_y.all():
        return values
    check_consistent_length(values, has_y)
    rows = np.flatnonzero(has_y)
    if isinstance(values, list | tuple):
        return [values[row] for row in rows]
    return (values.iloc if hasattr(values, "iloc") else values)[rows]


def _parted(X: Any, has_y: Array, counts: Array) -> tuple[Any, RowsWithoutY | None]:
    """Return the rows of X (n, d) with y, and what the others tell, which count by `counts`."""
    if has_y.all():
        return X, None
    if is_row_source(X):
        raise ValueError(
            f"`y` has no value in {np.count_nonzero(~has_y):,} of {len(has_y):,} rows, which are "
            "too many to be read from a store at once; give X as a Dask array"
        )
    others = RowsWithoutY.of_rows(X[~has_y], counts[~has_y]) if counts[~has_y].any() else None
    return rows_in_memory(X[has_y], "a fit"), others


def checked_groups(parameters: SupervisedParameters, groups: Any, n_rows: int) -> Array:
    """Return a whole number (n,) for each group of rows; raise a ValueError for misfits."""
    if not parameters.judges_by_unseen_rows:
        raise ValueError(
            "`groups` keeps rows together where unseen rows judge a fit, and "
            f"{type(parameters).__name__} has no such rows; leave it out, or fit PredictiveIKDR"
        )
    values = column_or_1d(target_as_array(groups, "`groups`"))
    check_complete("`groups`", values)
    if len(values) != n_rows:
        raise ValueError(f"`groups` has {len(values)} values for {n_rows} rows; expected one each")
    labels, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(labels) < RULES.folds:
        raise ValueError(
            f"`groups` has {len(labels)} groups, the largest of {counts.max()} rows; {n_rows} rows "
            f"to fit need at least {RULES.folds}, so that some can judge what others are fitted to"
        )
    return np.asarray(codes, dtype=np.float64)


def limited(number: int, most: int | str | None) -> int:
    """Return a number of new features, limited by the `most` features that they may use."""
    return min(number, most) if is_whole(most) else number
