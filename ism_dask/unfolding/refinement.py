"""Local refinement of coordinates: the objective of an unfolding without the limits of a basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ism_dask._types import Array
from ism_dask.unfolding.free_axes import with_free_axes
from ism_dask.unfolding.objective import CoordinateObjective
from ism_dask.unfolding.stages import REFINEMENT, stage_store

# Coordinates are stationary if no change of theirs by a share of their size changes F, to first
# order, by more than this part of that share of its terms.
_STATIONARY = 1e-4
# The pairs of steps and gradients that L-BFGS remembers.
_MEMORY = 20
# The steps after which it forgets them.
_STEPS_TO_A_RESTART = 500


@dataclass(frozen=True, eq=False)
class Refined:
    """Coordinates after refinement.

    Attributes
    ----------
    Y : (n, q) array
    stationary : bool
        Whether no small change of Y changes F much.
    n_iter : int
    """

    Y: Array
    stationary: bool
    n_iter: int


def refine(objective: CoordinateObjective, Y: Array, max_iter: int) -> Refined:
    """Climb from coordinates Y (n, q) to a local maximum of F by L-BFGS.

    Where they are stationary, axes that hold nothing are used if F rises so, and set to 0 if not.
    It forgets its steps and gradients each 500 steps, whether or not they are saved: from there,
    another process comes to the same bits. That costs no more than a few steps in a hundred.
    """
    store, n_iter = stage_store(), 0
    if saved := store.find(REFINEMENT):
        Y, n_iter = saved["Y"], int(saved["n_iter"])
    while n_iter < max_iter:
        limit = min(_STEPS_TO_A_RESTART, max_iter - n_iter)
        climbed = _climb(objective, Y, limit)
        Y, n_iter = climbed.Y, n_iter + climbed.n_iter
        if climbed.stationary:
            Y, rises = with_free_axes(objective, Y)
            if not rises:
                return Refined(Y, True, n_iter)
        elif climbed.n_iter < limit:
            return Refined(Y, False, n_iter)
        store.save(REFINEMENT, {"Y": Y, "n_iter": n_iter})
    return Refined(Y, False, n_iter)


def _climb(objective: CoordinateObjective, Y: Array, max_iter: int) -> Refined:
    """Climb from coordinates Y (n, q) until they are stationary, or for so many steps."""
    size, slope = float(np.linalg.norm(Y)), np.inf

    def negative(flat: Array) -> tuple[float, Array]:
        nonlocal slope
        here = objective.at(size * flat.reshape(Y.shape))
        slope = size * float(np.linalg.norm(here.gradient) * np.linalg.norm(flat)) / here.size
        return -here.value, -size * here.gradient.ravel()

    def stop_if_stationary(_: Array) -> None:
        # L-BFGS calls this after each step, whose end it evaluated last.
        if slope <= _STATIONARY:
            raise StopIteration

    # The rules of L-BFGS for stopping do not know the scale of F.
    limits = {"maxiter": max_iter, "maxfun": 10 * max_iter, "gtol": 0.0, "ftol": 0.0}
    options: dict[str, Any] = {
        "method": "L-BFGS-B",
        "callback": stop_if_stationary,
        "options": {"maxcor": _MEMORY, **limits},
    }
    result = minimize(negative, Y.ravel() / size, jac=True, **options)
    negative(result.x)
    return Refined(size * result.x.reshape(Y.shape), slope <= _STATIONARY, int(result.nit))
