"""Checkpoints of a run on disk: each is written atomically, and the newest three stay."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from ism_dask.records.certificate import Certificate
from ism_dask.records.checkpoint import Checkpoint, OuterState, Round
from ism_dask.records.iteration import Candidate, Record, Solution, State
from ism_dask.status import Status
from storage.atomic import exists_settled, explain_os_errors, remove_folder, replace_synced
from storage.errors import DamagedStore, StorageError
from storage.manifest import damaged_store
from storage.paths import resolve_under
from storage.records import check_field_types, dumps, loads, read_sealed, to_sealed_json
from storage.runs import run_folder
from storage.store import commit_group, get_array, open_checked, put_array

FORMAT_VERSION = 3
CHECKPOINTS, NEWEST = "checkpoints", "newest"
_RETAINED = 3
_FOLDER_NAME = re.compile("[0-9]{8}")
_NUMBERS = "numbers"


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, from which it continues after an interruption.

    Each is a folder with a number, committed like every other store. A pointer file, written
    last, names the newest, so that the loss of the newest is noticed.

    Attributes
    ----------
    folder : Path
    """

    folder: Path

    @classmethod
    def of_run(cls, name: str) -> Checkpoints:
        """Return the checkpoints in the folder of a run, whether or not there are any."""
        return cls(resolve_under(run_folder(name), CHECKPOINTS))

    def save(self, request: Mapping[str, Any], checkpoint: Checkpoint) -> None:
        """Save a checkpoint with the request that it belongs to; remove all but the newest three.

        Raises
        ------
        StorageError
            If it could not be written. Earlier checkpoints stay as they were.
        """
        record, numbers = checkpoint_to_json(checkpoint)
        text = dumps({"asked": request, "checkpoint": record})
        number = max([*self.numbers, self._pointed_or_none() or 0], default=0) + 1

        def fill(group: zarr.Group) -> str:
            put_array(group, _NUMBERS, numbers)
            return sha256(text.encode() + numbers.tobytes()).hexdigest()

        attributes = {"format_version": FORMAT_VERSION, "record": text}
        commit_group(self.path(number), attributes, fill)
        replace_synced(self.folder / NEWEST, to_sealed_json({NEWEST: number}))
        for old in self.numbers[:-_RETAINED]:
            remove_folder(self.path(old))

    def find(
        self, request: Mapping[str, Any], tell: Callable[[str], None] = lambda _: None
    ) -> Checkpoint | None:
        """Return the newest undamaged checkpoint of an equal request, or None.

        `tell` is called with a message for each newer one that is damaged or missing.
        """
        for number in self._newest_first(tell):
            try:
                stored_request, checkpoint = self.read(number)
            except DamagedStore as error:
                tell(f"{error} The checkpoint before it is taken")
                continue
            # Compared as JSON, from which tuples come back as lists.
            if dumps(stored_request) == dumps(request):
                return checkpoint
        return None

    def newest(self) -> Checkpoint | None:
        """Return the newest undamaged checkpoint of any request, or None."""
        for number in reversed(self.numbers):
            with suppress(StorageError):
                return self.read(number)[1]
        return None

    def read(self, number: int) -> tuple[dict[str, Any], Checkpoint]:
        """Return a checkpoint after the request that it belongs to.

        Raises
        ------
        DamagedStore
            If a file of it is missing or altered.
        """
        path = self.path(number)
        _, group = open_checked(path)
        try:
            attributes = group.attrs.asdict()
            if attributes["format_version"] != FORMAT_VERSION:
                raise ValueError(  # noqa: TRY301
                    f"`format_version` is {attributes['format_version']!r}, this version of "
                    f"ism-dask writes {FORMAT_VERSION}"
                )
            record = loads(str(attributes["record"]))
            checkpoint = checkpoint_from_json(record["checkpoint"], get_array(group, _NUMBERS))
            return dict(record["asked"]), checkpoint
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise damaged_store(path, "zarr.json", f"not a checkpoint ({error})") from error

    def clear(self) -> None:
        """Remove all checkpoints."""
        remove_folder(self.folder)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the saved checkpoints in rising order; the last is the newest."""
        with explain_os_errors(self.folder, "read"):
            entries = self.folder.iterdir() if self.folder.is_dir() else ()
            return sorted(int(each.name) for each in entries if self.is_number(each.name))

    @staticmethod
    def is_number(name: str) -> bool:
        """Return whether a folder of that name is a checkpoint."""
        return _FOLDER_NAME.fullmatch(name) is not None

    @property
    def pointer(self) -> int | None:
        """Return the number of the newest checkpoint as the pointer file names it, or None.

        None means that there is no pointer file.

        Raises
        ------
        DamagedStore
            If the pointer file was altered or cut short.
        """
        path = self.folder / NEWEST
        try:
            number = read_sealed(path, "a pointer to the newest checkpoint").get(NEWEST)
        except FileNotFoundError:
            return None
        if not isinstance(number, int) or not 0 < number < 10**8:
            defect = "it names no checkpoint"
            raise DamagedStore(f"{path} is damaged: {defect}.", NEWEST, defect)
        return number

    def _pointed_or_none(self, tell: Callable[[str], None] = lambda _: None) -> int | None:
        """Return the number that the pointer names; if it is damaged, call `tell`, return None."""
        try:
            return self.pointer
        except DamagedStore as error:
            tell(f"{error} The newest checkpoint that is there is taken")
            return None

    def _newest_first(self, tell: Callable[[str], None]) -> Iterator[int]:
        pointed = self._pointed_or_none(tell)
        if pointed is not None and not exists_settled(self.path(pointed)):
            tell(f"{self.path(pointed)}, the newest checkpoint, is missing: an older one is taken")
        yield from reversed(self.numbers)

    def path(self, number: int) -> Path:
        """Return the folder of a checkpoint, whether or not it exists."""
        return resolve_under(self.folder, f"{number:08d}")


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Candidate, Certificate, Checkpoint, Record, Round, Solution, OuterState, State)
}
_ENUMS: dict[str, type[Enum]] = {Status.__name__: Status}
# Keys in the JSON: the class of a record, and an array as its offset in the numbers and its shape.
_KIND, _ARRAY = "kind", "array"

Numbers = NDArray[np.float64]


def checkpoint_to_json(checkpoint: Checkpoint) -> tuple[dict[str, Any], Numbers]:
    """Return the checkpoint as plain JSON, and the concatenated numbers of all its arrays."""
    return values_to_json(checkpoint)


def checkpoint_from_json(record: Mapping[str, Any], numbers: Numbers) -> Checkpoint:
    """Return the checkpoint that `checkpoint_to_json` wrote; raise ValueError for all else."""
    checkpoint = values_from_json(record, numbers, "checkpoint")
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(f"no checkpoint, but a {type(checkpoint).__name__}")  # noqa: TRY004
    return checkpoint


def values_to_json(values: Any) -> tuple[Any, Numbers]:
    """Return values as plain JSON, and the concatenated numbers of all float64 arrays in them.

    They may be numbers, texts, None, arrays, the classes of checkpoints, and tuples of these.
    """
    arrays: list[Numbers] = []
    record = _plain(values, arrays)
    return record, np.concatenate([np.empty(0), *(each.ravel() for each in arrays)])


def values_from_json(record: Any, numbers: Numbers, what: str) -> Any:
    """Return the values that `values_to_json` wrote; raise ValueError (no `what`) for others."""
    try:
        return _restored(record, numbers)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no {what}: {error}") from error


def _plain(value: Any, arrays: list[Numbers]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype != np.float64:
            raise TypeError(f"an array of {value.dtype}; expected float64")
        start = sum(each.size for each in arrays)
        arrays.append(value)
        return {_ARRAY: [start, *value.shape]}
    if isinstance(value, Enum):
        return {_KIND: type(value).__name__, "value": value.value}
    if is_dataclass(value) and not isinstance(value, type):
        values = {each.name: _plain(getattr(value, each.name), arrays) for each in fields(value)}
        return {_KIND: type(value).__name__, **values}
    if isinstance(value, tuple):
        return [_plain(each, arrays) for each in value]
    return value


def _restored(value: Any, numbers: Numbers) -> Any:
    if isinstance(value, list):
        return tuple(_restored(each, numbers) for each in value)
    if not isinstance(value, Mapping):
        return value
    if _ARRAY in value:
        return _array(*value[_ARRAY], numbers=numbers)
    name = value[_KIND]
    values = {key: _restored(each, numbers) for key, each in value.items() if key != _KIND}
    if name in _ENUMS:
        return _ENUMS[name](**values)
    instance = _KINDS[name](**values)
    check_field_types(instance)
    return instance


def _array(start: int, *shape: int, numbers: Numbers) -> Numbers:
    if not all(isinstance(each, int) and each >= 0 for each in shape):
        raise ValueError(f"an array of shape {shape}")
    size = math.prod(shape)
    if not 0 <= start <= start + size <= len(numbers):
        raise ValueError(f"{size} numbers from {start} on, of {len(numbers)}")
    return numbers[start : start + size].reshape(shape).copy()
