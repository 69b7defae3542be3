"""Select an engine for a problem, and attempt the next one if it declines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.options import EngineOptions, as_engine

_Result = TypeVar("_Result")


def first_engine(engine: str | EngineOptions, problem: Problem, q: int) -> Engine:
    """Return the first of the `candidate_engines`."""
    return candidate_engines(engine, problem, q)[0]


def candidate_engines(
    engine: str | EngineOptions, problem: Problem, q: int, *, climbs: bool = False
) -> list[Engine]:
    """Return the engines that may solve `problem` for q columns of W, the cheapest first.

    Those are the engine with that name or those options, or with "auto" all engines that do not
    refuse the problem and are advised for it. If the solver `climbs`, that is, if it needs steps
    that raise J, "auto" excludes engines whose J jumps.
    """
    return as_engine(engine).engines(problem, q, climbs=climbs)


def first_that_serves(engines: Sequence[Engine], work: Callable[[Engine], _Result]) -> _Result:
    """Return `work(engine)` for the first engine that does not decline while it runs.

    The work starts anew with each engine, because values of J from different engines are not
    comparable. The note of the engine that succeeded says why those before it declined.
    """
    note = ""
    for engine in engines:
        engine.note = note
        try:
            return work(engine)
        except (DeclinedError, MemoryError) as reason:
            if engine is engines[-1]:
                raise
            note = "; ".join([note, f"{engine.name} declined: {reason}"]).removeprefix("; ")
    raise ValueError("there is no engine to attempt it with")
