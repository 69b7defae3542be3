"""Checkpoints of a run on disk, of which the newest three stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ism_dask.records.checkpoint import Checkpoint
from storage.errors import DamagedStore
from storage.manifest import damaged_store
from storage.partial_results import PartialResults, is_equal

# The key of a checkpoint goes on with its number.
_CHECKPOINT = "checkpoint-"
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
        number = max(self.numbers, default=0) + 1
        self.results.save(checkpoint_key(number), request, checkpoint)
        for old in self.numbers[:-_RETAINED]:
            self.results.remove(checkpoint_key(old))

    def find(
        self, request: Mapping[str, Any] | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> Checkpoint | None:
        """Return the newest undamaged checkpoint of an equal request, by default of any, or None.

        `tell` is called with a message for each newer one that is damaged.
        """
        for number in reversed(self.numbers):
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
        ends = [key.removeprefix(_CHECKPOINT) for key in self.results.keys(_CHECKPOINT)]
        return [int(each) for each in ends if each.isdecimal()]


def checkpoint_key(number: int) -> str:
    """Return the key of a checkpoint among the partial results of its run."""
    return f"{_CHECKPOINT}{number:08d}"
