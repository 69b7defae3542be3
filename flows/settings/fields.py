"""Fields of settings, declared once for the command line, run files and the Prefect form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from flows.errors import SettingsError


def setting(
    default: Any = MISSING,  # without one and without flags, it is an argument of the command
    *,
    about: str,  # a description in one line
    decides: str = "result",  # see below
    flags: tuple[str, ...] = (),  # names of the option, if they differ from that of the field
    title: str = "",  # in the form, if it differs from the name of the field
    panel: str | None = None,  # the group of options in `--help` and in the form
    names: Callable[[], list[str]] | None = None,  # returns the names to choose from
    open_ended: bool = False,  # whether other values than these names are allowed
    check: Callable[[Any, str], None] | None = None,  # raises SettingsError for a value and name
    **bounds: float,  # ge, gt, le or lt, which pydantic checks in what `Checked.parse` makes
) -> Any:
    """Return a dataclass field that the command line, run files and the Prefect form can show.

    It `decides` the "result" of a flow, its numbers; or the "course" of a run, which is where it is
    computed, how far and how fast, but no number; or "nothing", as the name of a run does.
    """
    metadata = {
        "description": about,
        "decides": decides,
        "flags": flags,
        "title": title or None,
        "panel": panel,
        "names": names,
        "open_ended": open_ended,
        "check": check,
        "json_schema_extra": None if names is None else lambda schema: schema.update(enum=names()),
        **bounds,
    }
    return field(default=default, metadata=metadata)


# Fields in the groups of `--help` and of the form, in this order.
_PANELS = (None, "Data", "Kernel", "Clusters", "Solver", "Run", "Output")
data_setting = partial(setting, panel="Data")
kernel_setting = partial(setting, panel="Kernel")
clusters_setting = partial(setting, panel="Clusters")
solver_setting = partial(setting, panel="Solver")
components_setting = partial(
    solver_setting, None, title="New features, q", flags=("--components", "-q"), ge=1
)
run_setting = partial(setting, panel="Run")
course_setting = partial(run_setting, decides="course")
saving_setting = partial(run_setting, decides="nothing")
output_setting = partial(setting, panel="Output")


class Checked:
    """Base class of dataclasses of settings: bounds are checked by `parse`, all else always."""

    # Read by pydantic.
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            names, check = each.metadata["names"], each.metadata["check"]
            value = getattr(self, each.name)
            if value is not None and names is not None and not each.metadata["open_ended"]:
                check_choice(each.name, value, names())
            if value is not None and check is not None:
                check(value, each.name)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Make the settings from plain values; raise SettingsError for wrong keys or values."""
        # It imports pydantic, for which `--help` should not wait.
        from flows.settings.toml_tables import read_table  # noqa: PLC0415

        return read_table(cls, values)


def check_choice(name: str, value: str, names: Sequence[str]) -> str:
    """Return the value of the setting `name`; raise SettingsError unless it is one of `names`."""
    if value not in names:
        # It imports all of the storage, which `--help` should not wait for.
        from storage.errors import did_you_mean  # noqa: PLC0415

        hint = did_you_mean(value, names)
        raise SettingsError(
            f"`{name}` is {value!r}; {hint}expected one of {', '.join(names)}", name
        )
    return value


def check_suffix(out: Path, name: str, known: Sequence[str] = (".html", ".md", ".json")) -> None:
    """Raise SettingsError unless a file to write, by default a page, has a known suffix."""
    if out.suffix.lower() not in known:
        raise SettingsError(
            f"`{name}` is {str(out)!r}; expected a file name that ends in {' or '.join(known)}",
            name,
        )


def check_run_name(run: str, name: str) -> None:
    """Raise SettingsError unless `run`, the value of the setting `name`, can name a run."""
    from storage import UnsafeName, safe_name  # noqa: PLC0415 - imports all of the storage

    try:
        safe_name(run, name)
    except UnsafeName as error:
        raise SettingsError(str(error), *error.settings) from error


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the names in a text that separates them by commas, each once."""
    stripped = (name.strip() for name in (text or "").split(","))
    return tuple(dict.fromkeys(name for name in stripped if name))


def number_of(value: Any) -> Any:
    """Return a text as the number that it says, if it is one; the form and options have texts."""
    for kind in (int, float) if isinstance(value, str) else ():
        with suppress(ValueError):
            return kind(value)
    return value


def deciding(settings: Any) -> dict[str, Any]:
    """Return those settings of a flow that decide its result, in plain JSON; see `setting`."""
    values, every = dataclasses.asdict(settings), fields(settings)
    return {each.name: values[each.name] for each in every if each.metadata["decides"] == "result"}


def in_groups(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """Return the fields of settings in the order of their groups."""
    return sorted(fields(kind), key=lambda each: _PANELS.index(each.metadata["panel"]))


def flags_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the names of the option of the command line that sets a field."""
    return field.metadata["flags"] or (f"--{field.name.replace('_', '-')}",)


def command_words(kind: type[Any], values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line with those of the values of settings that decide the run.

    Values of None and defaults are left out, as are names without a field.
    """
    words: list[str] = []
    for each in fields(kind):
        value = values.get(each.name)
        if each.metadata["decides"] == "nothing" or value is None or value == each.default:
            continue
        if each.default is MISSING:
            words.insert(0, str(value))  # an argument
        elif isinstance(value, bool):
            words += [flags_of(each)[0]] * value
        else:
            words += [flags_of(each)[0], str(value)]
    return words


def as_form(kind: type[Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a dataclass of settings as the form of the Prefect UI needs it.

    The form shows a field of several types as a row of buttons, and takes a default of null for a
    value. A field that may stay empty therefore gets one type and no default, which the Prefect
    server reads as: or null.
    """
    # The position is explicit, as the database of the server need not preserve the order.
    properties = {}
    for position, each in enumerate(in_groups(kind)):
        shown = schema["properties"][each.name]
        types = [one for one in shown.pop("anyOf", []) if one.get("type") != "null"]
        # Text comes last, and any of the other types can be read from it.
        shown |= types[-1] if types else {}
        if each.default is None:
            # The server would refuse an empty field that has names: null is none of them.
            shown = {key: one for key, one in shown.items() if key not in ("default", "enum")}
        title = each.metadata["title"] or each.name.replace("_", " ").capitalize()
        properties[each.name] = {**shown, "title": title, "position": position}
    return {**schema, "title": "Settings", "properties": properties}
