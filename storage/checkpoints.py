"""Checkpoints of a run on disk: the newest three stay, and the loss of the newest is noticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ism_dask.records.checkpoint import Checkpoint
from storage.errors import DamagedStore
from storage.manifest import damaged_store
from storage.partial_results import PartialResults, is_equal

# The key of a checkpoint goes on with its number. Another result, saved after the checkpoint, is
# the number of the newest.
CHECKPOINT, NEWEST = "checkpoint-", "newest"
_RETAINED = 3


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, from which it continues after an interruption.

    Attributes
    ----------
    results : PartialResults
        The partial results of the run, which the checkpoints are among.
    """

    results: PartialResults

    @classmethod
    def of_run(cls, name: str) -> Checkpoints:
        """Return the checkpoints in the folder of a run, whether or not there are any."""
        return cls(PartialResults.of_run(name))

    def save(self, request: Mapping[str, Any], checkpoint: Checkpoint) -> None:
        """Save a checkpoint with the request that it belongs to; remove all but the newest three.

        Raises
        ------
        StorageError
            If it could not be written. Earlier checkpoints stay as they were.
        """
        newest = self._newest_or_none(lambda _: None)
        number = max([*self.numbers, newest or 0], default=0) + 1
        self.results.save(checkpoint_key(number), request, checkpoint)
        self.results.save(NEWEST, {}, number)
        for old in self.numbers[:-_RETAINED]:
            self.results.remove(checkpoint_key(old))

    def find(
        self, request: Mapping[str, Any] | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> Checkpoint | None:
        """Return the newest undamaged checkpoint of an equal request, by default of any, or None.

        `tell` is called with a message for each newer one that is damaged or missing.
        """
        newest, numbers = self._newest_or_none(tell), self.numbers
        if newest is not None and newest not in numbers:
            path = self.results.path(checkpoint_key(newest))
            tell(f"{path}, the newest checkpoint, is missing: an older one is taken")
        for number in reversed(numbers):
            try:
                saved_request, checkpoint = self.read(number)
            except DamagedStore as error:
                tell(f"{error} The checkpoint before it is taken")
                continue
            if request is None or is_equal(saved_request, request):
                return checkpoint
        return None

    def read(self, number: int) -> tuple[dict[str, Any], Checkpoint]:
        """Return a checkpoint after its request.

        Raises
        ------
        DamagedStore
            If a file of it is missing or altered.
        """
        request, checkpoint = self.results.read(checkpoint_key(number))
        if not isinstance(checkpoint, Checkpoint):
            path, what = self.results.path(checkpoint_key(number)), type(checkpoint).__name__
            raise damaged_store(path, "zarr.json", f"not a checkpoint, but a {what}")
        return request, checkpoint

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the saved checkpoints in rising order; the last is the newest."""
        ends = [key.removeprefix(CHECKPOINT) for key in self.results.keys(CHECKPOINT)]
        return [int(each) for each in ends if each.isdecimal()]

    @property
    def newest_number(self) -> int | None:
        """Return the number of the newest checkpoint that was saved, or None before the first.

        Raises
        ------
        DamagedStore
            If the record of the number was altered or cut short.
        """
        number = self.results.find(NEWEST, {})
        if number is not None and type(number) is not int:
            path = self.results.path(NEWEST)
            raise damaged_store(path, "zarr.json", f"{number!r} is the number of no checkpoint")
        return number

    def _newest_or_none(self, tell: Callable[[str], None]) -> int | None:
        """Return the number of the newest; if its record is damaged, call `tell`, return None."""
        try:
            return self.newest_number
        except DamagedStore as error:
            tell(f"{error} The newest checkpoint that is there is taken")
            return None


def checkpoint_key(number: int) -> str:
    """Return the key of a checkpoint among the partial results of its run."""
    return f"{CHECKPOINT}{number:08d}"
