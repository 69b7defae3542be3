"""A table of TOML read into a frozen dataclass: every key known, every value of its type."""

from __future__ import annotations

import dataclasses
import types
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "the path of a file",
}


class TableError(ValueError):
    """A key or a value that was not expected."""


def read_table(kind: type[T], table: dict[str, Any], folder: Path, within: str = "") -> T:
    """Return the dataclass `kind` made of `table`.

    Parameters
    ----------
    kind : type
        A dataclass. It may raise ValueError for values that do not go together.
    table : dict
        As TOML has it.
    folder : Path
        What relative paths are relative to.
    within : str
        Where the table stands in a larger one, such as `tls.`.
    """
    fields: dict[str, Any] = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise TableError(_unknown(f"{within}{key}", key, list(fields)))
    hints = get_type_hints(kind)
    missing = [name for name, each in fields.items() if _is_required(each) and name not in table]
    if missing:
        expected = words(hints[missing[0]])
        raise TableError(f"`{within}{missing[0]}` is missing; expected {expected}")
    given = {key: _value(hints[key], item, folder, within + key) for key, item in table.items()}
    try:
        return kind(**given)
    except TableError:
        raise
    except ValueError as error:
        raise TableError(f"{within}{error}" if within else str(error)) from error


def near(name: str, names: list[str]) -> str:
    """Return what to say of the name that was probably meant."""
    close = get_close_matches(name, names, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def words(hint: Any) -> str:
    """Say what a value of that type is."""
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        keys = [f"{each.name} = {words(hints[each.name])}" for each in dataclasses.fields(hint)]
        return f"a table {{{', '.join(keys)}}}"
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return f"a list, each {words(inner[0])}"
    if origin is dict:
        return f"a table, each value {words(inner[1])}"
    if origin in (Union, types.UnionType):
        return " or ".join(words(each) for each in inner if each is not type(None))
    return _WORDS[hint]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _unknown(at: str, key: str, names: list[str]) -> str:
    return f"`{at}` is no key of it{near(key, names)} (expected {', '.join(names)})"


def _value(hint: Any, value: Any, folder: Path, at: str) -> Any:
    """Return `value` as its type has it, or raise TableError."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if _fits(choice, value):
            return _made(choice, value, folder, at)
    shown = "a table" if isinstance(value, dict) else repr(value)
    raise TableError(f"`{at}` is {shown}; expected {words(hint)}")


def _fits(hint: Any, value: Any) -> bool:
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    kinds: dict[Any, Any] = {float: (int, float), Path: str, tuple: list, dict: dict}
    kind = get_origin(hint) or hint
    # In Python, not in TOML, true is a number, too.
    return isinstance(value, kinds.get(kind, kind)) and isinstance(value, bool) == (hint is bool)


def _made(hint: Any, value: Any, folder: Path, at: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return read_table(hint, value, folder, f"{at}.")  # type: ignore[arg-type]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return tuple(_value(inner[0], each, folder, f"{at}[{n}]") for n, each in enumerate(value))
    if origin is dict:
        return {key: _value(inner[1], each, folder, f"{at}.{key}") for key, each in value.items()}
    return folder / Path(value).expanduser() if hint is Path else value
