"""A record with arrays in it, in one file each, committed in one step and checked when read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.atomic import explain_os_errors, workspace
from storage.errors import StorageError
from storage.manifest import (
    Manifest,
    check_presence,
    checked_bytes,
    damaged_store,
    read_manifest,
    write_manifest,
)
from storage.records import dumps, loads
from storage.store import arrays_digest, check_version, little_endian_bytes, reading

# The files: plain JSON with the layout of the arrays; and their bytes, one after the other.
RECORD, ARRAYS = "record.json", "arrays.bin"


def commit_arrays(
    target: Path,
    version: int,
    record: Mapping[str, Any],
    *,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Build a folder with a record and its arrays, and rename it to `target`.

    On any failure an existing one stays as it was. `version` is that of the format of the record,
    whose values are plain, arrays, or dataclasses and sequences of these; in a mapping, arrays
    become lists. `check` is called when all is written, before the rename, and may raise.
    """
    arrays: dict[str, NDArray[Any]] = {}
    plain = {key: without_arrays(value, key, arrays) for key, value in record.items()}
    layout = {
        name: (values.dtype.newbyteorder("<").str, values.shape) for name, values in arrays.items()
    }
    text = dumps({"format_version": version, "record": plain, "arrays": layout})
    with workspace(target) as work, explain_os_errors(target):
        work.payload.mkdir()
        (work.payload / RECORD).write_text(text, encoding="utf-8")
        with (work.payload / ARRAYS).open("wb") as handle:
            for name in sorted(arrays):  # as JSON has them
                handle.write(little_endian_bytes(arrays[name]))
        write_manifest(work.payload, arrays_digest(arrays))
        check()
        work.publish()


def without_arrays(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return a value with None for each array, which goes to `arrays` under its place in dots."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise StorageError(f"`{name}` is an array of {value.dtype}; expected numbers")
        arrays[name] = value
        return None
    if isinstance(value, list | tuple):
        return [without_arrays(each, f"{name}.{k}", arrays) for k, each in enumerate(value)]
    if not is_dataclass(value):
        return value
    return {
        each.name: without_arrays(getattr(value, each.name), f"{name}.{each.name}", arrays)
        for each in fields(value)
    }


@dataclass(frozen=True, eq=False)
class SavedArrays:
    """A committed record with None in the places of its arrays, which are read when needed.

    The `layout` has the type and shape of each array by its place.
    """

    root: Path
    record: dict[str, Any]
    layout: Mapping[str, Any]
    manifest: Manifest

    @cached_property
    def whole(self) -> dict[str, Any]:
        """The record with its arrays; reading them raises DamagedStore if the file is altered."""
        with reading(self.root, ARRAYS):
            data = checked_bytes(self.root, ARRAYS, self.manifest.files[ARRAYS])
            record, start = deepcopy(self.record), 0
            for name, (kind, shape) in sorted(self.layout.items()):
                dtype = np.dtype(kind)
                if dtype.kind not in "biuf" or min(shape, default=0) < 0:
                    raise ValueError(f"{name!r} is of shape {shape} of {dtype}")
                # Another layout than that of the bytes is an error before memory is allocated.
                values = np.ndarray(shape, dtype, buffer=data, offset=start)
                inside: Any = record
                *outer, last = (int(key) if key.isdecimal() else key for key in name.split("."))
                for key in outer:
                    inside = inside[key]
                inside[last] = values.astype(dtype.newbyteorder("="))
                start += math.prod(shape) * dtype.itemsize
            if start != len(data):
                raise ValueError(f"the arrays have {start} bytes, the file {len(data)}")
        return record


def open_arrays(root: Path, version: int) -> SavedArrays:
    """Open a committed record: its manifest and all lengths are checked now, its arrays later.

    Raise DamagedStore if a file is not as it was written, or in the format of another version.
    """
    manifest = read_manifest(root)
    check_presence(root, manifest)
    if not {RECORD, ARRAYS} <= manifest.files.keys():
        raise damaged_store(root, RECORD, "the manifest does not list it, as in an earlier version")
    with reading(root, RECORD):
        saved = loads(checked_bytes(root, RECORD, manifest.files[RECORD]))
        check_version(root, RECORD, saved["format_version"], version)
        return SavedArrays(root, dict(saved["record"]), dict(saved["arrays"]), manifest)
