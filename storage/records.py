"""Records: strict JSON with its own digest, read back into fields of the right types."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from storage.errors import DamagedStore, StorageError

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


_SEAL = "digest"


def digest_of(entry: Mapping[str, Any]) -> str:
    """Return the digest of what is to be kept."""
    return sha256(dumps(entry).encode()).hexdigest()


def to_sealed_json(entry: Mapping[str, Any]) -> str:
    """Return `entry` as JSON text with its digest."""
    return dumps({**entry, _SEAL: digest_of(entry)})


def from_sealed_json(text: str) -> dict[str, Any]:
    """Return what `sealed` was given; raise ValueError for any other text."""
    found = loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}, not a record")  # noqa: TRY004
    entry = {key: value for key, value in found.items() if key != _SEAL}
    try:
        sound = text == to_sealed_json(entry)  # byte for byte, so that no flipped bit passes
    except (RecursionError, StorageError) as error:
        raise ValueError(f"it is none of ours: {error}") from error
    if not sound:
        raise ValueError("it has been altered: it does not agree with its own digest")
    return entry


def read_sealed(path: Path, what: str) -> dict[str, Any]:
    """Read a sealed file; DamagedStore, which calls it `what`, where it is not as written.

    A file that is not there is a FileNotFoundError.
    """
    try:
        return from_sealed_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError) as error:
        told = f"not {what} as it was written ({error})"
        raise DamagedStore(f"{path} is damaged: {told}.", path.name, told) from error


def check_field_types(made: Any) -> None:
    """Raise ValueError for the first field of a dataclass that holds something else."""
    hints = get_type_hints(type(made))
    for each in fields(made):
        value = getattr(made, each.name)
        if not _fits(value, hints[each.name]):
            raise ValueError(f"`{each.name}` is {str(value)[:60]!r}; expected {each.type}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(each, inner[0]) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(each, inner[1]) for each in value.values())
    if hint is Any:
        return True
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    # In Python, not in JSON, true is a whole number, too.
    return isinstance(value, origin or hint) and isinstance(value, bool) == (hint is bool)
