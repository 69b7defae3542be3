"""Fields of settings: told once for the command line and for the form of the Prefect UI."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from typing import Any

from flows.errors import SettingsError


def setting(
    default: Any = dataclasses.MISSING,
    *,
    about: str,
    flags: tuple[str, ...] = (),
    title: str = "",
    early: bool = False,
    cli_type: Any = None,
    cli_parse: Callable[[Any], Any] | None = None,
    names: Callable[[], list[str]] | None = None,
    **bounds: float,
) -> Any:
    """Return a dataclass field that the command line and the Prefect form can show.

    Parameters
    ----------
    default : optional
        Without one, it is an argument of the command.
    about : str
        One line for people.
    flags : tuple of str
        Names of the option, where they are not that of the field.
    title : str
        What the form calls it, where it is not the name of the field.
    early : bool
        Whether the form has it among the first.
    cli_type : type, optional
        What the command line reads, where it is not the type of the field.
    cli_parse : callable, optional
        Turns what the command line reads into the value of the field.
    names : callable, optional
        Returns the names to choose from in the form.
    **bounds : float
        `ge` or `gt`: the least value, or what it must be above; `le` or `lt`: the largest, or
        what it must be below.
    """
    of_the_form = {"description": about, "title": title, "early": early, "names": names}
    of_the_command = {"flags": flags, "cli_type": cli_type, "cli_parse": cli_parse}
    return field(default=default, metadata={**of_the_form, **of_the_command, **bounds})


def named_values(texts: list[str] | None) -> dict[str, float | str] | None:
    """Return the values of texts such as `offset=0.5`: numbers where they are, else words."""
    values: dict[str, float | str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name.isidentifier() and equals and value):
            raise SettingsError(
                f"{text!r} is no parameter; expected NAME=VALUE, such as offset=0.5"
            )
        values[name] = _number(value)
    return values or None


def _number(text: str) -> float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def check_bounds(settings: Any) -> None:
    """Raise `SettingsError` for the first field that is out of the bounds it was given."""
    for known in dataclasses.fields(settings):
        _check_bounds(known, getattr(settings, known.name))


def as_form(kind: type[Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a dataclass of settings as the form of the UI wants it.

    The form cannot show a field of several types but as a row of buttons, and takes a default of
    null for a value. A field that may stay empty has one type and no default here, which the
    server reads as: or null.
    """
    fields = sorted(dataclasses.fields(kind), key=lambda each: not each.metadata["early"])
    properties = {each.name: _shown(each, schema["properties"][each.name]) for each in fields}
    for position, each in enumerate(properties.values()):
        # Databases keep no order.
        each["position"] = position
    return {**schema, "title": "Settings", "properties": properties}


def _shown(field: dataclasses.Field[Any], schema: dict[str, Any]) -> dict[str, Any]:
    kinds = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    if kinds:
        # Of several, text is the one that can be read as any.
        schema = {**schema, **kinds[-1]}
        del schema["anyOf"]
    if schema.get("default", "") is None:
        del schema["default"]
    if field.metadata["names"] is not None:
        schema = {**schema, "enum": field.metadata["names"]()}
    return {**schema, "title": field.metadata["title"] or _titled(field.name)}


def _titled(name: str) -> str:
    return name.replace("_", " ").capitalize()


# Each with what a value has to be.
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "{} or more"),
    "gt": (operator.gt, "a number above {}"),
    "le": (operator.le, "{} or less"),
    "lt": (operator.lt, "a number below {}"),
}


def _check_bounds(known: dataclasses.Field[Any], value: Any) -> None:
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"`{known.name}` is {value}; expected a finite number")
    for name, (holds, words) in _BOUNDS.items():
        bound = known.metadata.get(name)
        if bound is not None and not holds(value, bound):
            raise SettingsError(f"`{known.name}` is {value}; expected {words.format(bound)}")
