"""Fits to few features: the parameter `max_features` and the support that it chooses."""

from __future__ import annotations

from ism_dask._validation import is_whole
from ism_dask.estimators.preparation import FitRows, Prepared
from ism_dask.gamma.base import Dependence
from ism_dask.records.iteration import Solution
from ism_dask.rows.execution import on_this_machine
from ism_dask.solvers.support_selection import Support, stable_support

# The value of `max_features` for as many features as are stable.
AUTO = "auto"


def check_max_features(most: object, d: int) -> None:
    """Raise a ValueError unless `most` is None, "auto" or a number of d features."""
    if most is None or most == AUTO or (is_whole(most) and 1 <= most <= d):
        return
    raise ValueError(
        f"`max_features` must be a whole number from 1 to {d} for {d} features, "
        f'"{AUTO}" or None; got {most!r}'
    )


def check_enough_features(most: int | str | None, q: int) -> None:
    """Raise a ValueError if `most` features are fewer than q new ones."""
    if is_whole(most) and most < q:
        raise ValueError(
            f"`max_features` is {most}, but {q} new features need {q} features or more; raise it, "
            f"or set n_components={most}"
        )


def limited(number: int, most: int | str | None) -> int:
    """Return a number of new features, limited by the `most` features that they may use."""
    return min(number, most) if is_whole(most) else number


def choose_support(
    fit_rows: FitRows,
    prepared: Prepared,
    dependence: Dependence,
    solution: Solution,
    most: int | str,
) -> Support:
    """Return the support that half-samples choose, given the fit to all features.

    Parameters
    ----------
    fit_rows : FitRows
        The rows of that fit.
    prepared : Prepared
        The same rows, as they were prepared.
    dependence : Dependence
    solution : Solution
        Its solution.
    most : int or "auto"
        The number of features to choose.
    """
    with on_this_machine():
        return stable_support(
            fit_rows.sampled(dependence),
            prepared.feature_space,
            prepared.lift(solution.W.T).T,
            most if is_whole(most) else None,
            fit_rows.seed,
        )
