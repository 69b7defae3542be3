"""A Prefect server in a process of its own, with its pages, that tests may kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sharing import kill_family
from waiting import answers, ask, wait

from flows.settings.runs import FitSettings


def answer_of(api: str, method: str, what: str, **more: Any) -> httpx.Response:
    """Return the answer of a Prefect server; if it is too busy, try again, as its UI does."""

    def answer() -> httpx.Response | None:
        reply = ask(method, f"{api}/{what}", **more)
        return None if reply.status_code == httpx.codes.SERVICE_UNAVAILABLE else reply

    return wait(answer)


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

    def events(self, **about: Any) -> list[Any]:
        """Return the events that fit a filter."""
        return list(self.post("events/filter", {"filter": about})["events"])

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

    def deployed(self, pool: str, **more: Any) -> str:
        """Let the flow `fit` be started from the UI, by a pool; return the id of the deployment."""
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.actions import WorkPoolCreate
        from prefect.flows import EntrypointType
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from flows.run_flows import fit

        by_module: dict[str, Any] = {"entrypoint_type": EntrypointType.MODULE_PATH, **more}
        with temporary_settings({PREFECT_API_URL: self.api}):
            with get_client(sync_client=True) as client:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"), overwrite=True)
            return str(fit.to_deployment(pool, work_pool_name=pool, **by_module).apply())


class Serving(PrefectApi):
    """A server that can be started more than once, on the same port and database.

    Parameters
    ----------
    folder : Path
        Its home.
    port : int
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.page = f"http://127.0.0.1:{port}"
        self.api = f"{self.page}/api"
        self.environment = {
            "PREFECT_HOME": str(folder),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_V2_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }
        self._command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
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
        if self._process is None or self._process.poll() is not None:
            return
        kill_family(self._process.pid)
        self._process.wait()

    def leave(self) -> int:
        """Leave it to others to end it; return the number of its process."""
        assert self._process is not None
        self._process.returncode = 0  # no warning that it still runs
        return self._process.pid


@contextmanager
def running_worker(api: str, pool: str) -> Iterator[None]:
    """Keep a worker that takes up what is due in a pool of a server."""
    command = ["prefect", "worker", "start", "--pool", pool, "--type", "process"]
    own = {"PREFECT_API_URL": api, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **own},
    )
    try:
        yield
    finally:
        kill_family(process.pid)
        process.wait()
