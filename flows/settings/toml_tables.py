"""Read TOML files into dataclasses of settings; pydantic checks every key, type and bound."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from flows.errors import SettingsError
from storage.errors import did_you_mean

T = TypeVar("T")
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
# The tables and lists that lead to a value, such as ("transform", 1, "out").
KeyPath = tuple[str | int, ...]


def expanded(path: str | Path) -> Path:
    """Return a path with the home of a user for ~; raise a SettingsError if there can be none."""
    if "\0" in str(path):
        raise SettingsError(f"{str(path)!r} has a null character, as no name of a file may")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"{str(path)!r}: there is no such user here, and no home") from error


def read_table(kind: type[T], values: Mapping[str, Any]) -> T:
    """Make a dataclass from plain values, such as a TOML table.

    Raise SettingsError for a key that is unknown or missing, a value of another type or beyond its
    bounds, and values for which the dataclass raises ValueError.
    """
    # As JSON, in which pydantic's strict mode has lists for tuples, and tables for dataclasses.
    text = to_json(values, inf_nan_mode="constants")
    try:
        made: T = _adapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        raise _clearest_error(kind, values, error) from error
    return made


def within(error: ValueError, *table: str | int) -> SettingsError:
    """Return an error of a dataclass as the error of the table that it was made from.

    The settings that its message names are then keys of this table. The message of an error that is
    none of ours begins with the name of a key.
    """
    message, names = str(error), getattr(error, "settings", ())
    if not names and table:
        sign = ": " if isinstance(error, SettingsError) else "."
        return SettingsError(f"{key_text(table)}{sign}{message}")
    keys = {name: key_text((*table, name)) for name in names}
    for name, key in keys.items():
        message = message.replace(f"`{name}`", f"`{key}`")
    return SettingsError(message, *keys.values())


def key_text(path: KeyPath) -> str:
    """Return the text of a key, such as `transform[1].out`."""
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    return "".join(parts).removeprefix(".")


_UNKNOWN = "unexpected_keyword_argument"
# The expected value, by the type of pydantic's error.
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "dataclass_type": "a table",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge:.12g} or more",
    "greater_than": "a number above {gt:.12g}",
    "less_than_equal": "{le:.12g} or less",
    "less_than": "a number below {lt:.12g}",
}


def _clearest_error(kind: Any, values: Any, error: ValidationError) -> SettingsError:
    """Return the error of a validation that says most: an unknown key before all others.

    A union has an error for each of its types, of which one that is not on the type says more.
    """
    located = [(_path_of(each["loc"], values), each) for each in error.errors()]
    path, wrong = max(
        located,
        key=lambda each: (
            each[1]["type"] == _UNKNOWN,
            each[1]["type"] not in _EXPECTED,
            len(each[0]),
        ),
    )
    key = key_text(path)
    if wrong["type"] == _UNKNOWN:
        names = _names_at(kind, path[:-1])
        advice = did_you_mean(str(path[-1]), names) or f"expected one of {', '.join(names)}"
        return SettingsError(f"`{key}` is no setting; {advice.strip()}", key)
    if wrong["type"] == "missing":
        key = key_text((*path, str(wrong["loc"][-1])))
        return SettingsError(f"`{key}` is missing; it has no default", key)
    if wrong["type"] == "value_error":
        return within(wrong["ctx"]["error"], *path)
    kinds = dict.fromkeys(
        _EXPECTED.get(each["type"], each["msg"]).format(**each.get("ctx", {}))
        for at, each in located
        if at == path
    )
    value = "a table" if isinstance(wrong["input"], dict) else repr(wrong["input"])
    return SettingsError(f"`{key}` is {value}; expected {' or '.join(kinds)}", key)


def _path_of(location: KeyPath, values: Any) -> KeyPath:
    """Return those keys that lead somewhere, without pydantic's names for branches of unions."""
    path: list[str | int] = []
    for part in location:
        with suppress(LookupError, TypeError):
            values = values[part]
            path.append(part)
    return tuple(path)


def _names_at(kind: Any, path: KeyPath) -> list[str]:
    """Return the names of the fields of the dataclass that a path leads to."""
    for part in path:
        kind = get_type_hints(kind)[part] if isinstance(part, str) else kind
        kind = next(each for each in (kind, *get_args(kind)) if is_dataclass(each))
    return [each.name for each in fields(kind)]


def parse_toml(file: Path, title: str, example: str) -> dict[str, Any]:
    """Return the tables of a TOML file; raise SettingsError if it cannot be read.

    `title` is what the file is, such as "cluster file", and `example` where the user finds one.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(
            f"the {title} {file} cannot be read: {error.strerror}; expected one like {example}"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"the {title} {file} is no TOML: it is not UTF-8; save it so"
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, or nested without end
        raise SettingsError(f"the {title} {file} is no TOML: {error}") from error
