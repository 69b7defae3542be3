"""The rule by which an engine is chosen, and what happens where the choice proves wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.solver import Evaluation
from ism_dask.typing import Array

_Answer = TypeVar("_Answer")


class Auto(Engine):
    """The cheapest engine that serves and is advised; the next one where that declines.

    Parameters
    ----------
    problem : Problem
    q : int
    kinds : sequence of Engine types
        From cheap to dear; the last serves every problem.
    """

    def __init__(self, problem: Problem, q: int, kinds: Sequence[type[Engine]]) -> None:
        super().__init__(problem, q)
        self._kinds = [
            kind for kind in kinds if kind.refusal(problem, q) is None and kind.advised(problem, q)
        ]
        self._engine = self._kinds[0](problem, q)

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Refuse nothing."""
        return None

    @property
    def serving(self) -> Engine:
        """The engine that answers now."""
        return self._engine

    def phi0(self) -> Array:
        """Return the matrix of the start."""
        return self._ask(lambda engine: engine.phi0())

    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi at W."""
        return self._ask(lambda engine: engine.phi(W))

    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi W."""
        return self._ask(lambda engine: engine.gradient(W))

    def objective(self, W: Array) -> float:
        """Return J at W."""
        return self._ask(lambda engine: engine.objective(W))

    def _ask(self, question: Callable[[Engine], _Answer]) -> _Answer:
        while True:
            try:
                return question(self._engine)
            except (DeclinedError, MemoryError) as reason:
                if len(self._kinds) == 1:
                    raise
                self._fall_back(reason)

    def _fall_back(self, reason: Exception) -> None:
        declined = self._kinds.pop(0)
        self._engine = self._kinds[0](self.problem, self.q)
        self._engine.note = f"{declined.name} declined: {reason}"
