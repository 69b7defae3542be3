"""Ways to Phi: one answer, different costs."""

from __future__ import annotations

from ism_dask.engines.base import Engine, Problem
from ism_dask.engines.closed import Closed
from ism_dask.engines.exact import Exact

__all__ = ["ENGINES", "Closed", "Engine", "Exact", "Problem", "choose"]

# From cheap to dear: "auto" takes the first that does not refuse.
ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Closed, Exact)}


def choose(name: str, problem: Problem) -> Engine:
    """Return the engine called `name` for `problem`, or with "auto" the cheapest that serves it."""
    if name == "auto":
        return next(kind for kind in ENGINES.values() if not kind.refusal(problem))(problem)
    if name not in ENGINES:
        known = ", ".join(["auto", *ENGINES])
        raise ValueError(f"`engine` must be one of {known}; got {name!r}")
    reason = ENGINES[name].refusal(problem)
    if reason:
        raise ValueError(
            f"`engine`={name!r} cannot serve this problem: {reason}; try engine='auto'"
        )
    return ENGINES[name](problem)
