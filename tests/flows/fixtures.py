"""Ways to run a command, and what tests share: servers, a Dask cluster, a home with runs."""

import os
import pickle
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import browsing
from daskparts import ran
from serving import Serving, ended, free_port, home_for_up, made_once, own_ports, start_up
from support import LOCAL, Diary, Ended, store_own


@pytest.fixture
def here(capfd, monkeypatch):
    """Run a command in this process: no time is lost with imports."""
    from flows.cli.app import main

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["ism-dask", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        out, err = capfd.readouterr()
        return Ended(ended.value.code, out, err)

    return run


@pytest.fixture
def apart():
    """Run a command as people do, in a process of its own."""

    def run(*arguments: object, **environment: str) -> Ended:
        ended = ran(sys.executable, "-m", "flows.cli", *arguments, **environment)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def diary():
    """Watch all that runs in this process, and remember what it says."""
    from flows.progress.watching import watch_progress

    diary = Diary()
    with watch_progress(diary):
        yield diary


@pytest.fixture
def local(tmp_path):
    """Return a cluster file: each run starts two workers of its own."""
    file = tmp_path / "local.toml"
    file.write_text(LOCAL)
    return file


@pytest.fixture(scope="session")
def home_of_runs(tmp_path_factory):
    return made_once(tmp_path_factory, "runs", _compute_runs)


def _compute_runs(folder: Path) -> None:
    """Compute a run of every kind, with its name, and two more fits: one cut short, one plain."""
    from flows.runs.clustering import run_cluster
    from flows.runs.crossval import run_crossval
    from flows.runs.fit import run_fit
    from flows.settings.runs import CrossvalSettings, FitSettings
    from flows.settings.unsupervised import ClusterSettings

    wine: Any = {"dataset": "wine", "criterion": "dependence"}
    digits = ClusterSettings(dataset="digits", n_clusters=4, run="cluster")
    cut_short = FitSettings(**wine, n_components=3, max_iter=1, run="unfinished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(folder / "home"))
        results = {
            "fit": run_fit(FitSettings(**wine, run="fit")),
            "unfinished": run_fit(cut_short),
            "mine": run_fit(FitSettings(dataset="wine", run="mine")),
            "cluster": run_cluster(digits),
            "crossval": run_crossval(CrossvalSettings(**wine, sigma="median", run="crossval")),
        }
    (folder / "results.pickle").write_bytes(pickle.dumps(results))


@pytest.fixture(scope="session")
def known(home_of_runs):
    """Return the result of a run of every kind by its name, from a home of all tests."""
    return pickle.loads((home_of_runs / "results.pickle").read_bytes())


@pytest.fixture
def results(home_of_runs, known):
    """Copy a run of every kind into the home of the test; return the result of each by its name."""
    here = Path(os.environ["ISM_DASK_HOME"])
    shutil.copytree(home_of_runs / "home", here)
    paths = {name: here / "runs" / name / "result" for name in known}
    return {name: replace(each, path=str(paths[name])) for name, each in known.items()}


@pytest.fixture
def fitted_wine(home_of_runs):
    """Return the name of the only run in the home of the test: a fit of Wine with all defaults."""
    for folder in ("datasets/wine", "runs/mine"):
        shutil.copytree(home_of_runs / "home" / folder, Path(os.environ["ISM_DASK_HOME"], folder))
    return "mine"


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory):
    """Return what makes a folder a home of Prefect where a server starts at once.

    It copies a database without rows: to make one takes three times as long as a start.
    """
    made = made_once(tmp_path_factory, "empty-prefect", _make_database)

    def prepared(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / "prefect.db", folder)
        return folder

    return prepared


def _make_database(folder: Path) -> None:
    upgrade = ("-m", "prefect", "server", "database", "upgrade", "-y")
    ran(sys.executable, *upgrade, PREFECT_HOME=str(folder), DO_NOT_TRACK="1").check_returncode()


@contextmanager
def _started(prefect_home: Callable[[Path], Path], folder: Path) -> Iterator[Serving]:
    serving = Serving(prefect_home(folder), free_port())
    serving.start()
    try:
        yield serving
    finally:
        serving.kill()


@pytest.fixture(scope="session")
def _serving(prefect_home, tmp_path_factory):
    with _started(prefect_home, tmp_path_factory.mktemp("prefect")) as serving:
        yield serving


@pytest.fixture
def serving(_serving, monkeypatch):
    """Let commands of a test talk with the server of all tests of this process, with its pages."""
    return _talked_with(_serving, monkeypatch)


@pytest.fixture
def doomed(prefect_home, tmp_path, monkeypatch):
    """Let commands of a test talk with a server that the test may kill."""
    with _started(prefect_home, tmp_path / "prefect") as serving:
        yield _talked_with(serving, monkeypatch)


@pytest.fixture
def prefect_server(serving):
    """Let flows in this process run against the server."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: serving.api}):
        yield


def _talked_with(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> Serving:
    for name, value in serving.environment.items():
        monkeypatch.setenv(name, value)
    return serving


@pytest.fixture(scope="session")
def _started_up(prefect_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with home_for_up(home, prefect_home) as patch:
        patch.setenv("PREFECT_WORKER_QUERY_SECONDS", "2")
        up = start_up(*own_ports(), "--workers", 2, "--memory", "500MB")
        store_own(20_000)  # a form knows the data sets that there are when it is deployed
    yield up
    with home_for_up(home, prefect_home), ended(up):
        pass


@pytest.fixture
def up(_started_up, monkeypatch):
    """Look at the one `ism-dask up` of all tests, from the same home.

    The tests that use it run one after the other, in one process; the last one ends it.
    """
    for name in ("ISM_DASK_HOME", "PREFECT_WORKER_QUERY_SECONDS"):
        monkeypatch.setenv(name, _started_up.environment[name])
    return _started_up


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Return the one `LocalCluster` of all tests: two processes of a thread each."""
    with _local_cluster(tmp_path_factory, processes=True, host="127.0.0.1") as local:
        yield local


@pytest.fixture(scope="session")
def thread_cluster(tmp_path_factory):
    """Return a `LocalCluster` in this process, for many small tasks."""
    with _local_cluster(tmp_path_factory, processes=False) as local:
        yield local


def _local_cluster(tmp_path_factory: pytest.TempPathFactory, **kind: Any) -> Any:
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path_factory.mktemp("dask")),
        **kind,
    )


@pytest.fixture(scope="session")
def browser():
    """Return what opens a page in a real browser; without one, skip or, if it is required, fail."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        absent = "there is no chromium to open pages with: `make browser` installs it"
        (pytest.fail if os.environ.get("ISM_DASK_REQUIRE_BROWSER") else pytest.skip)(absent)
    with browsing(found) as visit:
        yield visit
