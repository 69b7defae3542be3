"""Ways to Phi: one answer, different costs."""

from __future__ import annotations

from ism_dask.checks import one_of
from ism_dask.engines.auto import attempt
from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.blocks import Blocks
from ism_dask.engines.closed import Closed
from ism_dask.engines.exact import Exact
from ism_dask.engines.features import Features
from ism_dask.engines.landmarks import Landmarks
from ism_dask.engines.padding import PaddedOperator

__all__ = [
    "ENGINES",
    "Blocks",
    "Closed",
    "DeclinedError",
    "Engine",
    "Exact",
    "Features",
    "Landmarks",
    "PaddedOperator",
    "Problem",
    "attempt",
    "candidates",
    "choose",
]

# From cheap to dear: "auto" takes the first that serves and is advised.
ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (Closed, Features, Landmarks, Blocks, Exact)
}


def choose(name: str, problem: Problem, q: int) -> Engine:
    """Return the first of the `candidates`."""
    return candidates(name, problem, q)[0]


def candidates(name: str, problem: Problem, q: int, *, climbs: bool = False) -> list[Engine]:
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
