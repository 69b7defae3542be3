"""The registry of the figures: functions that measure something and check its target.

A figure is a dict of numbers with `must`, its target in words, and `met`, whether it is met. It may
also have `table`, a list of lines with the same keys; `more_tables`, such lists by title;
`peak_limit_gb`, the most memory of all processes together; `picture`, the path below docs of a
picture that it draws; and `notes`, lines of text that bench.json has beside the numbers. A function
with parameters measures a part of its figure.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from benchmarks.measure import Figure

_ROOMS = ("benchmarks.studies", "benchmarks.speed")
_figures: dict[str, Callable[..., Figure]] = {}
_only_by_name: set[str] = set()


def figure(measure: Callable[..., Figure]) -> Callable[..., Figure]:
    """Register a figure under the name of the function that measures it."""
    _figures[measure.__name__] = measure
    return measure


def long_figure(measure: Callable[..., Figure]) -> Callable[..., Figure]:
    """Register a figure that is measured only if it is named.

    It takes many minutes, space on the disk, or packages that others do without.
    """
    _only_by_name.add(measure.__name__)
    return figure(measure)


def all_figures() -> dict[str, Callable[..., Figure]]:
    """Return all figures by their names, in the order of the modules of the rooms."""
    for room in _ROOMS:
        for module in iter_modules(import_module(room).__path__):
            import_module(f"{room}.{module.name}")
    return _figures


def figures_of_make_bench() -> list[str]:
    """Return the names of the figures that are measured without being named."""
    return [name for name in all_figures() if name not in _only_by_name]
