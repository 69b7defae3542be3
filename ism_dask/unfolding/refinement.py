"""Local refinement of coordinates: the objective of an unfolding without the limits of a basis."""

from __future__ import annotations

from ism_dask._types import Array
from ism_dask.records.partial_results import result_store
from ism_dask.unfolding.ascent import Ascent, climb
from ism_dask.unfolding.free_axes import with_free_axes_used, without_free_axes
from ism_dask.unfolding.objective import CoordinateObjective

REFINEMENT = "refinement"
# The steps after which L-BFGS forgets the last ones.
_STEPS_TO_A_RESTART = 500


def refine(objective: CoordinateObjective, Y: Array, max_iter: int) -> Ascent:
    """Climb from coordinates Y (n, q) to a local maximum of F by L-BFGS.

    It forgets its steps and gradients each 500 steps, whether or not they are saved: from there,
    another process comes to the same bits. That costs no more than a few steps in a hundred.

    There and at the end, axes that hold nothing are used if F rises so. Those that do not matter to
    F at the end are set to 0.
    """
    store, n_iter = result_store(), 0
    if store is not None and (saved := store.find(REFINEMENT)):
        Y, n_iter = saved["Y"], int(saved["n_iter"])
    while n_iter < max_iter:
        limit = min(_STEPS_TO_A_RESTART, max_iter - n_iter)
        climbed = climb(objective, Y, limit)
        n_iter += climbed.n_iter
        tried = with_free_axes_used(objective, climbed, max_iter - n_iter)
        Y, n_iter = tried.Y, n_iter + tried.n_iter
        if tried.stationary:
            Y = without_free_axes(objective, Y)
        if Y is climbed.Y and (tried.stationary or climbed.n_iter < limit):
            return Ascent(Y, tried.stationary, n_iter)
        if store is not None:
            store.save(REFINEMENT, {"Y": Y, "n_iter": n_iter})
    return Ascent(Y, False, n_iter)
