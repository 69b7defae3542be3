"""Strict JSON: what is written is read back equal by any JSON reader."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from storage.errors import StorageError

# Standard JSON has no NaN or infinity, and a metric may well be either.
_FLOAT = "__float__"


def dumps(value: Any) -> str:
    """Return `value` as standard JSON text with sorted keys; tuples and arrays become lists."""
    return json.dumps(_plain(value, "value"), sort_keys=True, indent=1, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Return what `dumps` was given; raise ValueError for text that is not JSON."""
    try:
        return json.loads(text, object_hook=_revive)
    except (RecursionError, TypeError) as error:
        raise ValueError(f"no JSON of ours: {error}") from error


def _revive(found: dict[str, Any]) -> Any:
    """Turn the mark of a non-finite number back into the number."""
    return float(found[_FLOAT]) if found.keys() == {_FLOAT} else found


def _plain(value: Any, where: str) -> Any:
    """Return `value` made of JSON's own types only."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return _plain_mapping(value, where)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise StorageError(
        f"`{where}` is a {type(value).__name__}; expected None, a bool, number, string, list, "
        "tuple, array or a mapping of these. Convert it before saving."
    )


def _plain_mapping(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Return a mapping whose keys are strings, none of them the mark of `_FLOAT`."""
    wrong = [key for key in value if not isinstance(key, str) or key == _FLOAT]
    if wrong:
        raise StorageError(
            f"`{where}` has the key {wrong[0]!r}; expected strings other than {_FLOAT!r}. "
            "Rename the key before saving."
        )
    return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
