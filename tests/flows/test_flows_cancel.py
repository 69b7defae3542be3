"""Runs that are cancelled or interrupted: their Dask work stops, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest
from serving import Serving, running_worker
from support import EXACT, store_own
from waiting import ask, wait

from flows.services.leases import find_lease
from storage import Checkpoints, home

# Of a fit that would take many minutes.
LONG = {
    "dataset": "own",
    "sigma": "median",
    "criterion": "dependence",
    "engine": "exact",
    "tol": 1e-12,
    "max_iter": 1000,
    "n_components": 3,
}
COMMAND = ("fit", "own", "--sigma", "median", *EXACT, "--tol", "1e-12")
COMMAND += ("--max-iter", "1000", "-q", "3")
CANCELLING = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
SUSPENDED = {
    "state": {
        "type": "PAUSED",
        "name": "Suspended",
        "state_details": {"pause_reschedule": True, "pause_timeout": "2100-01-01T00:00:00Z"},
    }
}


@pytest.fixture(autouse=True)
def _long() -> None:
    store_own(50_000, 20)  # so that a pass takes seconds, and is shown


@pytest.fixture
def scheduler(cluster: Any) -> Iterator[Any]:
    """Return a client of a cluster that is not the command's own."""
    from distributed import Client

    with Client(cluster) as own:
        yield own


@pytest.mark.long
def test_deleted_in_the_ui_a_command_stops_and_says_so(serving: Serving) -> None:
    with _started(*COMMAND) as command:
        run = _link(command)
        wait(lambda: _told(serving, run))
        family = _family(command.pid)
        ask("DELETE", f"{serving.api}/flow_runs/{run}").raise_for_status()
        _, err = command.communicate(timeout=120)
    assert (command.returncode, err) == (130, "ism-dask: deleted in the Prefect UI\n")
    assert _gone(family)
    assert list((home() / "flow-runs").iterdir()) == []


@pytest.mark.long
def test_cancelled_in_the_ui_a_command_stops_and_says_so(serving: Serving, scheduler: Any) -> None:
    with _started(*COMMAND, "--scheduler", scheduler.scheduler.address) as command:
        run = _link(command)
        wait(lambda: _working(scheduler))
        wait(lambda: any("rows " in (each or "") for each in _told(serving, run)))
        assert f"{scheduler.dashboard_link})" in _shown(serving, run, "markdown")
        family = _family(command.pid)
        serving.post(f"flow_runs/{run}/set_state", CANCELLING)
        out, err = command.communicate(timeout=120)
    assert (command.returncode, err) == (130, "ism-dask: cancelled in the Prefect UI\n")
    assert out == ""
    assert serving.run(run)["state_type"] == "CANCELLED"
    assert _gone(family)
    wait(lambda: not _working(scheduler))
    assert list((home() / "flow-runs").iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_does_not_stay_running(
    serving: Serving, sent: signal.Signals
) -> None:
    with _started(*COMMAND) as command:
        run = _link(command)
        wait(lambda: _told(serving, run))
        family = _family(command.pid)
        command.send_signal(sent)
        _, err = command.communicate(timeout=120)
    assert err == "ism-dask: interrupted\n"
    # The second is how Python ends where `exec`, of a dataclass say, was what was interrupted.
    assert command.returncode in {130, -signal.SIGINT}
    assert serving.run(run)["state_type"] == "CANCELLED"
    assert _gone(family)


@pytest.mark.chaos
def test_suspended_in_the_ui_a_run_of_a_worker_stops_until_it_is_resumed(serving: Serving) -> None:
    deployment = serving.deployed("suspend")
    with running_worker(serving.api, "suspend"):
        sent = {"parameters": {"settings": {**LONG, "run": "suspended", "checkpoint": 0}}}
        run = serving.post(f"deployments/{deployment}/create_flow_run", sent)["id"]
        wait(lambda: _held("suspended") and Checkpoints.of_run("suspended").numbers)
        serving.post(f"flow_runs/{run}/set_state", SUSPENDED)
        wait(lambda: not _held("suspended"))
        # The state stays, whatever the worker and receipts say when the process has ended.
        time.sleep(3)
        assert serving.run(run)["state"]["name"] == "Suspended"
        serving.post(f"flow_runs/{run}/resume", {})
        wait(lambda: _held("suspended"))
        assert serving.run(run)["state_type"] == "RUNNING"
        serving.post(f"flow_runs/{run}/set_state", CANCELLING)
        wait(lambda: serving.run(run)["state_type"] == "CANCELLED")


def _held(run: str) -> bool:
    lease = find_lease(run)
    return lease is not None and lease.held


@pytest.mark.chaos
def test_cancelled_in_the_ui_a_run_of_a_worker_stops(serving: Serving, scheduler: Any) -> None:
    deployment = serving.deployed("cancel")
    worker = ("-m", "prefect", "worker", "start", "--pool", "cancel", "--type", "process")
    with _process(*worker, PREFECT_WORKER_QUERY_SECONDS="1") as process:
        settings = {**LONG, "scheduler": scheduler.scheduler.address}
        sent = {"parameters": {"settings": settings}}
        run = serving.post(f"deployments/{deployment}/create_flow_run", sent)["id"]
        wait(lambda: _working(scheduler))
        address = scheduler.scheduler.address
        place = address.removeprefix("tcp://")
        name = f"own-gaussian-q3: own gaussian q=3, engine exact, on {place}"
        wait(lambda: serving.run(run)["name"] == name)
        tags = {"own-gaussian-q3", "own", "gaussian", "q=3", "engine exact", place}
        assert set(serving.run(run)["tags"]) == tags
        family = [each for each in _family(process.pid) if each.pid != process.pid]
        assert family
        serving.post(f"flow_runs/{run}/set_state", CANCELLING)
        wait(lambda: not _working(scheduler))
        assert _gone(family)
        wait(lambda: serving.run(run)["state_type"] == "CANCELLED")


@contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with _process("-m", "flows.cli", *arguments) as process:
        yield process


@contextmanager
def _process(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    with ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        yield process


def _link(command: subprocess.Popen[str]) -> str:
    assert command.stdout is not None
    line = command.stdout.readline()
    assert "/runs/flow-run/" in line, line
    return line.strip().rpartition("/")[2]


def _working(client: Any) -> bool:
    return bool(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _gone(family: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(family, timeout=120)[1]


def _told(serving: Serving, run: str) -> list[str | None]:
    """Return what the progress of a run says."""
    wanted = {"flow_run_id": {"any_": [run]}, "type": {"any_": ["progress"]}}
    return [each["description"] for each in serving.find("artifacts", artifacts=wanted)]


def _shown(serving: Serving, run: str, kind: str) -> str:
    wanted = {"flow_run_id": {"any_": [run]}, "type": {"any_": [kind]}}
    return str(serving.find("artifacts", artifacts=wanted)[0]["data"])
