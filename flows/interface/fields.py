"""Fields of settings: each is declared once for the command line and the form of the Prefect UI."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any

from flows.errors import SettingsError


def setting(
    default: Any = dataclasses.MISSING,
    *,
    about: str,
    decides: str = "result",
    flags: tuple[str, ...] = (),
    title: str = "",
    early: bool = False,
    panel: str | None = None,
    cli_type: Any = None,
    cli_parse: Callable[[Any], Any] | None = None,
    names: Callable[[], list[str]] | None = None,
    default_factory: Any = dataclasses.MISSING,
    **bounds: float,
) -> Any:
    """Return a dataclass field that the command line and the Prefect form can show.

    Parameters
    ----------
    default : optional
        A field without a default is an argument of the command.
    about : str
        Description in one line.
    decides : str
        What depends on the value: the "result", its numbers; the "course" of a run, where it is
        computed, how far and how fast, but no number; or "nothing", as on its name.
    flags : tuple of str
        Names of the option, if they differ from the name of the field.
    title : str
        Title in the form, if it differs from the name of the field.
    early : bool
        Whether the form has the field among the first.
    panel : str, optional
        The group of options in which `--help` lists it.
    cli_type : type, optional
        Type that the command line parses, if it differs from the type of the field.
    cli_parse : callable, optional
        Turns what the command line has parsed into the value of the field.
    names : callable, optional
        Returns the names to choose from in the form.
    default_factory : callable, optional
        Makes the default, if it is a list.
    **bounds : float
        `ge`, `gt`, `le`, `lt`: the value must be at least, greater than, at most or less than the
        bound.
    """
    form_metadata = {"description": about, "title": title, "early": early, "names": names}
    command_metadata = {
        "flags": flags,
        "cli_type": cli_type,
        "cli_parse": cli_parse,
        "panel": panel,
    }
    metadata = {"decides": decides, **form_metadata, **command_metadata, **bounds}
    if default_factory is not dataclasses.MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


# Fields in the groups of `--help`.
data_setting = partial(setting, panel="Data")
kernel_setting = partial(setting, panel="Kernel")
clusters_setting = partial(setting, panel="Clusters")
solver_setting = partial(setting, panel="Solver")
run_setting = partial(setting, panel="Run")
output_setting = partial(setting, panel="Output")


def decisive_names(kind: type[Any], *what: str) -> list[str]:
    """Return the names of the settings of a flow that decide one of `what`; see `setting`."""
    return [each.name for each in dataclasses.fields(kind) if each.metadata["decides"] in what]


def deciding(settings: Any) -> dict[str, Any]:
    """Return those settings of a flow that decide its result, in plain JSON."""
    values = dataclasses.asdict(settings)
    return {name: values[name] for name in decisive_names(type(settings), "result")}


def as_options(kind: type[Any], values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that gives the fields of settings these values.

    Values of None and defaults are left out, as are names without a field.
    """
    words: list[str] = []
    for each in dataclasses.fields(kind):
        value = values.get(each.name)
        if value is None or value == each.default:
            continue
        if each.default is dataclasses.MISSING and not each.metadata["flags"]:
            words.insert(0, str(value))  # an argument
            continue
        flag = next(iter(each.metadata["flags"]), f"--{each.name.replace('_', '-')}")
        if isinstance(value, bool):
            words += [flag] * value
        elif isinstance(value, Mapping):
            words += [word for name in value for word in (flag, f"{name}={value[name]}")]
        else:
            several = value if isinstance(value, list | tuple) else [value]
            words += [word for one in several for word in (flag, str(one))]
    return words


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


def check_choice(name: str, value: str, names: Sequence[str]) -> str:
    """Return the value of the setting `name`; raise SettingsError unless it is one of `names`."""
    if value not in names:
        # It imports all of the storage, which `--help` should not wait for.
        from storage.errors import did_you_mean  # noqa: PLC0415

        hint = did_you_mean(value, names)
        raise SettingsError(f"`{name}` is {value!r}; {hint}expected one of {', '.join(names)}")
    return value


def check_bounds(settings: Any) -> None:
    """Raise SettingsError for the first field whose value violates its bounds."""
    for each in dataclasses.fields(settings):
        _check_bounds(each, getattr(settings, each.name))


def as_form(kind: type[Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a dataclass of settings as the form of the Prefect UI needs it.

    The form shows a field of several types as a row of buttons, and takes a default of null for a
    value. A field that may stay empty therefore gets one type and no default, which the Prefect
    server reads as: or null.
    """
    fields = sorted(dataclasses.fields(kind), key=lambda each: not each.metadata["early"])
    properties = {
        each.name: _form_property(each, schema["properties"][each.name]) for each in fields
    }
    for position, each in enumerate(properties.values()):
        # Explicit, because the database of the server need not preserve the order of a mapping.
        each["position"] = position
    return {**schema, "title": "Settings", "properties": properties}


def _form_property(field: dataclasses.Field[Any], schema: dict[str, Any]) -> dict[str, Any]:
    types = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    if types:
        # Text comes last, and any of the other types can be parsed from it.
        schema = {**schema, **types[-1]}
        del schema["anyOf"]
    if schema.get("default", "") is None:
        del schema["default"]
    # The server would refuse an empty field that has names: null is none of them.
    if field.metadata["names"] is not None and field.default is not None:
        schema = {**schema, "enum": field.metadata["names"]()}
    return {**schema, "title": field.metadata["title"] or _title_of(field.name)}


def _title_of(name: str) -> str:
    return name.replace("_", " ").capitalize()


# The comparison of a value with each kind of bound, and the wording of the expected value.
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "{} or more"),
    "gt": (operator.gt, "a number above {}"),
    "le": (operator.le, "{} or less"),
    "lt": (operator.lt, "a number below {}"),
}


def _check_bounds(field: dataclasses.Field[Any], value: Any) -> None:
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"`{field.name}` is {value}; expected a finite number")
    for name, (compare, wording) in _BOUNDS.items():
        bound = field.metadata.get(name)
        if bound is not None and not compare(value, bound):
            raise SettingsError(f"`{field.name}` is {value}; expected {wording.format(bound)}")
