"""Processes of tests: Prefect servers, `ism-dask up`, and those that all tests share."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
from daskparts import process
from waiting import answers, ask, wait

from flows.services.service import service_processes
from flows.settings.runs import FitSettings
from flows.supervisor import stop_all
from storage.atomic import lock_file


def answer_of(api: str, method: str, what: str, **more: Any) -> httpx.Response:
    """Return the answer of a Prefect server; if it is too busy, try again, as its UI does."""

    headers = {} if method == "GET" else _token(api, more.get("auth"))

    def answer() -> httpx.Response | None:
        reply = ask(method, f"{api}/{what}", headers=headers, **more)
        return None if reply.status_code == httpx.codes.SERVICE_UNAVAILABLE else reply

    return wait(answer)


def _token(api: str, auth: Any) -> dict[str, str]:
    """Return what a server of `up` demands of those who send something: a token it has given."""
    # A token ends with the next one of its client, which another process of the tests may ask for.
    client = uuid4().hex
    reply = ask("GET", f"{api}/csrf-token", params={"client": client}, auth=auth)
    token = reply.json()["token"] if reply.is_success else ""
    return {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": client}


# The states of runs that are over.
OVER = ("COMPLETED", "CRASHED", "FAILED", "CANCELLED")
CANCELLING = {"state": {"type": "CANCELLING", "name": "Cancelling"}}


class PrefectApi:
    """A Prefect server, as its UI talks with it."""

    api: str

    def run(self, identity: str) -> Any:
        """Return a flow run."""
        return self.request("GET", f"flow_runs/{identity}").json()

    def deployment(self, name: str) -> Any:
        """Return the deployment of a flow by both their names."""
        return self.request("GET", f"deployments/name/{name}").json()

    def find(self, what: str, **wanted: Any) -> Any:
        """Return all of a kind that fit."""
        return self.post(f"{what}/filter", wanted)

    def runs_of(self, deployment: str) -> list[Any]:
        """Return the runs of a deployment, oldest first."""
        only = {"name": {"any_": [deployment]}}
        return list(self.find("flow_runs", deployments=only, sort="EXPECTED_START_TIME_ASC"))

    def tasks_of(self, run: str) -> dict[str, str]:
        """Return the states of the tasks of a run by their names."""
        found = self.find("task_runs", flow_runs={"id": {"any_": [run]}})
        return {task["name"]: task["state_type"] for task in found}

    def artifacts_of(self, run: str, kind: str) -> list[Any]:
        """Return the artifacts of a kind of a run."""
        wanted = {"flow_run_id": {"any_": [run]}, "type": {"any_": [kind]}}
        return list(self.find("artifacts", artifacts=wanted))

    def logs_of(self, run: str) -> list[Any]:
        """Return the lines of the log of a run, in order."""
        only = {"flow_run_id": {"any_": [run]}}
        return list(self.find("logs", logs=only, sort="TIMESTAMP_ASC"))

    def begin(self, deployment: str, settings: FitSettings | None = None) -> str:
        """Begin a run of a deployment, and return its id."""
        sent = {} if settings is None else {"parameters": {"settings": settings.to_json()}}
        return str(self.post(f"deployments/{deployment}/create_flow_run", sent)["id"])

    def post(self, what: str, content: Any) -> Any:
        """Send something to the API as the UI does."""
        return self.request("POST", what, json=content).json()

    def request(self, method: str, what: str, **more: Any) -> httpx.Response:
        """Return the answer of the API, which has to be a good one."""
        return answer_of(self.api, method, what, **more).raise_for_status()

    def deployed(self, pool: str, flow: str = "fit", **more: Any) -> str:
        """Let a flow be started from the UI, by a pool; return the id of the deployment."""
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.actions import WorkPoolCreate
        from prefect.flows import EntrypointType
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from flows import run_flows

        by_module: dict[str, Any] = {"entrypoint_type": EntrypointType.MODULE_PATH, **more}
        with temporary_settings({PREFECT_API_URL: self.api}):
            with get_client(sync_client=True) as client:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"), overwrite=True)
            by_module["work_pool_name"] = pool
            return str(getattr(run_flows, flow).to_deployment(pool, **by_module).apply())


class Serving(PrefectApi):
    """A server that can be started more than once, on the same port and database in its folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.page = f"http://127.0.0.1:{port}"
        self.api = f"{self.page}/api"
        self.environment = {
            "PREFECT_HOME": str(folder),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_V2_ENABLED": "false",
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
            "DO_NOT_TRACK": "1",
        }
        self._command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        self._log = folder / "server.log"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._command],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait(lambda: answers(f"{self.api}/health"))

    def kill(self) -> None:
        """End it without a chance to do anything."""
        if self._process.poll() is None:
            kill_family(self._process.pid)
            self._process.wait()


@contextmanager
def running_worker(api: str, pool: str) -> Iterator[None]:
    """Keep a worker that takes up what is due in a pool of a server."""
    command = ("-m", "prefect", "worker", "start", "--pool", pool, "--type", "process")
    own = {"PREFECT_API_URL": api, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    with process(sys.executable, *command, **own) as started:
        try:
            yield
        finally:
            kill_family(started.pid)


@dataclass(frozen=True)
class RunningUp(PrefectApi):
    """An `ism-dask up` in the foreground of a terminal."""

    process: subprocess.Popen[str]
    environment: Mapping[str, str]
    answer: dict[str, Any]

    def where(self, name: str) -> Any:
        """Return address, page and log of a service."""
        return next(each for each in self.answer["services"] if each["name"] == name)

    @property
    def api(self) -> str:  # type: ignore[override]
        return str(self.where("up")["address"])

    @property
    def ui(self) -> str:
        return str(self.where("up")["page"])

    @property
    def members(self) -> list[psutil.Process]:
        return [psutil.Process(self.process.pid), *service_processes()]


@contextmanager
def home_for_up(folder: Path, prefect_home: Callable[[Path], Path]) -> Iterator[pytest.MonkeyPatch]:
    """Let `folder` be the home, in which `up` finds the tables of a Prefect server made already."""
    if not (folder / "prefect").exists():
        prefect_home(folder / "prefect")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(folder))
        patch.delenv("PREFECT_HOME", raising=False)
        patch.delenv("PREFECT_API_URL", raising=False)
        yield patch


@contextmanager
def ended(up: RunningUp) -> Iterator[RunningUp]:
    """End `up`, and all that it has started, after the block, and print what it said."""
    try:
        yield up
    finally:
        up.process.kill()
        print(*up.process.communicate())
        stop_all()


def start_up(*options: object) -> RunningUp:
    """Start `ism-dask up` in a process of its own, and wait until it says that all is up."""
    process = begun("up", *options, "--json")
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate())
    return RunningUp(process, dict(os.environ), json.loads(line))


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def own_ports() -> tuple[object, ...]:
    """Return options for ports that no other `up` takes, which may start at the same moment."""
    names = ("--port", "--report-port", "--scheduler-port", "--dashboard-port")
    return tuple(each for name in names for each in (name, free_port()))


def begun(
    *arguments: object, environment: Mapping[str, str] | None = None, **more: Any
) -> subprocess.Popen[str]:
    """Begin a command, with more in its environment perhaps."""
    inherited = {name: each for name, each in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **(environment or {})},
        **more,
    )


@contextmanager
def running(*arguments: object, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command beside the block, and kill it if it outlives that."""
    with begun(*arguments, **more) as command:
        try:
            yield command
        finally:
            command.kill()


def flow_run_of(command: subprocess.Popen[str]) -> str:
    """Wait until a command has begun its flow run; return the id."""
    line = command.stdout.readline()
    assert "/runs/flow-run/" in line, line
    return line.strip().rpartition("/")[2]


def heard(process: psutil.Process) -> list[tuple[str, int]]:
    with suppress(psutil.NoSuchProcess):
        connections = process.net_connections()
        return [tuple(each.laddr) for each in connections if each.status == psutil.CONN_LISTEN]
    return []


def living(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def listened(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first process of this run of tests that needs it makes."""
    own = factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    made, whole = folder / name, folder / f"{name}.whole"
    with lock_file(folder / f"{name}.lock"):
        if not whole.exists():
            made.mkdir()
            make(made)
            whole.touch()
    return made


def kill_family(pid: int) -> None:
    """Kill a process, and those that it has started."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for each in [*parent.children(recursive=True), parent]:
            each.kill()
