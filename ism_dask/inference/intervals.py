"""How sure W is: intervals for the distance from the truth and for the share of each feature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from ism_dask._types import Array
from ism_dask._validation import check_open_interval
from ism_dask.estimators.base import column_names
from ism_dask.estimators.fitted_maximum import FittedMaximum
from ism_dask.estimators.predictive import PredictiveIKDR
from ism_dask.estimators.problem import SupervisedProblem
from ism_dask.inference.columns import ColumnTests
from ism_dask.linalg.cholesky import reused_matrices
from ism_dask.linalg.subspaces import subspace_distance, subspace_shares
from ism_dask.selection.rules import RULES
from ism_dask.threads import single_threaded_blas

# The share of cases in which an interval is to contain the truth.
_LEVEL = 0.9
# Draws of W.
_DRAWS = 999
# With fewer rows for each free weight, noise turns W by more than the curvature tells.
_ROWS_PER_WEIGHT = 5
# Along a direction with this share of the mean variance, noise alone decides how far W turns.
_DEPENDENT = 1e-5


@dataclass(frozen=True, eq=False)
class Intervals:
    """How sure W is; all intervals are at 90%.

    They come from W that vary around that of the fit, as it varies around the truth: "replicates".

    Attributes
    ----------
    distances : (n,) array
        The distance of the space of each replicate from that of W, for X in its own units:
        `|P - P'|_F / sqrt(2 q)` of the projectors, from 0 (equal) to 1 (orthogonal).
    standardized_distances : (n,) array
        The same for features in units of their standard deviation. They are to be preferred if the
        features have different units, such as metres and years.
    shares : (d,) array
        The share of each feature in the space of the new ones, `feature_importances_`.
    shares_low, shares_high : (d,) arrays
        The interval of each share.
    components : (q, d) array
        The weights of the new features, `components_`.
    components_low, components_high : (q, d) arrays
        The interval of each weight. The new features of each replicate are rotated within their
        space so that they are as near as possible to those of the fit.
    standard_errors : (q, d) array
        The standard error of each weight, after the same rotation.
    pvalues : (d,) array
        The p-value of the hypothesis that y does not depend on a feature beyond the others: that
        all its true weights are 0. Features that do not vary have 1. No p-value is below that of
        the hypothesis that unseen rows are not predicted.
    stability : (q,) array
        How much of each new feature the replicates find again, from 0 to 1: the mean squared cosine
        between its weights and those of the new feature of a replicate that is most like it.
    retention : (q,) array
        How much of each new feature lies in the space of all new features of a replicate, from 0
        to 1. Where it is high and `stability` low, new features mix with each other.
    feature_names : tuple of str
        The names of the d features.
    doubts : tuple of str
        Why the intervals may be too short; empty if nothing speaks against them.
    """

    distances: Array = field(repr=False)
    standardized_distances: Array = field(repr=False)
    shares: Array
    shares_low: Array
    shares_high: Array
    components: Array
    components_low: Array
    components_high: Array
    standard_errors: Array
    pvalues: Array
    stability: Array
    retention: Array
    feature_names: tuple[str, ...]
    doubts: tuple[str, ...] = ()

    @classmethod
    def from_replicates(
        cls,
        fitted: PredictiveIKDR,
        replicates: Sequence[Array],
        pvalues: Array,
        doubts: tuple[str, ...],
    ) -> Intervals:
        """Return the intervals that replicates (q, d), for X in its own units, give."""
        W, shares = fitted.components_, fitted.feature_importances_
        # In the standardised units of the fit, so that features can be compared.
        standardised = [each * fitted.scale_ for each in replicates]

        # Noise adds to the shares of features that do not matter and takes from the others, in the
        # fit compared with the truth as in a replicate compared with the fit. So replicates are
        # mirrored at the fit (the "basic" interval of the bootstrap). No share exceeds 1 / q.
        low, high = _interval(2 * shares - [subspace_shares(each) for each in standardised])
        shares_low = np.maximum(np.minimum(low, shares), 0.0)
        shares_high = np.maximum(np.minimum(high, 1 / len(W)), shares)

        # Only the space of a replicate is determined: its basis is turned towards W.
        bases = [np.linalg.qr(each.T)[0] for each in standardised]
        rotated = np.stack([(Q @ orthogonal_procrustes(Q, W.T)[0]).T for Q in bases])
        low, high = _interval(2 * W - rotated)

        # Each new feature of a replicate is the match of one of W, so that the sum of their squared
        # cosines is largest.
        cosines = [normalize(W) @ normalize(each).T for each in standardised]
        matched = [(each**2)[linear_sum_assignment(-(each**2))] for each in cosines]
        within = [((normalize(W) @ Q) ** 2).sum(axis=1) for Q in bases]
        return cls(
            distances=_distances(fitted.weights_.T, replicates),
            standardized_distances=_distances(W, standardised),
            shares=shares,
            shares_low=shares_low,
            shares_high=shares_high,
            components=W,
            components_low=np.minimum(low, W),
            components_high=np.maximum(high, W),
            standard_errors=rotated.std(axis=0),
            pvalues=pvalues,
            stability=np.mean(matched, axis=0),
            retention=np.mean(within, axis=0),
            feature_names=tuple(column_names(fitted)),
            doubts=doubts,
        )

    @property
    def distance_interval(self) -> tuple[float, float]:
        """The interval of the distance of W from the true subspace, for X in its own units."""
        low, high = _interval(self.distances)
        return float(low), float(high)

    @property
    def standardized_interval(self) -> tuple[float, float]:
        """The interval of that distance, for features in units of their standard deviation."""
        low, high = _interval(self.standardized_distances)
        return float(low), float(high)

    @property
    def adjusted_pvalues(self) -> Array:
        """The p-values (d,) adjusted for the number of features (Benjamini and Yekutieli)."""
        return np.asarray(stats.false_discovery_control(self.pvalues, method="by"))

    def get_support(self, fdr: float = 0.1) -> Array:
        """Return the mask (d,) of the features that y depends on, beyond the others.

        On average at most a share `fdr` of them is false.
        """
        check_open_interval("`fdr`", fdr, 0, 1, "such as 0.1")
        return self.adjusted_pvalues <= fdr

    @property
    def separated(self) -> Array:
        """The indices (k,) of the features that stand clear of all others, largest share first.

        The intervals of their shares lie above those of all other features. If several sets of
        features do, it is the one with the widest gap; if none does, it is empty.
        """
        order = np.argsort(-self.shares, kind="stable")
        lows = np.minimum.accumulate(self.shares_low[order])[:-1]
        highs = np.maximum.accumulate(self.shares_high[order][::-1])[::-1][1:]
        gaps = lows - highs
        count = int(np.argmax(gaps)) + 1
        return order[:count] if gaps[count - 1] > 0 else order[:0]


def intervals(
    fitted: PredictiveIKDR,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    avoid: Any = None,
    given: Any = None,
    groups: Any = None,
) -> Intervals:
    """Estimate how far W may be from the truth, and which features it surely contains.

    It reads up to 10,000 rows of a fit of `PredictiveIKDR`: the curvature of J at W and the
    influence of each row on its slope tell how W varies from one sample of rows to another (the
    "sandwich").

    Parameters
    ----------
    fitted : PredictiveIKDR
        A fitted estimator that has converged, with up to 1,000 free weights: (d - q) q.
    X : (n_rows, d) array, frame, Dask array or opened data set
        The rows that it was fitted to, at least 20 different ones.
    y : (n_rows,) labels, or (n_rows,) or (n_rows, t) numbers
    sample_weight : (n_rows,) numbers, optional
        The weights of the rows in the fit.
    avoid, given : (n_rows,) or (n_rows, t) labels or numbers, or a frame, optional
        Those of the fit.
    groups : (n_rows,) labels, optional
        Those of the fit. Rows of one group count as one observation.

    Returns
    -------
    Intervals

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import PredictiveIKDR, intervals
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> fitted = PredictiveIKDR(2).fit(X, y)
    >>> sure = intervals(fitted, X, y)
    >>> bool((sure.shares_low <= sure.shares).all())
    True
    """
    if not isinstance(fitted, PredictiveIKDR):
        raise TypeError(
            f"`fitted` is a {type(fitted).__name__}; expected a fitted PredictiveIKDR: `intervals` "
            "takes the curvature of the prediction of y"
        )
    check_is_fitted(fitted)
    if not fitted.converged_:
        raise ValueError(
            f"the fit has not converged ({fitted.status_.value}): W is not a maximum of J, which "
            f"`intervals` needs; {fitted.status_.advice}"
        )
    sides = {"avoid": avoid, "given": given, "groups": groups}
    problem = fitted.problem_of_fit(X, y, sample_weight, what="`intervals`", **sides)
    if len(problem.y) < RULES.fewest_rows:
        raise ValueError(
            f"the fit had {len(problem.y)} rows; `intervals` needs {RULES.fewest_rows} or more"
        )
    with single_threaded_blas(), reused_matrices():
        maximum = FittedMaximum.of_problem(problem)
        is_free = maximum.tangents.size > 0
        if not is_free and not fitted.report_.has_few_features:
            raise ValueError(
                f"W spans all {len(fitted.components_)} features that it may use, so that no "
                "weight is free; `intervals` needs fewer new features, or a larger `max_features`"
            )
        spread, axes = np.linalg.eigh(maximum.turn_covariance if is_free else np.zeros((0, 0)))
        normal = np.random.default_rng(0).normal(size=(_DRAWS, len(spread)))
        turns = normal * np.sqrt(np.maximum(spread, 0.0)) @ axes.T
        prepared = maximum.rows.prepared
        turned = [prepared.lift(maximum.tangents.turned(each).T) for each in turns]
        replicates = [each / prepared.affine.scale for each in turned]
        tests = ColumnTests(maximum, problem.parameters.components_)
        pvalues, trials = tests.pvalues(), fitted.report_.trials
        if trials and trials[0].error != 0.0:
            # None is below that of the hypothesis that W predicts nothing of y in unseen rows.
            pvalues = np.maximum(pvalues, stats.norm.sf(trials[0].explained / trials[0].error))
        doubts = tuple(_doubts(problem, tests))
    return Intervals.from_replicates(fitted.on_host(), replicates, pvalues, doubts)


def _doubts(problem: SupervisedProblem, tests: ColumnTests) -> Iterator[str]:
    """Yield why intervals of a fit may be too short."""
    fitted = problem.parameters
    rows, kind, p = len(problem.y), "rows", tests.maximum.tangents.size
    if problem.groups is None:
        yield from _serial_doubts(problem, tests)
    else:
        rows, kind = len(np.unique(problem.groups)), "groups of rows"
    if rows < _ROWS_PER_WEIGHT * p:
        yield (
            f"there are {rows:,} {kind} for {p:,} free weights; the curvature tells how far noise "
            f"turns W from about {_ROWS_PER_WEIGHT} for each. Take fewer features, old or new"
        )
    X = np.concatenate([block.X for block in tests.maximum.blocks])
    variances = np.linalg.eigvalsh(np.atleast_2d(np.cov(X, rowvar=False)))
    directions = np.count_nonzero(variances > _DEPENDENT * variances.mean())
    if directions < (d := np.count_nonzero(tests.maximum.rows.prepared.affine.varying)):
        yield (
            f"the {d:,} features vary in {directions:,} directions only: some follow from others, "
            "as a sum does, and other shares go with the same X W. Leave such features out"
        )
    if advice := fitted.report_.weights_advice:
        yield f"{advice}: shares and p-values are arbitrary between the two"
    if fitted.report_.has_few_features:
        yield (
            "these rows have chosen few features, and the intervals are those of the weights of "
            "these alone. Fit with max_features=None for those of all"
        )
    trials = fitted.report_.trials
    if trials and trials[0].explained <= RULES.weak * trials[0].error:
        share = f"{trials[0].explained:.2g} +- {trials[0].error:.2g}"
        yield (
            f"the share of y that is explained in unseen rows is {share}, less than "
            f"{RULES.weak:g} times its error: W may follow noise. Take more rows"
        )


def _serial_doubts(problem: SupervisedProblem, tests: ColumnTests) -> Iterator[str]:
    """Yield a doubt if neighbouring rows are correlated: the slope then varies more than estimated.

    Correlation in X alone, or in the errors of y alone, does not have this effect.
    """
    maximum = tests.maximum
    influences = maximum.curvature[1] if maximum.tangents.size else tests.influences()
    numbers = np.concatenate([block.numbers for block in maximum.blocks])
    places = numbers if problem.places is None else problem.places[numbers]
    # Rows that are sorted by y, as by class, may be independent at each y.
    keys = maximum.target.keys[numbers]
    similar = np.searchsorted(np.sort(keys), keys) // int(np.sqrt(len(keys)))
    members = (similar[:, None] == np.unique(similar)).astype(np.float64)
    means = members.T @ influences / members.sum(axis=0)[:, None]
    some = (influences - members @ means)[:, : len(keys) // _ROWS_PER_WEIGHT]
    turns = np.linalg.qr(some)[0][np.argsort(places)]  # as if no two directions correlated
    products = (turns[1:] * turns[:-1]).sum(axis=1)
    share, error = np.array([products.sum(), np.linalg.norm(products)]) / turns.shape[1]
    if share > stats.norm.isf(RULES.chance) * error:
        yield (
            f"neighbouring rows turn W alike: their influences correlate by {share:.2f} +- "
            f"{error:.2f}, expected 0 for independent rows. If the rows are in order of time, give "
            "`groups` of consecutive rows, such as weeks, to the fit and to `intervals`"
        )


def _distances(rows: Array, others: Sequence[Array]) -> Array:
    """Return the distances (n,) of the span of the rows (q, d) from the spans of others."""
    return np.array([subspace_distance(rows.T, each.T) for each in others])


def _interval(values: Any) -> tuple[Array, Array]:
    """Return the ends of the interval of values (n, ...) that has the next value with `_LEVEL`.

    Of n + 1 values that are exchangeable, each is equally likely to be the new one. So the k-th
    smallest of n is exceeded with the probability 1 - k / (n + 1).
    """
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail], axis=0, method="weibull")
    return low, high
