"""How sure W is: intervals for the distance from the truth and for the share of each feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils.validation import check_is_fitted

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.estimators.base import column_names
from ism_dask.estimators.supervised import SupervisedIKDR
from ism_dask.inference.refits import Refit, plan_refits
from ism_dask.linalg.subspaces import subspace_distance, subspace_shares
from ism_dask.observe.fit_events import fit_watcher

# The share of cases in which an interval is to contain the truth.
LEVEL = 0.9
# With fewer refits, the ends of the intervals would lie outside of all of them.
FEWEST_REFITS = 19


@dataclass(frozen=True, eq=False)
class BootstrapResult:
    """The result of `bootstrap`; all intervals are at 90%.

    Attributes
    ----------
    distances : (n,) array
        The distance of the space of each refit from that of W, for X in its own units:
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
        The interval of each weight. The new features of each refit are rotated within their space
        so that they are as near as possible to those of the fit.
    stability : (q,) array
        How much of each new feature the refits find again, from 0 to 1: the mean squared cosine
        between its weights and those of the new feature of a refit that is most like it.
    retention : (q,) array
        How much of each new feature lies in the space of all new features of a refit, from 0 to 1.
        Where it is high and `stability` low, new features mix with each other.
    n_converged : int
        How many refits have converged.
    feature_names : tuple of str
        The names of the d features.
    """

    distances: Array
    standardized_distances: Array
    shares: Array
    shares_low: Array
    shares_high: Array
    components: Array
    components_low: Array
    components_high: Array
    stability: Array
    retention: Array
    n_converged: int
    feature_names: tuple[str, ...]

    @property
    def n_refits(self) -> int:
        """The number of refits."""
        return len(self.distances)

    @property
    def distance_interval(self) -> tuple[float, float]:
        """The interval of the distance of W from the true subspace, for X in its own units."""
        return _ends(self.distances)

    @property
    def standardized_interval(self) -> tuple[float, float]:
        """The interval of that distance, for features in units of their standard deviation."""
        return _ends(self.standardized_distances)

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


def bootstrap(
    fitted: SupervisedIKDR,
    X: Any,
    y: Any,
    n: int = 100,
    *,
    sample_weight: Any = None,
    random_state: int | None = None,
    avoid: Any = None,
    given: Any = None,
) -> BootstrapResult:
    """Estimate how far W may be from the truth, and which features it surely contains.

    The estimator is fitted again to n resamples of the rows, each of as many rows, drawn with
    replacement. Each refit starts at W, with the kernel of the fit and its width. The refits vary
    around W as W varies around the truth, unless the fit has missed the truth altogether: no refit
    that starts at W can find that out.

    Few rows in memory are refitted side by side, on the active Dask cluster or in threads; refits
    of more rows follow each other, and each uses all workers. Rows are not copied: a refit weighs
    them. The result does not depend on the number of workers.

    Parameters
    ----------
    fitted : SupervisedIKDR
        A fitted estimator.
    X : (n_rows, d) array, frame, Dask array or opened data set
        The rows that it was fitted to, at least 20.
    y : (n_rows,) labels, or (n_rows,) or (n_rows, t) numbers
    n : int, default 100
        Number of refits, at least 19.
    sample_weight : (n_rows,) numbers, optional
        The weights of the rows in the fit.
    random_state : int, optional
        Seed of the resamples. None is a fixed seed.
    avoid, given : (n_rows,) or (n_rows, t) labels or numbers, or a frame, optional
        Those of the fit.

    Returns
    -------
    BootstrapResult

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR, bootstrap
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> fitted = SupervisedIKDR(2).fit(X, y)
    >>> result = bootstrap(fitted, X, y, n=20)
    >>> result.n_refits
    20
    """
    check_refit_count(n)
    plan = plan_refits(
        fitted,
        X,
        y,
        sample_weight=sample_weight,
        random_state=random_state,
        avoid=avoid,
        given=given,
    )
    refits: list[Refit] = []
    fit_watcher().on_refit(0, n)
    for _, refit in plan.refits(range(n)):
        refits.append(refit)
        fit_watcher().on_refit(len(refits), n)
    return summarise_refits(fitted, refits)


def check_refit_count(n: Any) -> None:
    """Raise a ValueError unless n is a number of refits from which intervals can be taken."""
    if not is_whole(n) or n < FEWEST_REFITS:
        raise ValueError(
            f"`n` is {n!r}; expected a whole number from {FEWEST_REFITS} up: fewer refits have no "
            f"interval at {100 * LEVEL:.0f}%"
        )


def summarise_refits(fitted: SupervisedIKDR, refits: Sequence[Refit]) -> BootstrapResult:
    """Return the intervals that the refits of a fitted estimator give."""
    check_is_fitted(fitted)
    # In the standardised units of the fit, so that features can be compared.
    components = [each.weights * fitted.scale_ for each in refits]
    shares = fitted.feature_importances_
    shares_low, shares_high = _share_intervals(
        shares, [*map(subspace_shares, components)], 1 / len(fitted.components_)
    )
    turned = [turned_to(fitted.components_, each) for each in components]
    low, high = _interval(np.stack([2 * fitted.components_ - each for each in turned]))
    stability = np.mean([_matches(fitted.components_, each) for each in components], axis=0)
    retention = np.mean([_retained(fitted.components_, each) for each in components], axis=0)
    return BootstrapResult(
        distances=_distances(fitted.weights_.T, [each.weights for each in refits]),
        standardized_distances=_distances(fitted.components_, components),
        shares=shares,
        shares_low=shares_low,
        shares_high=shares_high,
        components=fitted.components_,
        components_low=np.minimum(low, fitted.components_),
        components_high=np.maximum(high, fitted.components_),
        stability=stability,
        retention=retention,
        n_converged=sum(each.converged for each in refits),
        feature_names=tuple(column_names(fitted)),
    )


def _distances(rows: Array, others: Sequence[Array]) -> Array:
    """Return the distances (n,) of the span of the rows (q, d) from the spans of others."""
    return np.array([subspace_distance(rows.T, each.T) for each in others])


def _ends(distances: Array) -> tuple[float, float]:
    low, high = _interval(distances)
    return float(low), float(high)


def _interval(values: Any) -> tuple[Array, Array]:
    """Return the ends of the interval of values (n, ...) that has the next value with `LEVEL`.

    Of n + 1 values that are exchangeable, each is equally likely to be the new one. So the k-th
    smallest of n is exceeded with the probability 1 - k / (n + 1).
    """
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail], axis=0, method="weibull")
    return low, high


def _share_intervals(shares: Array, refitted: Sequence[Array], most: float) -> tuple[Array, Array]:
    """Return the ends (d,) of the intervals of shares (d,) up to `most`, by those of the refits.

    Noise adds to the shares of features that do not matter and takes from the others, in the fit
    compared with the truth as in a refit compared with the fit. So the refits are mirrored at the
    fit (the basic bootstrap). The interval contains the share itself, and ends at 0 and 1 / q.
    """
    low, high = _interval(np.stack([2 * shares - each for each in refitted]))
    return np.maximum(np.minimum(low, shares), 0.0), np.maximum(np.minimum(high, most), shares)


def turned_to(components: Array, others: Array) -> Array:
    """Return the rows of `others` (q, d), rotated to be as near as possible to `components`."""
    left, _, right = np.linalg.svd(components @ others.T)
    return np.asarray(left @ right @ others)


def _matches(components: Array, others: Array) -> Array:
    """Return the squared cosine (q,) of each row with its match among the rows of `others`.

    Each row of `others` (q, d) is the match of one row, so that their sum is largest.
    """
    cosines = _unit_rows(components) @ _unit_rows(others).T
    rows, matches = linear_sum_assignment(-(cosines**2))
    return np.asarray(cosines[rows, matches] ** 2)


def _retained(components: Array, others: Array) -> Array:
    """Return the share (q,) of the squared length of each row in the span of `others` (q, d)."""
    Q, _ = np.linalg.qr(others.T)
    return np.asarray(((_unit_rows(components) @ Q) ** 2).sum(axis=1))


def _unit_rows(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
