"""Whether what was read from a file is of the kinds that a dataclass says its fields are of."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints


def check_kinds(made: Any) -> None:
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
