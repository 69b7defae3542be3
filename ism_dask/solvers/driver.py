"""The one loop that all steps towards a maximum of J run in, and the time limit of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ism_dask.records.iteration import State
from ism_dask.status import Status


class TimeLimit:
    """A clock of one fit, with the seconds that it may take, and those before an interruption."""

    def __init__(self, max_seconds: float | None = None, earlier: float = 0.0) -> None:
        self.max_seconds = max_seconds
        self._began = time.perf_counter() - earlier

    @property
    def seconds(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the fit has taken all of its seconds."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds


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
