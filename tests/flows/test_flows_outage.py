"""A Prefect server that goes away in the middle of a run, and one whose runs are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from commandline import Command
from serving import Serving
from support import EXACT, store_own
from upkeep import flow_run_of

from storage import home, run_folder

# The command, with another patience than a minute for a server that is away.
COMMAND = (
    "from flows.tracking import flow_run; flow_run._PATIENCE = {}; "
    "from flows.cli import main; main()"
)
LEVELS = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL")
FIT = (*EXACT, "--tol", "1e-12", "-q", "3")


@pytest.fixture
def started() -> Iterator[ExitStack]:
    """Let the processes of a test end with it."""
    with ExitStack() as stack:
        yield stack


def fit(stack: ExitStack, run: str, patience: float, iterations: int) -> subprocess.Popen[str]:
    """Start a fit that takes some seconds."""
    own = ("fit", "own", "--run", run, "--max-iter", str(iterations), *FIT)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(patience), *own],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a command sets before it imports Prefect.
        env={**os.environ, **dict.fromkeys(LEVELS, "CRITICAL")},
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


@pytest.mark.chaos
def test_a_run_outlives_its_server_and_a_killed_one_is_not_taken_for_running(
    doomed: Serving, apart: Command, started: ExitStack
) -> None:
    store_own(12_000, 20)
    killed = fit(started, "killed", 60, 1000)
    crashed = flow_run_of(killed)
    killed.kill()
    killed.communicate()
    assert doomed.run(crashed)["state_type"] == "RUNNING"
    impatient, patient = (fit(started, name, wait, 5) for name, wait in (("a", 1), ("b", 60)))
    runs = [flow_run_of(impatient), flow_run_of(patient)]
    state = doomed.run(crashed)["state"]
    ended = f"Its process {killed.pid} ended without a word."
    assert (state["type"], state["message"]) == ("CRASHED", ended)
    doomed.kill()

    out, err = impatient.communicate(timeout=120)
    assert (impatient.returncode, err) == (0, "")
    assert f"the Prefect server at {doomed.api} does not answer: waiting for it" in out
    assert "the next command that finds it there tells it how this run has ended" in out
    assert "Objective J" in out
    assert (run_folder("a") / "result").exists()
    assert "waiting for it, up to 60 s" in patient.stdout.readline()
    assert patient.poll() is None

    doomed.start()
    assert patient.wait(120) == 0
    # It has reported its own run; the next command reports that of the other process.
    assert [doomed.run(run)["state_type"] for run in runs] == ["RUNNING", "COMPLETED"]
    assert apart("ingest", "wine", "--quiet").status == 0
    for run in runs:
        assert doomed.run(run)["state_type"] == "COMPLETED"
        # Those that the server has heard of: what is sent to one that is away may be lost.
        assert set(_tasks(doomed, run).values()) <= {"COMPLETED"}
        wanted = {"flow_run_id": {"any_": [run]}, "type": {"any_": ["markdown"]}}
        (page,) = doomed.find("artifacts", artifacts=wanted)
        assert page["data"].startswith("# ")
    assert list((home() / "flow-runs").iterdir()) == []


def _tasks(doomed: Serving, run: str) -> dict[str, str]:
    """Return the states of the tasks of a run by their names."""
    found = doomed.find("task_runs", flow_runs={"id": {"any_": [run]}})
    return {task["name"]: task["state_type"] for task in found}


class _Busy(BaseHTTPRequestHandler):
    """Refuses every other call, as a server does whose database is locked for a moment."""

    calls = 0

    def do_GET(self) -> None:
        type(self).calls += 1
        self.send_response(503 if self.calls % 2 else 200)
        self.send_header("Retry-After", "0")
        self.end_headers()
        if self.calls % 2 == 0 and self.command == "POST":
            self.wfile.write(b"[]")

    do_POST = do_GET  # noqa: N815 - the name that the base class calls


def test_a_call_before_a_run_waits_for_a_busy_server() -> None:
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_CLIENT_CSRF_SUPPORT_ENABLED,
        temporary_settings,
    )

    from flows.tracking.alerts import describe_alert
    from flows.tracking.client import ServerUnreachable, prefect_client
    from flows.tracking.schedules import list_schedules

    with HTTPServer(("127.0.0.1", 0), _Busy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/api"
        with temporary_settings(
            {PREFECT_API_URL: address, PREFECT_CLIENT_CSRF_SUPPORT_ENABLED: False}
        ):
            with pytest.raises(ServerUnreachable, match="has trouble"), prefect_client() as client:
                client.hello()
            _Busy.calls = 0
            with prefect_client(retries=1) as client:
                assert client.hello().is_success
            assert _Busy.calls == 2
            assert list_schedules() == []
            assert describe_alert() == ""
            assert _Busy.calls == 6
        server.shutdown()
