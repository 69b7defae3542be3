"""Solvers as objects with their options, which estimators take beside the names of solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from ism_dask._validation import (
    check_choice,
    check_open_interval,
    check_positive_int,
    filled_options,
    positive_float,
)
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping_rule import ANGLE, Stopping
from ism_dask.solvers import dimension_growth, grassmann, ism, stiefel


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A solver with its options.

    All solvers use the same engine, start at the same W and return the same kind of solution.

    Attributes
    ----------
    solve : callable
        A function with the signature of `ism_dask.solvers.ism.solve`.
    default_max_iter : int
        The largest number of iterations if `max_iter` is None.
    ends_by_change : bool
        Whether the solver may end by the change of the eigenvalues. With small steps that change is
        small from the first step on, so the other solvers end by the residual.
    resumes : bool
        Whether the solver can continue from any of its states as if it had not been interrupted.
    """

    solve: ClassVar[Callable[..., Solution]]
    default_max_iter: ClassVar[int]
    ends_by_change: ClassVar[bool] = False
    resumes: ClassVar[bool] = False

    max_iter: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        check_limits(max_iter=self.max_iter, max_seconds=self.max_seconds)

    @property
    @abstractmethod
    def stopping(self) -> Stopping:
        """The stopping rule of these options, with the defaults of the solver."""

    @property
    def _limit(self) -> int:
        return self.default_max_iter if self.max_iter is None else self.max_iter


@dataclass(frozen=True, kw_only=True)
class ISM(Solver):
    """The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W), in turns.

    If these steps do not converge, steps along the gradient of J follow. Options that are None are
    those of the estimator.

    Parameters
    ----------
    tol : float, optional
        None: iterate until W is stationary. A number: the published rule, which stops when the
        change of the eigenvalues, relative to their norm, is below `tol`; the paper uses 0.01.
    angle_tol : float, optional
        With a number as `tol`: stop only if the sine of the largest angle between successive
        subspaces is also below `angle_tol`.
    max_iter : int, optional
        Maximum number of iterations; default 300.
    max_seconds : float, optional
        Time limit in seconds.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> from ism_dask.solvers import ISM
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2, solver=ISM(tol=0.01)).fit(X, y).tolerance_
    0.01
    """

    tol: float | None = None
    angle_tol: float | None = None

    solve = staticmethod(ism.solve)
    default_max_iter = 300
    ends_by_change = True
    resumes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(tol=self.tol, angle_tol=self.angle_tol)

    @property
    def stopping(self) -> Stopping:
        """The stopping rule of these options."""
        return Stopping(self.tol, self.angle_tol, self._limit, self.max_seconds)


class _EndsByResidual(Solver):
    """A solver that ends when the residual is small or J stalls."""

    @property
    def stopping(self) -> Stopping:
        """The stopping rule of these options."""
        return Stopping(None, max_iter=self._limit, max_seconds=self.max_seconds)


@dataclass(frozen=True, kw_only=True)
class Stiefel(_EndsByResidual):
    """A curvilinear search on the Stiefel manifold.

    Options that are None are those of the estimator.

    Parameters
    ----------
    max_iter : int, optional
        Maximum number of steps; default 2000.
    max_seconds : float, optional
        Time limit in seconds.
    """

    solve = staticmethod(stiefel.solve)
    default_max_iter = 2000


@dataclass(frozen=True, kw_only=True)
class Grassmann(_EndsByResidual):
    """A trust region on the Grassmann manifold, by pymanopt.

    Options that are None are those of the estimator.

    Parameters
    ----------
    max_iter : int, optional
        Maximum number of quadratic models; default 500.
    max_seconds : float, optional
        Time limit in seconds.
    """

    solve = staticmethod(grassmann.solve)
    default_max_iter = 500


@dataclass(frozen=True, kw_only=True)
class DimensionGrowth(_EndsByResidual):
    """One column of W after the other, each in the complement of those before it.

    Options that are None are those of the estimator.

    Parameters
    ----------
    max_iter : int, optional
        Maximum number of steps of each column; default 1000.
    max_seconds : float, optional
        Time limit in seconds.
    """

    solve = staticmethod(dimension_growth.solve)
    default_max_iter = 1000


SOLVERS: dict[str, type[Solver]] = {
    "ism": ISM,
    "stiefel": Stiefel,
    "grassmann": Grassmann,
    "dimension-growth": DimensionGrowth,
}


def as_solver(
    solver: str | Solver,
    *,
    tol: float | None = None,
    angle_tol: float | None = None,
    max_iter: int | None = None,
    max_seconds: float | None = None,
) -> Solver:
    """Return the solver with a name or the given one, completed by the limits of an estimator.

    Parameters
    ----------
    solver : str or Solver
        A name in `SOLVERS`, or an object with options.
    tol, angle_tol, max_iter, max_seconds
        Options as in `ISM`, for those that `solver` has and leaves None.

    Raises
    ------
    ValueError
        If there is no such solver, a limit is out of range, or `solver` and an argument both give
        the same option.
    """
    limits: dict[str, Any] = {
        "tol": tol,
        "angle_tol": angle_tol,
        "max_iter": max_iter,
        "max_seconds": max_seconds,
    }
    check_limits(**limits)
    if not isinstance(solver, Solver):
        solver = SOLVERS[check_choice("`solver`", solver, SOLVERS)]()
    filled = filled_options("solver", solver, **limits)
    limits |= vars(filled)
    if limits["angle_tol"] is not None and limits["tol"] is None:
        raise ValueError(
            f"`angle_tol` goes with `tol`, which is None: then the angle has to be below "
            f"{ANGLE:g} in any case; got {limits['angle_tol']!r}"
        )
    return filled


def check_limits(
    tol: object = None,
    angle_tol: object = None,
    max_iter: object = None,
    max_seconds: object = None,
) -> None:
    """Raise a ValueError that names the first limit, if any, that is neither None nor in range."""
    if tol is not None:
        check_open_interval("`tol`", tol, 0, np.inf)
    if angle_tol is not None and not (isinstance(angle_tol, Real) and float(angle_tol) > 0):
        raise ValueError(f"`angle_tol` must be None or above 0; got {angle_tol!r}")
    if max_iter is not None:
        check_positive_int("`max_iter`", max_iter)
    if max_seconds is not None:
        positive_float("`max_seconds`", max_seconds, "or None")
