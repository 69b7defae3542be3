"""What a device holds at a time, and smaller batches where it runs out of memory."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

from ism_dask.rows.devices import is_out_of_memory

_Result = TypeVar("_Result")
# The share of the free memory of a device that rows may take for good, and that of the rest which
# a batch may take for its matrices. Batches beyond these bytes are no faster.
_ROWS_SHARE, _BATCH_SHARE, _BATCH_BYTES = 0.6, 0.5, 4 * 2**30
# How many matrices (m, m) of a batch exist at a time, and copies of its rows (m, d), all double.
_SQUARES, _COPIES = 7, 3
# The batch below which rows do not stay on a device that has no memory for it.
_SMALL_BATCH = 64 * 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """What a device holds at a time.

    Attributes
    ----------
    resident : bool
        Whether all rows stay on the device.
    batch_bytes : float
        The bytes that a batch may take beside the rows.
    """

    resident: bool
    batch_bytes: float

    @classmethod
    def of(cls, row_bytes: int, free_bytes: int) -> MemoryPlan:
        """Return the plan for all rows, which take this number of bytes."""
        resident = row_bytes <= _ROWS_SHARE * free_bytes
        left = free_bytes - resident * row_bytes
        return cls(resident, min(_BATCH_SHARE * left, _BATCH_BYTES))

    def smaller(self, *, loaded: bool) -> MemoryPlan:
        """Return the plan with batches of half the size; rows that could be `loaded` stay."""
        size = self.batch_bytes / 2
        return MemoryPlan(loaded and size >= _SMALL_BATCH, size)

    def most_blocks(self, m: int, d: int) -> int:
        """Return the most blocks of m rows with d columns in a batch, one at least."""
        return max(1, int(self.batch_bytes // block_bytes(m, d)))

    def most_rows(self, d: int) -> int:
        """Return the most rows with d columns of a batch that is one block."""
        half = _COPIES * d / (2 * _SQUARES)
        return int(math.sqrt(half**2 + self.batch_bytes / (8 * _SQUARES)) - half)


def block_bytes(m: int, d: int) -> int:
    """Return the bytes that a block of m rows with d columns takes beside them."""
    return 8 * m * (_SQUARES * m + _COPIES * d)


class WithinMemory(ABC):
    """Computes on a device by a plan of its memory, and by a smaller one if that is too large.

    What follows from the plan is under the names in `_by_plan`, all of them cached properties.
    """

    _by_plan: ClassVar[tuple[str, ...]] = ()

    @cached_property
    @abstractmethod
    def _plan(self) -> MemoryPlan:
        """The plan of the memory of the device."""

    @abstractmethod
    def _is_least(self) -> bool:
        """Return whether batches cannot be smaller."""

    @abstractmethod
    def _is_loaded(self) -> bool:
        """Return whether all rows could be brought to the device."""

    def _within_memory(self, compute: Callable[[], _Result]) -> _Result:
        """Return what `compute` returns, with as small batches as it needs."""
        while True:
            try:
                return compute()
            except Exception as error:
                is_least = not self._plan.resident and self._is_least()
                if is_least or not is_out_of_memory(error):
                    raise
            self._plan = self._plan.smaller(loaded=self._is_loaded())
            for outdated in self._by_plan:
                self.__dict__.pop(outdated, None)
