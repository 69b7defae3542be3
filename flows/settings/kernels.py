"""A kernel from settings, by its name and parameters; and the record of a fitted one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flows.errors import SettingsError
from flows.settings.base import import_choices
from flows.settings.fields import check_choice

if TYPE_CHECKING:
    from ism_dask.kernels import Kernel


def kernel_names() -> list[str]:
    """Return the names that the setting `kernel` may have."""
    return sorted(import_choices().KERNELS)


def build_kernel(name: str, parameters: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a name; raise SettingsError for parameters that it does not take."""
    kind: Any = import_choices().KERNELS[check_choice("kernel", name, kernel_names())]
    allowed = [each.name for each in dataclasses.fields(kind) if each.init]
    foreign = [each for each in parameters if each not in allowed]
    if foreign:
        raise SettingsError(
            f"`{foreign[0]}` is no parameter of the {name} kernel, which takes "
            f"{' and '.join(allowed) or 'none'}; leave it out or choose another kernel",
            foreign[0],
        )
    try:
        kernel: Kernel = kind(**{key: number_of(value) for key, value in parameters.items()})
    except (TypeError, ValueError) as error:
        raise SettingsError(str(error), *parameters) from error
    return kernel


def kernel_record(name: str, kernel: Any) -> dict[str, Any]:
    """Return a fitted kernel in plain JSON, with the parameters computed from the data."""
    # The anchors of a kernel with per-row widths are data rows: they are not part of a summary.
    parameters = (each.name for each in dataclasses.fields(kernel) if each.repr)
    return {"name": name, **{each: getattr(kernel, each) for each in parameters}}


def fitted_kernel(record: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a `kernel_record`, with the parameters that it was fitted with."""
    given = {name: value for name, value in record.items() if value is not None}
    return build_kernel(given.pop("name"), given)


def number_of(value: Any) -> Any:
    """Return a text as the number that it says, if it is one; the form and options have texts."""
    for kind in (int, float) if isinstance(value, str) else ():
        with suppress(ValueError):
            return kind(value)
    return value
