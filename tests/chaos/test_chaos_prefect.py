"""Flows whose process is killed, and flows whose server goes away."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import psutil
import pytest
from serving import CANCELLING, OVER, Serving, flow_run_of, free_port, running_worker
from support import EXACT, exact_fit, is_held, store_own, undisturbed
from tally import LONG, few_and_many
from waiting import wait

from flows.services.leases import find_lease
from storage import Checkpoints, home, load_model, run_folder, saved_run_path

POOL = "taking-over"
RETRYING = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
# The command, with another patience than three minutes for a server that is away.
COMMAND = "from flows.tracking import live; live._PATIENCE = {}; from flows.cli import main; main()"
FIT = (*EXACT, "--tol", "1e-12", "-q", "3")
AT_ONCE = ("--sigma", "median", "--checkpoint", "0")
# What a command sets before it imports Prefect.
LEVELS = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL")


@few_and_many(few=1, many=10)
def test_a_flow_that_is_killed_is_taken_over_by_the_next_scheduled_one(tally, count, serving):
    whole = undisturbed(40)
    row = tally("kill -9 the process of a scheduled flow", count)
    wanted = exact_fit("nightly", 40)
    with _worker(serving) as deployment:
        for number in range(count):
            mine = replace(wanted, run=f"nightly-{number}")
            first = serving.begin(deployment, mine)
            known = _killed(str(mine.run))
            wait(lambda run=first: _state(serving, run) == "CRASHED")
            second = serving.begin(deployment, mine)
            wait(lambda run=second: _state(serving, run) == "COMPLETED")
            model = load_model(str(mine.run))
            # What the first one has done was not done again.
            taken_over = model.history[: len(known)] == known
            logs = serving.logs_of(second)
            said = any("ended without a word" in each["message"] for each in logs)
            cleared = find_lease(str(mine.run)) is None
            row.add(survived=taken_over and said and cleared, wrong=not _alike(model, whole))


@few_and_many(few=1, many=10)
def test_a_cancelled_run_that_is_retried_goes_on(tally, count, serving):
    """Cancel and Retry, as the buttons of the UI: what the first attempt left is not held to it."""
    whole = undisturbed(40)
    row = tally("a run is cancelled and retried in the Prefect UI", count)
    wanted = exact_fit("retried", 40)
    with _worker(serving) as deployment:
        for number in range(count):
            mine = replace(wanted, run=f"retried-{number}")
            run = serving.begin(deployment, mine)
            _wait_for_iterations(str(mine.run))
            serving.post(f"flow_runs/{run}/set_state", CANCELLING)
            wait(lambda run=run: _state(serving, run) == "CANCELLED")
            wait(lambda mine=mine: not is_held(str(mine.run)))
            serving.post(f"flow_runs/{run}/set_state", RETRYING)
            wait(lambda run=run: _state(serving, run) in OVER)
            # The state stays: no receipt of the first attempt comes after it.
            time.sleep(2.0)
            survived = _state(serving, run) == "COMPLETED"
            saved = saved_run_path(str(mine.run)) is not None
            row.add(survived=survived, wrong=saved and not _alike(load_model(str(mine.run)), whole))


def _wait_for_iterations(run):
    wait(lambda: max(Checkpoints.of_run(run).numbers, default=0) >= 3, every=0.02)


@contextmanager
def _worker(serving):
    """Keep a worker that takes up scheduled fits; yield the id of their deployment."""
    deployment = serving.deployed(POOL)
    with running_worker(serving.api, POOL):
        yield deployment


def _killed(run):
    """Kill the process of a run when it has come some way; return the iterations that it kept."""
    _wait_for_iterations(run)
    psutil.Process(find_lease(run).pid).kill()
    history = Checkpoints.of_run(run).find().runs[-1].history
    return [{**vars(each), "eigenvalues": list(each.eigenvalues)} for each in history]


def _state(serving, run):
    return str(serving.run(run)["state_type"])


def _alike(one, other):
    return np.array_equal(one.components, other.components)


@pytest.mark.parametrize(
    ("count", "seconds", "iterations"),
    [pytest.param(1, 3.0, 30, id="few"), pytest.param(5, 120.0, 60, id="many", marks=LONG)],
)
def test_the_server_is_away_in_the_middle_of_a_fit(
    tally, count, seconds, iterations, prefect_home, tmp_path
):
    whole = undisturbed(iterations)
    row = tally(f"Prefect's server is stopped for {seconds:g} s in the middle of a fit", count)

    def outlived(number):
        run = f"away-{number}"
        serving = Serving(prefect_home(tmp_path / run), free_port())
        with ExitStack() as stack:
            stack.callback(serving.kill)
            serving.start()
            process = _fit(stack, run, 180, iterations, *AT_ONCE, **serving.environment)
            flow_run = flow_run_of(process)
            wait(lambda: Checkpoints.of_run(run).numbers)
            serving.kill()
            time.sleep(seconds)
            serving.start()
            wait(lambda: _completed(serving, flow_run))
            err = process.communicate(timeout=120)[1]
        wrong = saved_run_path(run) is None or not _alike(load_model(run), whole)
        return (process.returncode, err) == (0, ""), wrong

    with ThreadPoolExecutor(count) as pool:
        for survived, wrong in pool.map(outlived, range(count)):
            row.add(survived=survived, wrong=wrong)


def _fit(stack, run, patience, iterations, *more, **environment):
    """Start a fit that takes some seconds, and ends with the stack at the latest."""
    own = ("fit", "own", "--run", run, "--max-iter", str(iterations), *FIT, *more)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(patience), *own],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **dict.fromkeys(LEVELS, "CRITICAL"), **environment},
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _completed(serving, run):
    return _state(serving, run) == "COMPLETED" and bool(serving.artifacts_of(run, "markdown"))


@pytest.fixture
def started():
    """Return the stack with which what a test has started ends."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.chaos
def test_a_run_outlives_its_server_and_a_killed_one_is_not_taken_for_running(
    doomed, apart, started
):
    store_own(12_000, 20)
    killed = _fit(started, "killed", 60, 1000)
    crashed = flow_run_of(killed)
    killed.kill()
    killed.communicate()
    assert doomed.run(crashed)["state_type"] == "RUNNING"
    impatient, patient = (_fit(started, name, wait, 5) for name, wait in (("a", 1), ("b", 60)))
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
        assert set(doomed.tasks_of(run).values()) <= {"COMPLETED"}
        (page,) = doomed.artifacts_of(run, "markdown")
        assert page["data"].startswith("# ")
    assert list((home() / "flow-runs").iterdir()) == []
