"""Read tables of TOML files into dataclasses, and check every key and type."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from flows.errors import SettingsError

T = TypeVar("T")

_TYPE_NAMES: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "the path of a file",
}


class TableError(ValueError):
    """A key or a value of a TOML table that is not allowed.

    Attributes
    ----------
    key : str
        The key with the tables that it is in, such as `data.label`.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def read_table(kind: type[T], table: dict[str, Any], folder: Path, within: str = "") -> T:
    """Make the dataclass `kind` from a TOML table, and check every key and type.

    Parameters
    ----------
    kind : type
        A dataclass. It may raise ValueError for values that do not go together.
    table : dict
        The table, as `tomllib` returns it.
    folder : Path
        The folder that relative paths start from.
    within : str
        Prefix of the keys of this table within a larger one, such as `tls.`.

    Raises
    ------
    TableError
        For an unknown or missing key, or a value of another type.
    """
    fields: dict[str, Any] = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            at = f"{within}{key}"
            raise TableError(_unknown_key_message(at, key, list(fields)), at)
    hints = get_type_hints(kind)
    missing = [name for name, each in fields.items() if _is_required(each) and name not in table]
    if missing:
        expected = describe_type(hints[missing[0]])
        raise TableError(
            f"`{within}{missing[0]}` is missing; expected {expected}", within.rstrip(".")
        )
    values = {key: _convert(hints[key], item, folder, within + key) for key, item in table.items()}
    try:
        return kind(**values)
    except TableError:
        raise
    except ValueError as error:
        raise table_error(error, within) from error


def table_error(error: ValueError, within: str) -> TableError:
    """Return the error of a dataclass made from the table with the prefix `within`.

    If its message begins with the name of a key, so does that of the new error, with the prefix.
    """
    message, table = str(error), within.rstrip(".")
    quoted = re.match(r"`(\w+)`", message)
    if quoted:
        return TableError(f"`{within}{message[1:]}", f"{within}{quoted[1]}")
    if re.match(r"[a-z_]+(:| is )", message):
        return TableError(f"{within}{message}", table)
    return TableError(f"{table}: {message}" if table else message, table)


def closest_name(name: str, names: list[str]) -> str:
    """Return the hint "did you mean ..." for a misspelt name, empty if no name is close."""
    close = get_close_matches(name, names, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def describe_type(hint: Any) -> str:
    """Return the description of a type for error messages."""
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        keys = [
            f"{each.name} = {describe_type(hints[each.name])}" for each in dataclasses.fields(hint)
        ]
        return f"a table {{{', '.join(keys)}}}"
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (tuple, list):
        return f"a list, each {describe_type(inner[0])}"
    if origin is dict:
        return f"a table, each value {describe_type(inner[1])}"
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(each) for each in inner if each is not type(None))
    return _TYPE_NAMES[hint]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _unknown_key_message(at: str, key: str, names: list[str]) -> str:
    return f"`{at}` is no key of it{closest_name(key, names)} (expected {', '.join(names)})"


def _convert(hint: Any, value: Any, folder: Path, at: str) -> Any:
    """Return `value` converted to its type, or raise TableError if it is of another type."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if _matches_type(choice, value):
            return _convert_as(choice, value, folder, at)
    shown = "a table" if isinstance(value, dict) else repr(value)
    raise TableError(f"`{at}` is {shown}; expected {describe_type(hint)}", at)


def _matches_type(hint: Any, value: Any) -> bool:
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    kinds: dict[Any, Any] = {float: (int, float), Path: str, tuple: list, dict: dict}
    kind = get_origin(hint) or hint
    # In Python, unlike in TOML, a bool is an int.
    return isinstance(value, kinds.get(kind, kind)) and isinstance(value, bool) == (hint is bool)


def _convert_as(hint: Any, value: Any, folder: Path, at: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return read_table(hint, value, folder, f"{at}.")  # type: ignore[arg-type]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (tuple, list):
        return origin(
            _convert(inner[0], each, folder, f"{at}[{n}]") for n, each in enumerate(value)
        )
    if origin is dict:
        return {key: _convert(inner[1], each, folder, f"{at}.{key}") for key, each in value.items()}
    return folder / Path(value).expanduser() if hint is Path else value


def parse_toml(file: Path, title: str, example: str) -> dict[str, Any]:
    """Return the tables of a TOML file; raise SettingsError if it cannot be read.

    Parameters
    ----------
    file : Path
    title : str
        What the file is, such as "cluster file".
    example : str
        Where the user finds one.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"the {title} {file} cannot be read: {error.strerror}; expected one like {example}"
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, or no UTF-8, or nested without end
        raise SettingsError(f"the {title} {file} is no TOML: {error}") from error


_HEADER = re.compile(r"\s*\[+\s*([\w.-]+)\s*\]+\s*(?:#.*)?")


def line_of_key(text: str, key: str) -> int | None:
    """Return the number of the line with a key such as `fit.sigma`, or else of its table.

    `transform[1].out` is a key of the second table [[transform]], and `fit.terms[0].sigma` one of
    the first table [[fit.terms]], or of an element of the list `terms` in [fit].
    """
    nested = re.fullmatch(r"([\w-]+\.[\w-]+)\[(\d+)\](?:\.(.*))?", key)
    if nested:
        line = _line_within(text, nested[1], int(nested[2]), nested[3] or "")
        if line is not None:
            return line
    match = re.fullmatch(r"(?:([\w-]+)(?:\[(\d+)\])?)?\.?(.*)", key)
    table, nth, name = match.groups() if match else ("", None, key)
    name = re.split(r"[.[]", name)[0]  # of an element of a list
    if not name and re.search(rf"^\s*{table}\s*=", text, re.M):
        table, name = "", table  # a key at the top of the file
    return _line_within(text, table or "", int(nth or 0), name)


def _line_within(text: str, table: str, nth: int, name: str) -> int | None:
    """Return the line of `name` in the table with the number `nth` of its name, else its header."""
    within, headers, found = "", 0, None
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        if header:
            within = header[1]
            headers += within == table
        if within != table or headers not in (0, nth + 1):
            continue
        if header:
            found = number
        elif name and re.match(rf'\s*"?{re.escape(name)}"?\s*[.=]', line):
            return number
    return found
