"""The stages of an unfolding, saved so that a later process continues after those that ended.

Each stage is decided by those before it: a process that restores them comes to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar

# Arrays and numbers by name.
Values: TypeAlias = Mapping[str, Any]
_Result = TypeVar("_Result")

NEIGHBOURS, EIGENVECTORS = "neighbours", "eigenvectors"
PROGRAM, REFINEMENT = "program", "refinement"


class StageStore(Protocol):
    """Where the stages of one fit are saved."""

    def find(self, stage: str) -> Values | None:
        """Return what was saved of a stage that begins now, or None."""

    def save(self, stage: str, values: Values) -> None:
        """Save the result of a stage, or what it needs to continue, in place of an earlier one."""


class _NoStore:
    """Saves nothing."""

    def find(self, stage: str) -> None:
        """Return None."""

    def save(self, stage: str, values: Values) -> None:
        """Do nothing."""


_STORE: ContextVar[StageStore] = ContextVar("stage_store", default=_NoStore())  # noqa: B039


@contextmanager
def saving_stages(store: StageStore) -> Iterator[None]:
    """Save the stages of the fit in the block, which continues after those that `store` has."""
    token = _STORE.set(store)
    try:
        yield
    finally:
        _STORE.reset(token)


def stage_store() -> StageStore:
    """Return where the stages of the present fit are saved."""
    return _STORE.get()


def run_or_restore(stage: str, kind: type[_Result], run: Callable[[], _Result]) -> _Result:
    """Return the result of a stage, restored if it is saved; `kind` is a dataclass of values."""
    store = _STORE.get()
    saved = store.find(stage)
    if saved is not None:
        return kind(**saved)
    result = run()
    store.save(stage, vars(result))
    return result
