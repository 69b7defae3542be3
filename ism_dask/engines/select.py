"""Select an engine for a problem: by its name, or the cheapest one that can solve it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from ism_dask._validation import check_choice
from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.constant import ConstantSlope
from ism_dask.engines.exact import Exact
from ism_dask.engines.lowrank.landmark_engine import Landmarks
from ism_dask.engines.lowrank.monomial_engine import MonomialEngine
from ism_dask.engines.random_blocks import Blocks

_Result = TypeVar("_Result")


# From cheap to expensive: "auto" takes the first that does not refuse and is advised.
ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (ConstantSlope, MonomialEngine, Landmarks, Blocks, Exact)
}


# Earlier names of engines, which warn for one version.
_OLD_NAMES = {"features": "monomials"}


def current_name(name: str) -> str:
    """Return the present name of an engine, and warn of an old one."""
    if name in _OLD_NAMES:
        warnings.warn(
            f"the engine {name!r} is now called {_OLD_NAMES[name]!r}; the old name goes with the "
            "next version",
            FutureWarning,
            stacklevel=2,
        )
    return _OLD_NAMES.get(name, name)


def first_engine(name: str, problem: Problem, q: int) -> Engine:
    """Return the first of the `candidate_engines`."""
    return candidate_engines(name, problem, q)[0]


def candidate_engines(name: str, problem: Problem, q: int, *, climbs: bool = False) -> list[Engine]:
    """Return the engine called `name` for q columns of W, or with "auto" all that may be tried.

    Those are, from cheap to expensive, the engines that do not refuse the problem and are
    advised for it. If the solver `climbs`, that is, if it needs steps that raise J, engines whose
    J jumps are excluded.
    """
    name = current_name(name)
    if check_choice("`engine`", name, ["auto", *ENGINES]) == "auto":
        kinds = [kind for kind in ENGINES.values() if not (climbs and kind.jumps)]
        willing = [kind for kind in kinds if kind.refusal(problem, q) is None]
        return [kind(problem, q) for kind in willing if kind.advised(problem, q)]
    reason = ENGINES[name].refusal(problem, q)
    if reason:
        raise ValueError(
            f"`engine`={name!r} cannot serve this problem: {reason}; try engine='auto'"
        )
    return [ENGINES[name](problem, q)]


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
