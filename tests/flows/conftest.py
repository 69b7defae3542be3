"""Ways to run a command, and the Prefect server of the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from browsing import Browsing
from commandline import Command, Ended


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in this process: no time is lost with imports."""
    from flows.cli import main

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["ism-dask", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Ended(ended.value.code, out, err)

    return run


@pytest.fixture
def apart() -> Command:
    """Run a command as people do, in a process of its own."""

    def run(*arguments: object, **environment: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "flows.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=200,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def _swinging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every iteration that has not settled be taken for a swing between two subspaces."""
    monkeypatch.setattr("ism_dask.solver.Stopping.swings", lambda *_: True)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let flows of the session run against a server of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
        patch.setenv("DO_NOT_TRACK", "1")
        patch.delenv("PREFECT_API_URL", raising=False)
        from prefect.testing.utilities import prefect_test_harness

        with prefect_test_harness(server_startup_timeout=120):
            yield


@pytest.fixture(scope="session")
def browser() -> Iterator[Browsing]:
    """Return a real browser, or skip; where ISM_DASK_REQUIRE_BROWSER is set there has to be one."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        absent = "there is no chromium to open pages with: `make browser` installs it"
        (pytest.fail if os.environ.get("ISM_DASK_REQUIRE_BROWSER") else pytest.skip)(absent)
    with Browsing(found) as browsing:
        yield browsing


@pytest.fixture
def unused_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
