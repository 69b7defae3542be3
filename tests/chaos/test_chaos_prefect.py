"""Flows whose process is killed, and flows whose server goes away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
from serving import Serving, running_worker
from support import EXACT, exact_fit, is_held, store_own
from tally import LONG, few_and_many
from upkeep import free_port
from waiting import wait

from flows.runs.fit import fit_plain
from flows.services.leases import find_lease
from storage import Checkpoints, Model, load_model, saved_run_path

POOL = "taking-over"
CANCELLING = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
ENDS = ("COMPLETED", "CRASHED", "FAILED", "CANCELLED")
RETRYING = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
# What a command sets before it imports Prefect.
LEVELS = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL")


@few_and_many(few=1, many=10)
def test_a_flow_that_is_killed_is_taken_over_by_the_next_scheduled_one(tally, count, serving):
    store_own(3_500, 20)
    row = tally("kill -9 the process of a scheduled flow", count)
    wanted = exact_fit("nightly", 40)
    fit_plain(replace(wanted, run="whole"))
    whole = load_model("whole")
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
            said = any("ended without a word" in text for text in _logged(serving, second))
            cleared = find_lease(str(mine.run)) is None
            row.add(survived=taken_over and said and cleared, wrong=not _alike(model, whole))


@few_and_many(few=1, many=10)
def test_a_cancelled_run_that_is_retried_goes_on(tally, count, serving):
    """Cancel and Retry, as the buttons of the UI: what the first attempt left is not held to it."""
    store_own(3_500, 20)
    row = tally("a run is cancelled and retried in the Prefect UI", count)
    wanted = exact_fit("retried", 40)
    fit_plain(replace(wanted, run="whole"))
    whole = load_model("whole")
    with _worker(serving) as deployment:
        for number in range(count):
            mine = replace(wanted, run=f"retried-{number}")
            run = serving.begin(deployment, mine)
            _wait_for_iterations(str(mine.run))
            serving.post(f"flow_runs/{run}/set_state", CANCELLING)
            wait(lambda run=run: _state(serving, run) == "CANCELLED")
            wait(lambda mine=mine: not is_held(str(mine.run)))
            serving.post(f"flow_runs/{run}/set_state", RETRYING)
            wait(lambda run=run: _state(serving, run) in ENDS)
            # The state stays: no receipt of the first attempt comes after it.
            time.sleep(2.0)
            survived = _state(serving, run) == "COMPLETED"
            saved = saved_run_path(str(mine.run)) is not None
            row.add(survived=survived, wrong=saved and not _alike(load_model(str(mine.run)), whole))


def _wait_for_iterations(run: str) -> None:
    checkpoints = Checkpoints.of_run(run)
    wait(lambda: max(checkpoints.numbers, default=0) >= 3, every=0.02)


@contextmanager
def _worker(serving: Serving) -> Iterator[str]:
    """Keep a worker that takes up scheduled fits; yield the id of their deployment."""
    deployment = serving.deployed(POOL)
    with running_worker(serving.api, POOL):
        yield deployment


def _killed(run: str) -> list[dict[str, Any]]:
    """Kill the process of a run when it has come some way; return the iterations that it kept."""
    _wait_for_iterations(run)
    checkpoints = Checkpoints.of_run(run)
    lease = find_lease(run)
    psutil.Process(lease.pid).kill()
    newest = checkpoints.find()
    found = newest.runs[-1].history
    return [{**vars(each), "eigenvalues": list(each.eigenvalues)} for each in found]


def _state(serving: Serving, run: str) -> str:
    return str(serving.run(run)["state_type"])


def _logged(serving: Serving, run: str) -> list[str]:
    return [each["message"] for each in serving.find("logs", logs={"flow_run_id": {"any_": [run]}})]


def _alike(one: Model, other: Model) -> bool:
    return np.array_equal(one.components, other.components)


@pytest.mark.parametrize(
    ("count", "seconds", "iterations"),
    [pytest.param(1, 3.0, 30, id="few"), pytest.param(5, 120.0, 60, id="many", marks=LONG)],
)
def test_the_server_is_away_in_the_middle_of_a_fit(
    tally, count, seconds, iterations, prefect_home, tmp_path
):
    store_own(3_500, 20)
    row = tally(f"Prefect's server is stopped for {seconds:g} s in the middle of a fit", count)
    fit_plain(exact_fit("whole", iterations))
    whole = load_model("whole")

    def outlived(number):
        run = f"away-{number}"
        serving = Serving(prefect_home(tmp_path / run), free_port())
        serving.start()
        try:
            survived = _outlived(serving, run, seconds, iterations)
        finally:
            serving.kill()
        return survived, saved_run_path(run) is None or not _alike(load_model(run), whole)

    with ThreadPoolExecutor(count) as pool:
        for survived, wrong in pool.map(outlived, range(count)):
            row.add(survived=survived, wrong=wrong)


def _outlived(serving: Serving, run: str, seconds: float, iterations: int) -> bool:
    """Stop the server for some seconds in the middle of a fit; say whether it knows its end."""
    long = ("fit", "own", "--sigma", "median", *EXACT, "--tol", "1e-12", "-q", "3")
    wanted = (*long, "--run", run, "--checkpoint", "0")
    environment = {**serving.environment, **dict.fromkeys(LEVELS, "CRITICAL")}
    with subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *wanted, "--max-iter", str(iterations)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            flow_run = process.stdout.readline().strip().rpartition("/")[2]
            wait(lambda: Checkpoints.of_run(run).numbers)
            serving.kill()
            time.sleep(seconds)
            serving.start()
            wait(lambda: _completed(serving, flow_run))
            err = process.communicate(timeout=120)[1]
        finally:
            process.kill()
    return (process.returncode, err) == (0, "")


def _completed(serving: Serving, flow_run: str) -> bool:
    wanted = {"flow_run_id": {"any_": [flow_run]}, "type": {"any_": ["markdown"]}}
    return _state(serving, flow_run) == "COMPLETED" and bool(
        serving.find("artifacts", artifacts=wanted)
    )
