"""Values of partial results as plain JSON and arrays of numbers, without pickle.

A value may be None, a number, a text, an array, a record of a fit, or a tuple, list or mapping of
values. It comes back equal to the last bit, and of the same type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ism_dask.records.certificate import Certificate
from ism_dask.records.checkpoint import Checkpoint, OuterState, Round
from ism_dask.records.iteration import Candidate, Record, Solution, State
from ism_dask.status import Status
from storage.records import restored

# The version of what is on the disk: a change of a field of `RECORDS`, or of the functions below,
# needs another. A test compares the names of the fields with those of this version.
FORMAT_VERSION = 6
RECORDS: dict[str, type[Any]] = {
    each.__name__: each
    for each in (Candidate, Certificate, Checkpoint, OuterState, Record, Round, Solution, State)
}
# In the JSON, a list stands for a tuple, and a mapping with this key for all but a mapping.
_KIND = "__kind__"

# One array for each dtype: all numbers of that dtype in a value.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def to_json(value: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return a value as plain JSON, and the numbers of all arrays in it by the name of the dtype.

    Raises
    ------
    TypeError
        If it is, or contains, a value of another type.
    """
    arrays: dict[str, list[NDArray[Any]]] = {}
    record = _plain(value, arrays)
    return record, {name: np.concatenate(each) for name, each in arrays.items()}


def from_json(record: Any, arrays: Arrays) -> Any:
    """Return the value that `to_json` has written; raise ValueError for anything else."""
    try:
        return _restored(record, arrays)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no value of a run: {error!r}") from error


def _plain(value: Any, arrays: dict[str, list[NDArray[Any]]]) -> Any:
    if isinstance(value, tuple):
        return [_plain(each, arrays) for each in value]
    if isinstance(value, Mapping):
        if _KIND in value:
            raise TypeError(f"a mapping has the key {_KIND!r}; rename the key before saving")
        return {name: _plain(each, arrays) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain_array(value, arrays)
    if isinstance(value, list | Status) or type(value) in RECORDS.values():
        parts = {name: _plain(each, arrays) for name, each in _parts(value).items()}
        return {_KIND: type(value).__name__, **parts}
    if value is None or isinstance(value, str | bool | int | float | np.generic):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be saved as a partial result")


def _parts(value: Any) -> dict[str, Any]:
    """Return the values that a list, a status or a record consists of, by name."""
    if isinstance(value, list):
        return {"items": tuple(value)}
    if isinstance(value, Status):
        return {"value": value.value}
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _plain_array(array: NDArray[Any], arrays: dict[str, list[NDArray[Any]]]) -> dict[str, Any]:
    if array.dtype.kind not in "biuf" or not array.dtype.isnative:
        raise TypeError(f"an array of {array.dtype} cannot be saved as a partial result")
    earlier = arrays.setdefault(array.dtype.name, [])
    start = sum(each.size for each in earlier)
    earlier.append(array.ravel())
    return {_KIND: "array", "of": array.dtype.name, "start": start, "shape": list(array.shape)}


def _restored(value: Any, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return tuple(_restored(each, arrays) for each in value)
    if not isinstance(value, Mapping):
        return value
    parts = {name: _restored(each, arrays) for name, each in value.items() if name != _KIND}
    return _made(value[_KIND], parts, arrays) if _KIND in value else parts


def _made(kind: str, parts: dict[str, Any], arrays: Arrays) -> Any:
    if kind == "array":
        return _array(arrays[parts["of"]], parts["start"], parts["shape"])
    if kind == "list":
        return list(parts["items"])
    if kind == "Status":
        return Status(parts["value"])
    record = RECORDS[kind]
    names = [each.name for each in fields(record)]
    if set(parts) != set(names):
        raise ValueError(f"a {kind} has other fields than {', '.join(names)}")
    return restored(record, parts)


def _array(numbers: NDArray[Any], start: int, shape: tuple[int, ...]) -> NDArray[Any]:
    if not all(isinstance(each, int) and each >= 0 for each in (start, *shape)):
        raise ValueError(f"an array of shape {shape} from {start} on")
    end = start + math.prod(shape)
    if end > len(numbers):
        raise ValueError(f"numbers {start} to {end}, of {len(numbers)}")
    return numbers[start:end].reshape(shape).copy()
