"""`ism-dask up` in a process of its own, and where processes listen."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from serving import PrefectApi, answer_of

from flows.services.service import service_processes
from flows.supervisor import stop_all

LOOPBACK = {"127.0.0.1", "::1"}


@dataclass(frozen=True)
class RunningUp(PrefectApi):
    """An `ism-dask up` in the foreground of a terminal."""

    process: subprocess.Popen[str]
    environment: Mapping[str, str]
    answer: dict[str, Any]

    @property
    def api(self) -> str:  # type: ignore[override]
        return str(self.answer["api"])

    @property
    def members(self) -> list[psutil.Process]:
        return [psutil.Process(self.process.pid), *service_processes()]

    @property
    def soon(self) -> str:
        """The deployment that runs again and again."""
        return str(self.deployment("fit/soon")["id"])

    def begun(self, **settings: object) -> httpx.Response:
        """Return the answer to a request for a run of the deployment, with settings of its own."""
        sent = {"parameters": {"settings": settings}}
        return answer_of(self.api, "POST", f"deployments/{self.soon}/create_flow_run", json=sent)

    def run_that_is(self, state: str) -> Any:
        """Return the run of the deployment that is in a state, if there is one."""
        runs = self.find("flow_runs", deployments={"id": {"any_": [self.soon]}})
        assert not [run for run in runs if run["state_type"] in ("FAILED", "CRASHED")], runs
        return next((run for run in runs if run["state_type"] == state), None)


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
    assert process.stdout is not None
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


def begun(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a command beside the block, and kill it if it outlives that."""
    with begun(*arguments) as command:
        try:
            yield command
        finally:
            command.kill()


def flow_run_of(command: subprocess.Popen[str]) -> str:
    """Wait until a command has begun its flow run; return the id."""
    assert command.stdout is not None
    line = command.stdout.readline()
    assert "/runs/flow-run/" in line, line
    return line.strip().rpartition("/")[2]


def heard_of(command: subprocess.Popen[str]) -> set[str]:
    """Return the addresses that a command and those it starts listen on, until its good end."""
    found = set()
    with command:
        while command.poll() is None:
            found |= {host for each in living(command.pid) for host, _ in heard(each)}
            time.sleep(0.1)  # who listens does so for seconds
    assert command.returncode == 0
    return found


def heard(process: psutil.Process) -> list[tuple[str, int]]:
    try:
        connections = process.net_connections()
    except psutil.NoSuchProcess:
        return []
    return [tuple(each.laddr) for each in connections if each.status == psutil.CONN_LISTEN]


def living(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def listened(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
