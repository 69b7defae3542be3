"""Partial sums of long passes over the shards, saved so that another process continues a pass.

The calls of a pass are added in a tree. The sums at one of its levels are saved as they are
computed. A process that takes over a killed fit computes the missing ones, adds all of them in the
same tree, and so comes to the same bits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from ism_dask.records.partial_results import SUMS, ResultStore, result_store

# A pass is saved if, at its pace so far, it takes longer than this many seconds.
_LONG = 60.0
# On a cluster, a pass that takes less than this many seconds is not watched at all.
_SHORT = 10.0
# A pass with enough calls is saved in at least this number of parts.
_FEWEST_PARTS = 16


class SavedPass:
    """The sums of one pass that are saved, or will be if the pass proves to be long.

    Parameters
    ----------
    key : callable
        Returns the key of the pass, or None if its sums cannot be saved. Only called if sums are
        to be looked up or saved, because it takes a few milliseconds.
    n_parts : int
        The number of parts in which it is saved.

    Attributes
    ----------
    result : tuple
        The result of the pass, alone, if an earlier process has completed it; otherwise empty.
    parts : mapping of int to sum
        The saved sums of its parts.
    """

    def __init__(self, key: Callable[[], str | None], n_parts: int) -> None:
        self._make_key, self._n_parts = key, n_parts
        self._began, self._done, self._lock = time.monotonic(), 0, Lock()
        self.result: tuple[Any, ...] = ()
        self.parts: Mapping[int, Any] = {}
        self._store = store = result_store()
        if store is not None and store.keys(SUMS) and self._key is not None:
            result = store.find(self._result_key)
            self.result = () if result is None else (result,)
            self.parts = {} if self.result else self._saved_parts(store)
        self._is_long = bool(self.parts)

    @property
    def is_active(self) -> bool:
        """Whether the pass is in a block of `saving_partial_results`."""
        return self._store is not None

    @cached_property
    def _key(self) -> str | None:
        return self._make_key()

    @property
    def _result_key(self) -> str:
        return f"{SUMS}{self._key}-result"

    def _part_key(self, number: int) -> str:
        return f"{SUMS}{self._key}-{number:04d}"

    def _saved_parts(self, store: ResultStore) -> dict[int, Any]:
        saved = set(store.keys(f"{SUMS}{self._key}-"))
        numbers = [each for each in range(self._n_parts) if self._part_key(each) in saved]
        parts = {number: store.find(self._part_key(number)) for number in numbers}
        return {number: total for number, total in parts.items() if total is not None}

    def count(self, done: int) -> bool:
        """Count parts that are computed now, and return whether the pass is long."""
        with self._lock:
            self._done += done
            seconds = time.monotonic() - self._began
            self._is_long |= seconds * self._n_parts / self._done > _LONG
            return self._is_long

    def add(self, number: int, total: Any) -> Any:
        """Count and return the sum of a part, after saving it if the pass is long."""
        if self.count(1):
            self.save(number, total)
        return total

    def save(self, number: int, total: Any) -> None:
        """Save the sum of a part."""
        if self._store is not None and self._key is not None and _can_be_saved(total):
            self._store.save(self._part_key(number), total)

    def complete(self, result: Any) -> None:
        """Save the result of a long pass, in place of its parts."""
        store, can_be_saved = self._store, self._is_long and _can_be_saved(result)
        if store is not None and can_be_saved and self._key is not None:
            store.save(self._result_key, result)
            for number in range(self._n_parts):
                store.remove(self._part_key(number))


def compute_with_parts(client: Any, whole: Any, parts: Mapping[int, Any], saved: SavedPass) -> Any:
    """Return the result of `whole` on a Dask cluster, and save `parts` of it if the pass is long.

    All of them are Dask tasks. Only the parts of a long pass come to this process.
    """
    wait = sys.modules["distributed"].wait  # the client's module is imported
    *futures, total = client.compute([*parts.values(), whole])
    waiting = dict(zip(futures, parts, strict=True))
    try:
        with suppress(TimeoutError):
            wait(total, timeout=_SHORT)
        while waiting and not total.done():
            done = wait([total, *waiting], return_when="FIRST_COMPLETED").done & waiting.keys()
            numbers = {future: waiting.pop(future) for future in done}
            if done and saved.count(len(done)):
                for future, number in numbers.items():
                    saved.save(number, future.result())
        return total.result()
    finally:
        for future in (*futures, total):
            future.release()


def level_of_parts(n_calls: int, fan: int) -> int:
    """Return the level of a tree over `n_calls` calls whose sums are the parts that are saved."""
    level = 0
    while (n_calls := -(-n_calls // fan)) >= _FEWEST_PARTS:
        level += 1
    return level


def _can_be_saved(total: Any) -> bool:
    if isinstance(total, tuple):
        return all(map(_can_be_saved, total))
    if isinstance(total, np.ndarray):
        return total.dtype == np.float64
    return total is None or type(total) in {float, np.float64}
