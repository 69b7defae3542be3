"""How far a fit has come, as JSON and one array of numbers: nothing pickled, no bit lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ism_dask.records.checkpoint import Journey, Round, Standing
from ism_dask.records.iteration import Candidate, Record, Solution, State
from ism_dask.status import Status
from storage.kinds import check_kinds

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Candidate, Journey, Record, Round, Solution, Standing, State)
}
_ENUMS: dict[str, type[Enum]] = {Status.__name__: Status}
# What marks a record of these kinds, and an array: where its numbers begin, and its shape.
_KIND, _ARRAY = "kind", "array"

Numbers = NDArray[np.float64]


def packed(journey: Journey) -> tuple[dict[str, Any], Numbers]:
    """Return plain JSON, and the numbers of all arrays one after the other."""
    arrays: list[Numbers] = []
    record = _plain(journey, arrays)
    return record, np.concatenate([np.empty(0), *(each.ravel() for each in arrays)])


def unpacked(record: Mapping[str, Any], numbers: Numbers) -> Journey:
    """Return what `packed` was given; ValueError where that is not what it is."""
    try:
        journey = _revived(record, numbers)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no journey: {error}") from error
    if not isinstance(journey, Journey):
        raise ValueError(f"no journey, but a {type(journey).__name__}")  # noqa: TRY004
    return journey


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
        known = {each.name: _plain(getattr(value, each.name), arrays) for each in fields(value)}
        return {_KIND: type(value).__name__, **known}
    if isinstance(value, tuple):
        return [_plain(each, arrays) for each in value]
    return value


def _revived(value: Any, numbers: Numbers) -> Any:
    if isinstance(value, list):
        return tuple(_revived(each, numbers) for each in value)
    if not isinstance(value, Mapping):
        return value
    if _ARRAY in value:
        return _array(*value[_ARRAY], numbers=numbers)
    name = value[_KIND]
    given = {key: _revived(each, numbers) for key, each in value.items() if key != _KIND}
    if name in _ENUMS:
        return _ENUMS[name](**given)
    made = _KINDS[name](**given)
    check_kinds(made)
    return made


def _array(start: int, *shape: int, numbers: Numbers) -> Numbers:
    if not all(isinstance(each, int) and each >= 0 for each in shape):
        raise ValueError(f"an array of shape {shape}")
    size = math.prod(shape)
    if not 0 <= start <= start + size <= len(numbers):
        raise ValueError(f"{size} numbers from {start} on, of {len(numbers)}")
    return numbers[start : start + size].reshape(shape).copy()
