"""How a fit can end, with the meaning of each ending and advice for the user.

The module is cheap to import, for programs that show results without computing any.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ism_dask.words import count_noun, new_feature

# A new feature hardly matters to J if its eigenvalue is a smaller share of the largest one.
_LEAST_SHARE = 1e-3
# A negative eigengap is rounding if it is a smaller share of the largest eigenvalue.
_ROUNDING = 1e-6


class ComponentsWarning(UserWarning):
    """Warns of new features that hardly matter to J, or that leave out a better one."""


class WeightsWarning(ComponentsWarning):
    """Warns of columns so alike that either could have the weight of both."""


class Status(Enum):
    """How a solver run ended."""

    CONVERGED = "converged"
    TOLERANCE = "tolerance met"
    STALLED = "stalled"
    NOISE = "within noise"
    MAX_ITER = "max_iter"
    SWINGS = "swings"
    OVER_CAP = "over the cap"
    FLAT = "flat"
    APPROXIMATE = "approximate"
    UNCERTIFIED = "not certified"
    ROUNDING = "rounding"
    START = "start kept"

    def __reduce__(self) -> tuple[type[Status], tuple[str]]:
        """Return how to make the member anew: skops, unlike pickle, asks for it by this method."""
        return Status, (self.value,)

    @property
    def meaning(self) -> str:
        """The ending as a predicate, to be read after the name of an estimator."""
        return _ENDINGS[self][0]

    @property
    def advice(self) -> str:
        """Advice on what to change; empty if the run has converged."""
        return _ENDINGS[self][1]

    @property
    def is_expected(self) -> bool:
        """Whether the fit ended as it should, so that no warning is due."""
        return self in (Status.CONVERGED, Status.TOLERANCE, Status.NOISE, Status.START)


_ENDINGS = {
    Status.CONVERGED: ("converged", ""),
    Status.TOLERANCE: (
        "met `tol`, where W need not be stationary",
        "leave `tol` out to go on until it is",
    ),
    Status.STALLED: (
        "came to where J does not rise any more, though W is not stationary",
        "take a wider kernel, float64 rows or, for dependence, a smaller `tol` of the engine",
    ),
    Status.NOISE: (
        "went on until further steps raised J by less than noise does, before W was stationary",
        "take more rows; other rows would lead to another W that predicts as well",
    ),
    Status.MAX_ITER: ("did not converge", "raise `max_iter`"),
    Status.SWINGS: (
        "swings between two subspaces, each of which leads to the other",
        "take another `n_components`, kernel or width",
    ),
    Status.OVER_CAP: ("reached its time limit", "raise `max_seconds`"),
    Status.FLAT: (
        "found no slope: Phi is zero, so that J does not depend on W",
        "take a wider kernel, or check that X and `y` have anything to do with each other",
    ),
    Status.APPROXIMATE: (
        "converged as far as the approximate engine tells, but W is not stationary under the true "
        "kernel",
        "take a smaller `tol` of the engine, or engine='exact'",
    ),
    Status.START: (
        "took a simpler method's W: it predicts unseen rows better than a fitted one does, or the "
        "signal is weak",
        "where the signal is weak, add rows, or take fewer columns or `n_components`",
    ),
    Status.ROUNDING: (
        "came to coordinates that rounding lets no step improve, though they are not stationary",
        "take a `nu` nearer to 1",
    ),
    Status.UNCERTIFIED: (
        "did not solve its semi-definite program exactly: `duality_gap_` says how much is missing",
        "take fewer `n_eigenvectors` or more `n_neighbors`",
    ),
}


def components_advice(eigenvalues: Sequence[float], eigengap: float) -> str:
    """Return advice if the eigenvalues of a fit speak against its number of new features.

    Parameters
    ----------
    eigenvalues : sequence of float
        The eigenvalues of Phi, in decreasing order, one for each new feature.
    eigengap : float
        The last of them minus the largest eigenvalue outside of W.

    Returns
    -------
    str
        Empty if each feature matters and no direction outside of W matters more.
    """
    q, first = len(eigenvalues), eigenvalues[0]
    # In decreasing order, those that matter are the first.
    useful = sum(value > _LEAST_SHARE * max(first, 0.0) for value in eigenvalues)
    if useful < q:
        weak = f"feature {q} has" if useful == q - 1 else f"features {useful + 1} to {q} have"
        top = f"{eigenvalues[useful]:.3g}"
        problem = (
            f"new {weak} an eigenvalue of {top if useful == q - 1 else f'{top} or less'}, the "
            f"first has {first:.3g}: one below a thousandth of it hardly matters to J, and a "
            "negative one says that J would rise if the feature were scaled down"
        )
    elif eigengap < -_ROUNDING * first:
        outside = eigenvalues[-1] - eigengap
        useful = sum(value > outside for value in eigenvalues)
        problem = (
            f"the eigengap is {eigengap:.3g}: outside of W Phi has an eigenvalue of "
            f"{outside:.3g}, larger than that of {new_feature(useful)}"
        )
    else:
        return ""
    if not useful:
        return f"{problem}. Take another kernel or width"
    return f"{problem}. {count_noun(useful, 'new feature')} would do"


def avoidance_advice(objective: float, weight: float) -> str:
    """Return advice on a W whose J is not positive because of what a fit is to avoid."""
    return (
        f"no W was found that explains y and avoids `avoid`: J is {objective:.3g}, what X W tells "
        f"of y less `avoid_weight` ({weight:g}) times what it tells of `avoid`; expected more than "
        "0. Lower `avoid_weight`, or leave out of `avoid` what y follows from"
    )
