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
from ism_dask.engines.operator import Operator
from ism_dask.records.iteration import ANGLE, Solution, State, Stopping
from ism_dask.solvers import ism


@dataclass(frozen=True, kw_only=True)
class Solver:
    """A solver with its options; a subclass has `solve`.

    An estimator takes any object of a subclass. All solvers use the same engine, start at the same
    W and return the same kind of solution, of which an estimator reads W, status and history.

    Attributes
    ----------
    estimators : tuple of str
        The names of the estimators that the solver serves, by default of those by dependence.
    ends_by_change : bool
        Whether the solver may end by the change of the eigenvalues. With small steps that change is
        small from the first step on, so that other solvers than ISM end by the residual.
    """

    estimators: ClassVar[tuple[str, ...]] = (
        "SupervisedIKDR",
        "UnsupervisedIKDR",
        "SemiSupervisedIKDR",
        "AlternativeIKDR",
    )
    ends_by_change: ClassVar[bool] = False

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

    def solve(
        self,
        operator: Operator,
        q: int,
        stopping: Stopping,
        *,
        on_iteration: Callable[[State], None] | None = None,
        state: State | None = None,
    ) -> Solution:
        """Return the solution with W (d, q), from the spectral start or from `state`.

        Parameters
        ----------
        operator : Operator
            Computes J, Phi and Phi W.
        q : int
        stopping : Stopping
            Its `max_iter` and `max_seconds` are limits.
        on_iteration : callable, optional
            Called with the `State` after every iteration.
        state : State, optional
            A state whose W is the start, and whose history continues.
        """
        raise NotImplementedError

    def check_serves(self, estimator: type) -> None:
        """Raise a ValueError unless the solver serves a class of estimators."""
        names = {each.__name__ for each in estimator.__mro__}
        if names.isdisjoint(self.estimators):
            usual = [name for name, kind in SOLVERS.items() if names & {*kind.estimators}]
            raise ValueError(
                f"`solver`={solver_name(self)!r} does not serve {estimator.__name__}; take "
                f"{' or '.join(map(repr, usual))}, or {' or '.join(self.estimators)}, which it "
                "serves"
            )


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

    ends_by_change = True
    solve = staticmethod(ism.solve)  # spectral steps alone

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tol", "angle_tol"):
            if getattr(self, name) is not None:
                check_open_interval(f"`{name}`", getattr(self, name), 0, np.inf)
        if self.angle_tol is not None and self.tol is None:
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

    estimators = ("PredictiveIKDR",)

    max_iter: int = 100


SOLVERS: dict[str, type[Solver]] = {"ascent": Ascent, "ism": ISM}


def as_solver(solver: str | Solver) -> Solver:
    """Return the solver with a name in `SOLVERS`, or an object with options as it is."""
    if isinstance(solver, Solver):
        return solver
    kind: Callable[[], Solver] = SOLVERS[check_choice("`solver`", solver, SOLVERS)]
    return kind()


def solver_name(solver: Solver) -> str:
    """Return the name of a solver in `SOLVERS`, or that of its class if it is none of these."""
    names = {kind: name for name, kind in SOLVERS.items()}
    return names.get(type(solver), type(solver).__name__)
