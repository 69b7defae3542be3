"""Ways to run a command, and the Prefect server of the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browsing import Browsing
from commandline import Command, Ended
from serving import Serving

from storage.atomic import lock_file


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in this process: no time is lost with imports."""
    from flows.cli.app import main

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


@pytest.fixture(scope="session")
def _home_with_a_fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from flows.runs.fit import fit_plain
    from flows.settings.runs import FitSettings

    home = tmp_path_factory.mktemp("fitted") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(home))
        fit_plain(FitSettings(dataset="wine", run="mine"))
    return home


@pytest.fixture
def fitted_wine(_home_with_a_fit: Path) -> str:
    """Return the name of a run in the home of the test: a fit of Wine with all defaults."""
    shutil.copytree(_home_with_a_fit, os.environ["ISM_DASK_HOME"], dirs_exist_ok=True)
    return "mine"


@pytest.fixture
def _swinging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every iteration that has not ended be taken for a swing between two subspaces."""
    monkeypatch.setattr("ism_dask.records.stopping_rule.Stopping.is_stuck", lambda *_: True)


@pytest.fixture(scope="session")
def prefect_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty database of Prefect: making one takes three times as long as a start."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # all workers share one
    folder = root / "empty-prefect"
    with lock_file(root / "empty-prefect.lock"):
        if not folder.exists():
            made = tmp_path_factory.mktemp("prefect")
            subprocess.run(
                [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"],
                env={**os.environ, "PREFECT_HOME": str(made), "DO_NOT_TRACK": "1"},
                capture_output=True,
                check=True,
            )
            made.rename(folder)
    return folder / "prefect.db"


@pytest.fixture(scope="session")
def prefect_home(
    prefect_database: Path,
) -> Callable[[Path], Path]:
    """Return what makes a folder a home of Prefect where a server starts at once."""

    def prepared(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(prefect_database, folder)
        return folder

    return prepared


@pytest.fixture(scope="session")
def _serving(
    prefect_home: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    with _served(prefect_home(tmp_path_factory.mktemp("serving"))) as serving:
        yield serving


@pytest.fixture
def serving(_serving: Serving, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """Let commands of a test talk with a server that has pages."""
    return _talked_with(_serving, monkeypatch)


@pytest.fixture
def doomed(
    prefect_home: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Serving]:
    """Let commands of a test talk with a server that the test may kill."""
    with _served(prefect_home(tmp_path / "prefect")) as serving:
        yield _talked_with(serving, monkeypatch)


@pytest.fixture
def prefect_server(serving: Serving) -> Iterator[None]:
    """Let flows in this process run against the server."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: serving.api}):
        yield


@contextmanager
def _served(folder: Path) -> Iterator[Serving]:
    serving = Serving(folder, free_port())
    serving.start()
    try:
        yield serving
    finally:
        serving.kill()


def _talked_with(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> Serving:
    for name, value in serving.environment.items():
        monkeypatch.setenv(name, value)
    return serving


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
    return free_port()


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
