"""Strict JSON: records that contain their own digest, and dataclasses that are read from it."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from storage.errors import DamagedStore, StorageError

# Standard JSON has no NaN or infinity, and a metric may well be either: a mapping with this key
# alone stands for such a number.
_FLOAT_KEY = "__float__"
# No whole number of a record of ours reaches this, nor does the number of cells of a matrix.
LARGEST = 2**63
_hints = cache(get_type_hints)


def dumps(value: Any) -> str:
    """Return `value` as standard JSON text with sorted keys; tuples and arrays become lists."""
    return _text(_plain(value, "value"))


def _text(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, indent=1, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Return the value that `dumps` wrote; raise ValueError for text that is not JSON."""
    try:
        value = json.loads(text, object_hook=_restore_float)
    except (RecursionError, TypeError) as error:
        raise ValueError(f"no JSON of ism-dask: {error}") from error
    # An escape may stand for half of a character, which nothing can print or write.
    if (b"\\ud" if isinstance(text, bytes) else "\\ud") in text.lower():  # type: ignore[operator]
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _restore_float(mapping: dict[str, Any]) -> Any:
    """Return the non-finite number that a mapping stands for, or the mapping."""
    return float(mapping[_FLOAT_KEY]) if mapping.keys() == {_FLOAT_KEY} else mapping


def _plain(value: Any, where: str) -> Any:
    """Return `value` in JSON's own types only; `where` is its path, for errors."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str) or key == _FLOAT_KEY]
        if wrong:
            raise StorageError(
                f"`{where}` has the key {wrong[0]!r}; expected strings other than {_FLOAT_KEY!r}. "
                "Rename the key before saving."
            )
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT_KEY: repr(value)}
    if isinstance(value, str) and not is_utf8(value):
        raise StorageError(f"`{where}` is {value!r}, which is not UTF-8; choose another text")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise StorageError(
        f"`{where}` is a {type(value).__name__}; expected None, a bool, number, string, list, "
        "tuple, array or a mapping of these. Convert it before saving."
    )


def is_utf8(text: str) -> bool:
    """Return whether a text can be written: names of files and arguments may hold other bytes."""
    return text.encode(errors="ignore").decode() == text


_DIGEST_KEY = "digest"


def to_sealed_json(entry: Mapping[str, Any]) -> str:
    """Return `entry` as JSON text with the SHA-256 of the text without it."""
    plain = _plain(entry, "value")
    digest = sha256(_text(plain).encode()).hexdigest()
    return _text({**plain, _DIGEST_KEY: digest})


def read_sealed(path: Path, what: str) -> dict[str, Any]:
    """Return the record in a file whose text `to_sealed_json` has made.

    Raise FileNotFoundError or NotADirectoryError if there is none, and DamagedStore, which names
    its content `what`, if the file is not as it was written.
    """
    try:
        text = path.read_text(encoding="utf-8")
        entry = {key: value for key, value in dict(loads(text)).items() if key != _DIGEST_KEY}
        if text != to_sealed_json(entry):  # byte for byte, so that no flipped bit passes
            raise ValueError("it does not agree with its own digest")  # noqa: TRY301
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, RecursionError, StorageError, TypeError, ValueError) as error:
        defect = f"not {what} as it was written ({error})"
        message = f"{path} is damaged: {defect}. Restore it from a backup, or move it away."
        raise DamagedStore(message, path.name, defect) from error
    return entry


def restored(kind: Any, value: Any) -> Any:
    """Return a value of JSON as the type `kind`: dataclasses, tuples and mappings of them, too.

    Raise ValueError or TypeError if it does not fit, or lacks a field of a dataclass.
    """
    # From NumPy 2.5 on, NDArray is an alias by `type`, which stands for its value.
    alias = getattr(get_origin(kind), "__value__", None)
    origin, inner = get_origin(kind if alias is None else alias), get_args(kind)
    if origin in (Union, types.UnionType):
        for each in inner:
            with suppress(ValueError, TypeError):
                return restored(each, value)
    elif isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        return kind(**_restored_fields(kind, value))
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(restored(inner[0], each) for each in value)
    elif isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {key: restored(inner[1], each) for key, each in value.items()}
    elif _is_plain(value, origin or kind):
        return value
    raise ValueError(f"{str(value)[:60]!r} is no {getattr(kind, '__name__', kind)}")


def _is_plain(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if type(value) is int and kind in (int, float):
        return abs(value) < LARGEST
    # In Python, unlike in JSON, a bool is also an int.
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _restored_fields(kind: type, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass; raise a ValueError that names the first wrong entry."""
    hints, made = _hints(kind), {}
    for name, value in entries.items():
        if name not in hints:
            raise ValueError(f"{kind.__name__} has no field {name!r}")
        try:
            made[name] = restored(hints[name], value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`{name}`: {error}; expected {hints[name]}") from error
    return made
