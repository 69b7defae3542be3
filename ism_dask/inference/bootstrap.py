"""The bootstrap: intervals from fits to resampled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ism_dask._validation import is_whole
from ism_dask.estimators.supervised import SupervisedBase
from ism_dask.inference.intervals import LEVEL, Intervals
from ism_dask.inference.refits import Refit, plan_refits
from ism_dask.observe.fit_events import fit_watcher

# With fewer refits, the ends of the intervals would lie outside of all of them.
FEWEST_REFITS = 19


@dataclass(frozen=True, eq=False)
class BootstrapResult(Intervals):
    """The result of `bootstrap`: intervals whose replicates are refits to resampled rows.

    Attributes
    ----------
    n_converged : int
        How many refits have converged.
    """

    n_converged: int

    @property
    def n_refits(self) -> int:
        """The number of refits."""
        return len(self.distances)


def bootstrap(
    fitted: SupervisedBase,
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
    >>> from ism_dask import PredictiveIKDR, bootstrap
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> fitted = PredictiveIKDR(2).fit(X, y)
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


def summarise_refits(fitted: SupervisedBase, refits: Sequence[Refit]) -> BootstrapResult:
    """Return the intervals that the refits of a fitted estimator give."""
    check_is_fitted(fitted)
    weights, here = [each.weights for each in refits], fitted.on_host()
    return BootstrapResult.of(here, weights, n_converged=sum(each.converged for each in refits))
