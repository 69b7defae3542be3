"""Faults are counted, and told in one table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fixtures import *  # noqa: F403
from fixtures import _serving  # noqa: F401
from tally import PROPERTY, Tally


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make chaos` counts: all faults but the few ones of `make test`."""
    for item in items:
        if "tally" in getattr(item, "fixturenames", ()) and "[few]" not in item.name:
            item.add_marker(pytest.mark.faults)


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Iterator[Callable[..., Tally]]:
    """Return what begins a row of the table; it is checked when the test ends."""
    rows: list[Tally] = []

    def begun(fault: str, aim: int) -> Tally:
        rows.append(Tally(fault, aim))
        return rows[-1]

    yield begun
    for row in rows:
        record_property(PROPERTY, row.row())
    for row in rows:
        row.check()
