"""Faults are counted, and told in one table at the end."""

import pytest
from tally import PROPERTY, Tally

# In others, faults need a cluster or a server to start and to be killed: up to a minute each.
_QUICK = ("test_chaos_files", "test_chaos_hostile")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make chaos` counts, all faults but the few ones; and which few ones are long."""
    for item in items:
        few = item.name.endswith(("[few]", "-few]"))
        if few and item.path.stem not in _QUICK:
            item.add_marker(pytest.mark.long)
        if "tally" in getattr(item, "fixturenames", ()) and not few:
            item.add_marker(pytest.mark.faults)


@pytest.fixture
def tally(record_property):
    """Return what begins a row of the table; it is checked when the test ends."""
    rows: list[Tally] = []

    def begun(fault, aim):
        rows.append(Tally(fault, aim))
        return rows[-1]

    yield begun
    for row in rows:
        record_property(PROPERTY, row.row())
    for row in rows:
        row.check()
