"""Solvers as objects with their options, which estimators take beside the names of solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ism_dask._validation import (
    check_choice,
    check_open_interval,
    check_positive_int,
    positive_float,
)
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping_rule import ANGLE, Stopping
from ism_dask.solvers import dimension_growth, grassmann, ism, stiefel
from ism_dask.solvers.solver_log import with_log


@dataclass(frozen=True, kw_only=True)
class Solver:
    """A solver with its options.

    All solvers use the same engine, start at the same W and return the same kind of solution.

    Attributes
    ----------
    solve : callable
        A function with the signature of `ism_dask.solvers.ism.solve`.
    ends_by_change : bool
        Whether the solver may end by the change of the eigenvalues. With small steps that change is
        small from the first step on, so the other solvers end by the residual.
    resumes : bool
        Whether the solver can continue from any of its states as if it had not been interrupted.
    """

    solve: ClassVar[Callable[..., Solution]]
    ends_by_change: ClassVar[bool] = False
    resumes: ClassVar[bool] = False

    max_iter: int
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        check_positive_int("`max_iter`", self.max_iter)
        if self.max_seconds is not None:
            positive_float("`max_seconds`", self.max_seconds, "or None")

    @property
    def stopping(self) -> Stopping:
        """The stopping rule of these options: to stop when W is stationary, or at a limit."""
        return Stopping(None, max_iter=self.max_iter, max_seconds=self.max_seconds)


@dataclass(frozen=True, kw_only=True)
class ISM(Solver):
    """The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W), in turns.

    If these steps do not converge, steps along the gradient of J follow.

    Parameters
    ----------
    tol : float or None, default None
        None: iterate until W is stationary, as `converged_` then states. A number: the published
        rule, which stops when the change of the eigenvalues, relative to their norm, is below
        `tol`; the paper uses 0.01. This rule can stop when the iteration is merely slow:
        `converged_` is then False and `status_` is `Status.TOLERANCE`.
    angle_tol : float, optional
        With a number as `tol`: stop only if the sine of the largest angle between successive
        subspaces is also below `angle_tol`.
    max_iter : int, default 300
        Maximum number of iterations, steps along the gradient of J included.
    max_seconds : float, optional
        Time limit: stop after this many seconds, and keep the best W so far.

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
    max_iter: int = 300

    solve = staticmethod(ism.solve)
    ends_by_change = True
    resumes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tol is not None:
            check_open_interval("`tol`", self.tol, 0, np.inf)
        if self.angle_tol is not None:
            check_open_interval("`angle_tol`", self.angle_tol, 0, np.inf)
            if self.tol is None:
                raise ValueError(
                    f"`angle_tol` goes with `tol`, which is None: then the angle has to be below "
                    f"{ANGLE:g} in any case; got {self.angle_tol!r}"
                )

    @property
    def stopping(self) -> Stopping:
        """The stopping rule of these options."""
        return Stopping(self.tol, self.angle_tol, self.max_iter, self.max_seconds)


@dataclass(frozen=True, kw_only=True)
class Ascent(Solver):
    """Preconditioned L-BFGS steps, the solver of the prediction criterion.

    Parameters
    ----------
    max_iter : int, default 100
        Maximum number of steps on all rows.
    max_seconds : float, optional
        Time limit in seconds of these steps.
    """

    max_iter: int = 100


@dataclass(frozen=True, kw_only=True)
class Stiefel(Solver):
    """A curvilinear search on the Stiefel manifold.

    Parameters
    ----------
    max_iter : int, default 2000
        Maximum number of steps.
    max_seconds : float, optional
        Time limit in seconds.
    """

    max_iter: int = 2000

    solve = staticmethod(with_log(stiefel.solve))


@dataclass(frozen=True, kw_only=True)
class Grassmann(Solver):
    """A trust region on the Grassmann manifold, by pymanopt.

    Parameters
    ----------
    max_iter : int, default 500
        Maximum number of quadratic models.
    max_seconds : float, optional
        Time limit in seconds.
    """

    max_iter: int = 500

    solve = staticmethod(with_log(grassmann.solve))


@dataclass(frozen=True, kw_only=True)
class DimensionGrowth(Solver):
    """One column of W after the other, each in the complement of those before it.

    Parameters
    ----------
    max_iter : int, default 1000
        Maximum number of steps of each column.
    max_seconds : float, optional
        Time limit in seconds.
    """

    max_iter: int = 1000

    solve = staticmethod(with_log(dimension_growth.solve))


SOLVERS: dict[str, Callable[..., Solver]] = {
    "ascent": Ascent,
    "ism": ISM,
    "stiefel": Stiefel,
    "grassmann": Grassmann,
    "dimension-growth": DimensionGrowth,
}


def as_solver(solver: str | Solver) -> Solver:
    """Return the solver with a name in `SOLVERS`, or an object with options as it is."""
    if isinstance(solver, Solver):
        return solver
    return SOLVERS[check_choice("`solver`", solver, SOLVERS)]()


def solver_name(solver: Solver) -> str:
    """Return the name of a solver in `SOLVERS`, or that of its class if it is none of these."""
    names = {kind: name for name, kind in SOLVERS.items()}
    return names.get(type(solver), type(solver).__name__)
