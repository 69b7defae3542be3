"""Select an engine for a problem: by its name, or the cheapest that serves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ism_dask._validation import one_of
from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.constant import ConstantSlope
from ism_dask.engines.exact import Exact
from ism_dask.engines.lowrank.landmarks import Landmarks
from ism_dask.engines.lowrank.monomials import MonomialEngine
from ism_dask.engines.random_blocks import Blocks

_Result = TypeVar("_Result")


# From cheap to dear: "auto" takes the first that serves and is advised.
ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (ConstantSlope, MonomialEngine, Landmarks, Blocks, Exact)
}


def first_engine(name: str, problem: Problem, q: int) -> Engine:
    """Return the first of the `candidates`."""
    return candidate_engines(name, problem, q)[0]


def candidate_engines(name: str, problem: Problem, q: int, *, climbs: bool = False) -> list[Engine]:
    """Return the engine called `name` for q columns of W, or with "auto" those to `attempt`.

    These are, from cheap to dear, the ones that serve the problem and are advised for it. Where W
    `climbs`, J must not jump.
    """
    if one_of("`engine`", name, ["auto", *ENGINES]) == "auto":
        kinds = [kind for kind in ENGINES.values() if not (climbs and kind.jumps)]
        serving = [kind for kind in kinds if kind.refusal(problem, q) is None]
        return [kind(problem, q) for kind in serving if kind.advised(problem, q)]
    reason = ENGINES[name].refusal(problem, q)
    if reason:
        raise ValueError(
            f"`engine`={name!r} cannot serve this problem: {reason}; try engine='auto'"
        )
    return [ENGINES[name](problem, q)]


def first_that_serves(engines: Sequence[Engine], work: Callable[[Engine], _Result]) -> _Result:
    """Return `work(engine)` of the first engine that does not decline on the way.

    The work begins anew with each: what one engine has of J cannot be held against another's. The
    note of the engine that did it says why those before it did not.
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
