"""Fixtures for all tests: a home of their own, and the paper's raw files where they exist."""

import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tally import PROPERTY, table

# Test files run side by side. BLAS threads wait by spinning, so with one thread per core in each
# process they take the cores from each other: Phi0 of 960 columns took 7 s of CPU time, not 0.3 s.
# NumPy reads these when it is imported, which happens later; processes of the tests inherit them.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
# A suite that is started in the background, or by nohup, ignores what ends a command at a
# terminal, and so would the commands that it runs.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# How long an example takes says nothing where other tests run beside it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


pytest_plugins = ["tests.flows.fixtures"]

# Tests that share one of these run in one process, one after the other.
SHARED = ("up", "cluster", "thread_cluster")
# Those of a file that use one of these do, too: each looks at what the tests before it have left.
SERVERS = {"serving", "_serving", "prefect_server", "doomed"}
# A test that uses one of these takes its time, and is long unless it is the one smoke test.
SLOW = {*SERVERS, "up", "cluster", "browser"}
# The seconds of CPU time that a test may take: three of a quiet core, twice that of a slow one.
BUDGET = float(os.environ.get("ISM_DASK_TEST_SECONDS", "6"))
SECONDS = "seconds of CPU time"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Deal tests that share something expensive to one process, and mark the slow ones as long.

    xdist looks for groups later.
    """
    if group := _group(item):
        item.add_marker(pytest.mark.xdist_group(group))
    fixtures = {*getattr(item, "fixturenames", ())}
    if SLOW & fixtures and item.get_closest_marker("smoke") is None:
        item.add_marker(pytest.mark.long)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest.

    Groups are dealt whole, so that they come first, and single tests fill the time that is left.
    """
    items.sort(key=_rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note the CPU time of a test; the clock on the wall would count what else is running."""
    begun = time.process_time()
    try:
        return (yield)
    finally:
        if not any(map(item.get_closest_marker, ("long", "chaos"))):
            item.user_properties.append((SECONDS, time.process_time() - begun))


def _group(item: pytest.Item) -> str:
    """Return the name of those that run with a test in one process; empty if it may be alone."""
    fixtures = getattr(item, "fixturenames", ())
    for name in SHARED:
        if name in fixtures:
            return name
    scopes = {each[-1].scope for each in item._fixtureinfo.name2fixturedefs.values()}
    return item.path.stem if "module" in scopes or SERVERS & {*fixtures} else ""


def _rank(item: pytest.Item) -> int:
    """Return the place of a test among all: `up`, other groups, pages and notebooks, all others."""
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        return 0 if group.args == ("up",) else 1
    return 2 if item.path.parent == Path(__file__).parent else 3


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the chaos suite has counted, and which tests are too slow."""
    # Rows are noted when a test has ended, be it well or not.
    rows = [value for _, name, value in _noted(terminalreporter, "", "error") if name == PROPERTY]
    if rows:
        terminalreporter.section("chaos")
        for line in table(sorted(rows, key=lambda row: row["fault"])):
            terminalreporter.write_line(line)
    noted = _noted(terminalreporter, "passed", "failed")
    slow = [(value, test) for test, name, value in noted if name == SECONDS and value > BUDGET]
    if slow:
        terminalreporter.section(f"too slow: over {BUDGET:g} {SECONDS}; make them smaller, or long")
        for seconds, test in sorted(slow, reverse=True):
            terminalreporter.write_line(f"{seconds:6.1f} s  {test}")


def _noted(terminalreporter: pytest.TerminalReporter, *kinds: str) -> list[tuple[str, str, Any]]:
    """Return what tests have noted, each with the test and the name of what it is."""
    reports = [each for kind in kinds for each in terminalreporter.stats.get(kind, [])]
    return [
        (each.nodeid, *pair) for each in reports for pair in getattr(each, "user_properties", [])
    ]


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    """Keep tests out of the user's home, and from the user's Prefect server."""
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path / "home"))
    # Set first, so that the address goes again that a command in this process leaves there.
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.delenv("PREFECT_API_URL")


@pytest.fixture(scope="session", autouse=True)
def _fewer_draws():
    """Let `intervals` draw W a tenth as often, which takes most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ism_dask.inference.intervals._DRAWS", 99)
        yield


@pytest.fixture
def reference_data(monkeypatch):
    """Return the folder of raw files, or skip; `ISM_DASK_DATA` names it during the test."""
    beside_the_checkout = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("ISM_DASK_DATA") or beside_the_checkout)
    if not folder.is_dir():
        absent = "the raw files are not here: set ISM_DASK_DATA to their folder"
        # CI must not pass by skipping the tests that reproduce the paper's figures.
        (pytest.fail if os.environ.get("ISM_DASK_REQUIRE_DATA") else pytest.skip)(absent)
    monkeypatch.setenv("ISM_DASK_DATA", str(folder))
    return folder


@pytest.fixture(scope="session")
def s3_endpoint():
    """Run an S3 server on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def lake(s3_endpoint, monkeypatch, request):
    """Return the address of an empty bucket, with credentials in the environment."""
    import boto3

    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key-of-the-test"),
        ("AWS_SECRET_ACCESS_KEY", "secret-of-the-test"),
        ("AWS_ENDPOINT_URL", s3_endpoint),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    bucket = f"lake-{abs(hash(request.node.name))}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}"
