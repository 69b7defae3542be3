"""Registry of solvers: the Iterative Spectral Method, and those that it is compared with.

All solvers use the same engine, start at the same W and return the same kind of solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ism_dask._validation import check_choice
from ism_dask.records.iteration import Solution
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers import dimension_growth, grassmann, ism, stiefel

__all__ = ["ASCENT", "ROUGH_ASCENT", "SOLVERS", "Solver", "as_solver"]


@dataclass(frozen=True)
class Solver:
    """A solver with its default limits and its properties.

    Attributes
    ----------
    solve : callable
        A function with the signature of `ism_dask.solvers.ism.solve`.
    max_iter : int
        The default for the largest number of iterations.
    about : str
        A short description for users.
    ends_by_change : bool
        Whether the solver may end by the change of the eigenvalues. With small steps that change is
        small from the first step on, so the other solvers end by the residual.
    resumes : bool
        Whether the solver can continue from any of its states as if it had not been interrupted.
    """

    solve: Callable[..., Solution]
    max_iter: int
    about: str
    ends_by_change: bool = False
    resumes: bool = False

    def stopping(
        self,
        tol: float | None = None,
        angle_tol: float | None = None,
        max_iter: int | None = None,
        max_seconds: float | None = None,
    ) -> Stopping:
        """Return the stopping rule for these limits, with the defaults of this solver."""
        most = self.max_iter if max_iter is None else max_iter
        if self.ends_by_change:
            return Stopping(tol, angle_tol, most, max_seconds)
        return Stopping(None, max_iter=most, max_seconds=max_seconds)


SOLVERS: dict[str, Solver] = {
    "ism": Solver(
        ism.solve, 300, "the Iterative Spectral Method", ends_by_change=True, resumes=True
    ),
    "stiefel": Solver(stiefel.solve, 2000, "a curvilinear search on the Stiefel manifold"),
    "grassmann": Solver(grassmann.solve, 500, "a trust region on the Grassmann manifold"),
    "dimension-growth": Solver(dimension_growth.solve, 1000, "one column at a time"),
}

# Gradient ascent, which takes over if the spectral iteration does not converge.
ASCENT = Solver(stiefel.solve_fully, 300, "steps along the slope of J")
# The same to a loose tolerance, which precedes it if tiles are in single precision.
ROUGH_ASCENT = Solver(stiefel.solve_roughly, 300, "the first steps along the slope of J")


def as_solver(name: str) -> Solver:
    """Return the solver of that name."""
    return SOLVERS[check_choice("`solver`", name, SOLVERS)]
