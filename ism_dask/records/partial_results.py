"""Partial results of a fit, saved so that another process continues the fit to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from ism_dask._context import bound

_Result = TypeVar("_Result")


class ResultStore(Protocol):
    """Where the partial results of one fit are saved, under keys that are the same in any process.

    A result is None, a number, a text, an array of numbers, or a tuple, list or mapping of results.
    """

    def find(self, key: str) -> Any:
        """Return a saved result, or None."""

    def save(self, key: str, result: Any) -> None:
        """Save a result, in place of an earlier one."""


_STORE: ContextVar[ResultStore | None] = ContextVar("result_store", default=None)


def saving_partial_results(store: ResultStore) -> AbstractContextManager[None]:
    """Save the partial results of the fit in the block, which continues from those in `store`."""
    return bound(_STORE, store)


def result_store() -> ResultStore | None:
    """Return where the present fit saves its partial results, or None if it does not."""
    return _STORE.get()


def run_or_restore(stage: str, run: Callable[[], _Result]) -> _Result:
    """Return the saved result of a stage of a fit, or run the stage and save its result.

    Each stage is decided by those before it: a process that restores them comes to the same bits.
    """
    store = _STORE.get()
    if store is None:
        return run()
    saved: _Result | None = store.find(stage)
    if saved is not None:
        return saved
    result = run()
    store.save(stage, result)
    return result
