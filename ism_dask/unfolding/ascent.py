"""Climbs from coordinates to a local maximum of the objective of an unfolding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ism_dask._types import Array
from ism_dask.unfolding.objective import CoordinateObjective

# Coordinates are stationary if no change of theirs by a share of their size changes F, to first
# order, by more than this part of that share of its terms.
STATIONARY = 1e-4
# The pairs of steps and gradients that L-BFGS remembers.
_MEMORY = 20


@dataclass(frozen=True, eq=False)
class Ascent:
    """Coordinates at the end of a climb.

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


def climb(
    objective: CoordinateObjective, Y: Array, max_iter: int, stationary: float = STATIONARY
) -> Ascent:
    """Climb from coordinates Y (n, q) by L-BFGS until they are stationary, or for so many steps."""
    size, slope = float(np.linalg.norm(Y)), np.inf

    def negative(flat: Array) -> tuple[float, Array]:
        nonlocal slope
        here = objective.at(size * flat.reshape(Y.shape))
        slope = size * float(np.linalg.norm(here.gradient) * np.linalg.norm(flat)) / here.size
        return -here.value, -size * here.gradient.ravel()

    def stop_if_stationary(_: Array) -> None:
        # L-BFGS calls this after each step, whose end it evaluated last.
        if slope <= stationary:
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
    return Ascent(size * result.x.reshape(Y.shape), slope <= stationary, int(result.nit))
