"""Faults are counted, and told in one table at the end."""

import pytest
from fits import LOCAL, Fit, Whole
from support import store_own
from tally import PROPERTY, Tally

# Files, and tests of other files, whose faults need a cluster or a server to start and to be
# killed: up to a minute each.
_MINUTE = (
    "test_chaos_cluster",
    "test_chaos_machines",
    "test_chaos_network",
    "test_chaos_prefect",
    "test_chaos_refresh",
    "test_chaos_up",
    "test_chaos_workers",
    "test_a_worker_is_killed_during_an_ingestion",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make chaos` counts, all faults but the few ones; and which few ones are long."""
    for item in items:
        few = item.name.endswith(("[few]", "-few]"))
        if few and {item.path.stem, item.name.split("[")[0]} & {*_MINUTE}:
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return what the fit comes to on a cluster where nothing dies."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(folder / "home"))
        store_own(3_000, 10)
        assert Fit("whole", _local(folder), folder).ended(200)
        return Whole("whole")


@pytest.fixture
def local(tmp_path):
    store_own(3_000, 10)
    return _local(tmp_path)


def _local(folder):
    file = folder / "local.toml"
    file.write_text(LOCAL)
    return file
