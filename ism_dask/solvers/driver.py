"""The one loop that all steps towards a maximum of J run in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ism_dask.records.iteration import State
from ism_dask.solvers.time_limit import TimeLimit
from ism_dask.status import Status


class Method(Protocol):
    """A way to climb: where it begins, its next step, and when it has come to an end of its own."""

    def init(self, state: State) -> State:
        """Return the state from which the steps go on."""

    def terminate(self, state: State) -> Status | None:
        """Return how the run ends at a state, or None if it goes on."""

    def step(self, state: State) -> State | None:
        """Return the state after one more step, or None if no step raises J."""


def drive(
    method: Method,
    state: State,
    max_iter: int,
    time_limit: TimeLimit,
    on_iteration: Callable[[State], None] | None = None,
) -> tuple[State, Status]:
    """Return the last state of a run, and how it ended.

    A run continues from any of its states to the same bits. The history of `state` counts towards
    `max_iter`. The first step of a fit is taken in any case, since some W has to be returned.
    """
    state = method.init(state)
    while True:
        status = method.terminate(state)
        if status is not None:
            return state, status
        if state.iteration >= max_iter:
            return state, Status.MAX_ITER
        if state.history and time_limit.is_over:
            return state, Status.OVER_CAP
        following = method.step(state)
        if following is None:
            return state, Status.STALLED
        state = stamped(following, time_limit)
        if on_iteration is not None:
            on_iteration(state)


def stamped(state: State, time_limit: TimeLimit) -> State:
    """Return a state whose last record has the seconds since the fit began."""
    record = replace(state.history[-1], seconds=time_limit.seconds)
    return replace(state, history=(*state.history[:-1], record))
