"""What is done where an engine, at work, finds that it cannot do what was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ism_dask.engines.base import DeclinedError, Engine

_Result = TypeVar("_Result")


def attempt(engines: Sequence[Engine], work: Callable[[Engine], _Result]) -> _Result:
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
