"""Services of `ism-dask up` that are killed under runs that its worker has begun."""

import time
from contextlib import suppress
from datetime import UTC, datetime

import httpx
import numpy as np
import pytest
from serving import OVER, ended, home_for_up, own_ports, running_worker, start_up
from support import exact_fit, store_own, undisturbed
from tally import few_and_many
from waiting import wait

from flows.services.service import live_record
from storage import Checkpoints, load_model, saved_run_path


@pytest.fixture(scope="module")
def up(tmp_path_factory, prefect_home):
    with home_for_up(tmp_path_factory.mktemp("home"), prefect_home) as patch:
        patch.setenv("PREFECT_WORKER_QUERY_SECONDS", "1")
        with ended(start_up(*own_ports(), "--workers", 1, "--memory", "500MB")) as up:
            store_own(3_500, 20)  # a form knows the data sets that there are when it is deployed
            yield up


@pytest.mark.long
@few_and_many(few=1, many=5)
@pytest.mark.parametrize("service", ["prefect-server", "prefect-worker"])
def test_a_run_outlives_a_service(tally, count, service, up, monkeypatch):
    """It ends Completed, as if nothing had been."""
    monkeypatch.setenv("ISM_DASK_HOME", up.environment["ISM_DASK_HOME"])
    row = tally(f"kill -9 the {service} of up in the middle of a deployed run", count)
    whole = undisturbed(300)
    deployment = up.deployed("local-process")
    for number in range(count):
        mine = exact_fit(f"{service}-{number}", 300)
        begun = up.begin(deployment, mine)
        wait(lambda run=str(mine.run): max(Checkpoints.of_run(run).numbers, default=0) >= 3)
        _kill(service)
        end = wait(lambda run=begun: _end(up, run), 300)
        saved = saved_run_path(str(mine.run)) is not None
        wrong = saved and not np.array_equal(load_model(str(mine.run)).components, whole.components)
        row.add(survived=end == "COMPLETED" and saved, wrong=wrong)


@few_and_many(few=1, many=3)
def test_missed_runs_give_way_to_a_later_one(tally, count, up, monkeypatch):
    """As after days without the machine: all runs that were due since begin at once."""
    monkeypatch.setenv("ISM_DASK_HOME", up.environment["ISM_DASK_HOME"])
    row = tally("a worker is away while runs of a schedule are due", count)
    for number in range(count):
        row.add(survived=_catch_up(up, f"missed-{number}"))


def _catch_up(up, run):
    """Return whether, of runs that were missed, all but the last gave way."""
    settings = {
        name: value for name, value in exact_fit(run, 300).to_json().items() if value is not None
    }
    every = up.deployed(run, interval=25, parameters={"settings": settings})
    time.sleep(100)  # a run that is late by a minute was missed
    due = _due(up, every)
    missed = {run["id"] for run in due if run["estimated_start_time_delta"] > 60}
    late = [run["id"] for run in due]
    with running_worker(up.api, run):
        wait(lambda: not {run["id"] for run in _due(up, every)} & {*late})
        up.request("PATCH", f"deployments/{every}", json={"paused": True})
        for each in late:
            wait(lambda run=each: _end(up, run), 180)
    ends = {run: up.run(run)["state"] for run in late}
    explained = all("a later run" in str(ends[run]["message"]) for run in missed)
    return len(missed) > 0 and explained and "COMPLETED" in {ends[run]["type"] for run in late}


def _due(up, deployment):
    """Return the runs of a deployment that nobody has begun though they are due, in order."""
    due = {
        "state": {"type": {"any_": ["SCHEDULED"]}},
        "expected_start_time": {"before_": datetime.now(UTC).isoformat()},
    }
    mine = {"id": {"any_": [deployment]}}
    return up.find("flow_runs", deployments=mine, flow_runs=due, sort="EXPECTED_START_TIME_ASC")


def _kill(service):
    # One that ends right after its start, again and again, is given up.
    record = wait(lambda: live_record(service))
    wait(lambda: time.time() - record.process.create_time() > 12)
    record.process.kill()


def _end(up, run):
    with suppress(httpx.TransportError):  # the server is being started again
        state = up.run(run)["state_type"]
        return state if state in OVER else None
    return None
