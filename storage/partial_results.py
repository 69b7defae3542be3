"""Partial results of a run that is under way: checkpoints, and parts such as folds.

They are plain JSON and arrays of numbers, without pickle. A checkpoint comes back equal to the last
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ism_dask.records.checkpoint import Checkpoint
from storage.atomic import exists_settled, remove_folder, visible_entries
from storage.errors import DamagedStore
from storage.paths import resolve_under
from storage.records import dumps, restored
from storage.runs import run_folder
from storage.saved_arrays import RECORD, commit_arrays, open_arrays
from storage.store import reading

PARTIAL = "partial"
# The key of a checkpoint goes on with its number.
_CHECKPOINT = "checkpoint-"
_RETAINED = 3

# The version of what is on the disk: a change of a field of a checkpoint needs another. A test
# compares the names of the fields with those of this version.
FORMAT_VERSION = 15


@dataclass(frozen=True)
class PartialResults:
    """The partial results of one run, each under a key, from which the run continues.

    Each is stored with its request, all that decides it, such as settings and digests of data.
    `find` returns it for an equal request only. It and `read` raise DamagedStore for a result of
    which a file is missing or altered, or which another version has written. Each is a folder
    in this one.
    """

    folder: Path

    @classmethod
    def of_run(cls, name: str) -> PartialResults:
        """Return the partial results in the folder of a run, whether or not there are any."""
        return cls(resolve_under(run_folder(name), PARTIAL))

    def find(self, key: str, request: Mapping[str, Any]) -> Any:
        """Return the result under a key, or None if there is none for this request."""
        if not exists_settled(self.path(key)):
            return None
        saved_request, value = self.read(key)
        return value if _is_equal(saved_request, request) else None

    def save(self, key: str, request: Mapping[str, Any], value: Any) -> None:
        """Save a result atomically, replacing an earlier one, which stays if that fails.

        It is plain JSON, as which it is found again, or a checkpoint.
        """
        commit_arrays(self.path(key), FORMAT_VERSION, {"request": request, "value": value})

    def remove(self, key: str) -> None:
        """Remove a result, if it exists."""
        remove_folder(self.path(key))

    def keys(self, start: str = "") -> list[str]:
        """Return the keys that begin with `start`, sorted."""
        names = [each.name for each in visible_entries(self.folder) if each.is_dir()]
        return [name for name in names if name.startswith(start)]

    def clear(self) -> None:
        """Remove all results."""
        remove_folder(self.folder)

    def read(self, key: str) -> tuple[dict[str, Any], Any]:
        """Return a result after its request; arrays are where they were."""
        saved = open_arrays(self.path(key), FORMAT_VERSION)
        with reading(self.path(key), RECORD):
            return dict(saved.whole["request"]), saved.whole["value"]

    def path(self, key: str) -> Path:
        """Return the folder of a result, whether or not it exists."""
        return resolve_under(self.folder, key)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints among the results of one run, from which it continues when interrupted."""

    results: PartialResults

    @classmethod
    def of_run(cls, name: str) -> Checkpoints:
        """Return the checkpoints in the folder of a run, whether or not there are any."""
        return cls(PartialResults.of_run(name))

    def save(self, request: Mapping[str, Any], checkpoint: Checkpoint) -> None:
        """Save a checkpoint with the request that it belongs to; remove all but the newest three.

        If that fails, earlier checkpoints stay as they were.
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
            if request is None or _is_equal(saved_request, request):
                return checkpoint
        return None

    def read(self, number: int) -> tuple[dict[str, Any], Checkpoint]:
        """Return a checkpoint after its request; raise DamagedStore if it is not as written."""
        request, value = self.results.read(checkpoint_key(number))
        with reading(self.results.path(checkpoint_key(number)), RECORD):
            return request, restored(Checkpoint, value)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the saved checkpoints in rising order; the last is the newest."""
        ends = [key.removeprefix(_CHECKPOINT) for key in self.results.keys(_CHECKPOINT)]
        return [int(each) for each in ends if each.isdecimal()]


def checkpoint_key(number: int) -> str:
    """Return the key of a checkpoint among the partial results of its run."""
    return f"{_CHECKPOINT}{number:08d}"


def _is_equal(saved: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Return whether a saved request is equal to another as JSON, where tuples become lists."""
    return dumps(saved) == dumps(request)
