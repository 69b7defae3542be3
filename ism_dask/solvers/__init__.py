"""Solvers of the fits: the Iterative Spectral Method, and the ascent of a prediction."""

from __future__ import annotations

from collections.abc import Callable

from ism_dask._validation import check_choice
from ism_dask.solvers.ascent import Ascent
from ism_dask.solvers.base import Solver
from ism_dask.solvers.ism import ISM

__all__ = ["ISM", "SOLVERS", "Ascent", "Solver", "as_solver"]

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


def check_serves(solver: Solver, estimator: type) -> None:
    """Raise a ValueError unless a solver serves a class of estimators."""
    names = {each.__name__ for each in estimator.__mro__}
    if names.isdisjoint(solver.estimators):
        usual = [name for name, kind in SOLVERS.items() if names & {*kind.estimators}]
        raise ValueError(
            f"`solver`={solver_name(solver)!r} does not serve {estimator.__name__}; take "
            f"{' or '.join(map(repr, usual))}, or {' or '.join(solver.estimators)}, which it "
            "serves"
        )
