"""Kernels from settings: one by its name with its parameters, or a sum of weighted kernels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from flows.errors import SettingsError
from flows.settings.base import import_choices
from flows.settings.fields import check_choice

if TYPE_CHECKING:
    from ism_dask.kernels import Kernel, PointwiseKernel

# The value of `kernel` for a sum, whose terms are given apart.
SUM = "sum"
_TERM = re.compile(r"\s*(?:([^*()]+)\*)?\s*(\w+)\s*(?:\((.*)\))?\s*")
_TERM_EXAMPLE = "0.5*polynomial(degree=2)"


def kernel_names() -> list[str]:
    """Return the names that the setting `kernel` may have."""
    return sorted([*import_choices().KERNELS, SUM])


def build_kernel(name: str, parameters: Mapping[str, Any], terms: Sequence[str] | None) -> Kernel:
    """Return the kernel that settings describe; raise SettingsError for what they cannot be.

    `name` is one of `kernel_names()`; `terms` are those of a sum, such as
    `0.5*polynomial(degree=2)`.
    """
    if check_choice("kernel", name, kernel_names()) != SUM:
        if terms:
            raise SettingsError(
                f"`terms` is given, but `kernel` is {name!r}: give kernel = {SUM!r}, or leave it "
                "out"
            )
        return _one(name, parameters)
    if not terms:
        raise SettingsError(
            f"`kernel` is {SUM!r}, but `terms` is empty; expected terms such as {_TERM_EXAMPLE}"
        )
    if parameters:
        raise SettingsError(
            f"`{next(iter(parameters))}` is given beside a sum of kernels; expected it in a term, "
            f"such as {_TERM_EXAMPLE}"
        )
    return reduce(add, map(_weighted_term, terms))


def term_text(term: Any) -> Any:
    """Return a term of a sum as a text, if it is a table: its `kernel`, `weight` and parameters."""
    if not isinstance(term, dict):
        return term
    values = [f"{key}={value}" for key, value in term.items() if key not in ("kernel", "weight")]
    return f"{term.get('weight', 1.0)}*{term.get('kernel', '')}({', '.join(values)})"


def kernel_record(name: str, kernel: Any) -> dict[str, Any]:
    """Return a fitted kernel in plain JSON, with the parameters computed from the data."""
    if name != SUM:
        return {"name": name, **_parameters(kernel)}
    names = {kind: name for name, kind in import_choices().KERNELS.items()}
    terms = []
    for weight, term in kernel.terms:
        table = {"kernel": names[type(term)], "weight": weight, **_parameters(term)}
        # As a user would write it.
        short = {key: f"{value:.6g}" for key, value in table.items() if isinstance(value, float)}
        terms.append(term_text(table | short))
    return {"name": SUM, "terms": terms}


def fitted_kernel(record: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a `kernel_record`, with the parameters that it was fitted with."""
    given = {name: value for name, value in record.items() if value is not None}
    return build_kernel(given.pop("name"), given, given.pop("terms", None))


def _weighted_term(text: str) -> Kernel:
    match = _TERM.fullmatch(text)
    if match is None:
        raise SettingsError(f"`terms` has {text!r}; expected a term such as {_TERM_EXAMPLE}")
    weight, name, arguments = match.groups()
    check_choice("terms", name, sorted(import_choices().KERNELS))
    kernel = _one(name, _named_values(arguments or ""))
    try:
        return kernel if weight is None else float(weight) * kernel
    except ValueError as error:
        raise SettingsError(
            f"`terms` has {text!r} with the weight {weight!r}; expected a positive number"
        ) from error


def _named_values(text: str) -> dict[str, str]:
    """Return the values of a text such as `degree=2, offset=0.5`."""
    values: dict[str, str] = {}
    for each in text.split(",") if text else ():
        name, equals, value = each.strip().partition("=")
        if not (name.isidentifier() and equals and value):
            raise SettingsError(
                f"{each.strip()!r} is no parameter; expected NAME=VALUE, such as offset=0.5"
            )
        values[name] = value
    return values


def number_of(value: Any) -> Any:
    """Return a text as the number that it says, if it is one; the form and options have texts."""
    for kind in (int, float) if isinstance(value, str) else ():
        with suppress(ValueError):
            return kind(value)
    return value


def _one(name: str, parameters: Mapping[str, Any]) -> PointwiseKernel:
    kind: Any = import_choices().KERNELS[name]
    allowed = [each.name for each in dataclasses.fields(kind) if each.init]
    foreign = [each for each in parameters if each not in allowed]
    if foreign:
        raise SettingsError(
            f"`{foreign[0]}` is no parameter of the {name} kernel, which takes "
            f"{' and '.join(allowed) or 'none'}; "
            f"{import_choices().did_you_mean(foreign[0], allowed)}leave it out or choose another "
            "kernel"
        )
    try:
        kernel: PointwiseKernel = kind(
            **{key: number_of(value) for key, value in parameters.items()}
        )
    except (TypeError, ValueError) as error:
        raise SettingsError(str(error)) from error
    return kernel


def _parameters(kernel: Any) -> dict[str, Any]:
    # The anchors of a kernel with per-row widths are data rows: they are not part of a summary.
    return {
        each.name: getattr(kernel, each.name) for each in dataclasses.fields(kernel) if each.repr
    }
