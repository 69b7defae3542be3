"""Digests that identify values, in every process alike: arrays, numbers, dataclasses, functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from hashlib import blake2b
from types import FunctionType
from typing import Any

import numpy as np
from dask.base import is_dask_collection

Feed = Callable[[bytes | memoryview], None]

# Types whose text is their value.
_SIMPLE = (type(None), bool, int, float, complex, str, bytes, np.dtype)


def fingerprint(*values: Any) -> str | None:
    """Return a digest of values, or None if another process could not come to the same one.

    That is so for Dask tasks and local functions, and for objects that hide what they consist of.
    """
    digest = blake2b(digest_size=16)
    try:
        _feed(digest.update, values)
    except (TypeError, RecursionError):
        return None
    return digest.hexdigest()


def _feed(feed: Feed, value: Any) -> None:
    """Feed all that a value consists of, each part after its type; raise TypeError if unknown."""
    feed(f"{type(value).__module__}.{type(value).__qualname__};".encode())
    if isinstance(value, np.ndarray | np.generic):
        _feed_array(feed, np.asarray(value))
    elif isinstance(value, _SIMPLE):
        feed(f"{value!r};".encode())
    elif isinstance(value, FunctionType | type | Enum):
        feed(_importable_name(value).encode())
    else:
        parts = list(_parts(value))
        feed(f"{len(parts)};".encode())
        for part in parts:
            _feed(feed, part)


def _parts(value: Any) -> Iterable[Any]:
    """Return the values that another value consists of."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if is_dask_collection(value):
        raise TypeError("a Dask task has a random name")
    if is_dataclass(value):
        return ((each.name, getattr(value, each.name)) for each in fields(value))
    # An object without a dictionary raises the TypeError itself.
    return sorted(vars(value).items())


def _feed_array(feed: Feed, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.hasobject:
        raise TypeError("an array of objects holds addresses")
    feed(f"{array.dtype.str}{array.shape};".encode())
    feed(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")


def _importable_name(value: Any) -> str:
    """Return module and name of a function or class, or of the member of an enumeration."""
    name = str(value) if isinstance(value, Enum) else value.__qualname__
    if "<" in name:
        raise TypeError(f"{name} cannot be imported")
    return f"{value.__module__}.{name};"
