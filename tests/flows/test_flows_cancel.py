"""Runs that are cancelled or interrupted: their Dask work stops, and no process is left."""

import signal
import time
from dataclasses import replace
from functools import partial

import psutil
import pytest
from serving import CANCELLING, flow_run_of, living, running, running_worker
from support import EXACT, exact_fit, is_held, store_own
from waiting import wait

from flows.services.leases import find_lease
from storage import Checkpoints, home

# A fit that would take many minutes.
COMMAND = ("fit", "own", "--sigma", "median", *EXACT, "--tol", "1e-12")
COMMAND += ("--max-iter", "1000", "-q", "3")
SUSPENDED = {
    "state": {
        "type": "PAUSED",
        "name": "Suspended",
        "state_details": {"pause_reschedule": True, "pause_timeout": "2100-01-01T00:00:00Z"},
    }
}


@pytest.fixture(autouse=True)
def _long():
    store_own(50_000, 20)  # a pass takes seconds, and is shown


@pytest.fixture
def scheduler(cluster):
    """Return a client of a cluster that is not the command's own."""
    from distributed import Client

    with Client(cluster) as own:
        yield own


@pytest.mark.long
@pytest.mark.parametrize("how", ["deleted", signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_ended_says_so_and_leaves_nothing(serving, how):
    with running(*COMMAND) as command:
        run = flow_run_of(command)
        wait(lambda: serving.artifacts_of(run, "progress"))
        family = living(command.pid)
        if how == "deleted":
            serving.request("DELETE", f"flow_runs/{run}")
        else:
            command.send_signal(how)
        _, err = command.communicate(timeout=120)
    if how == "deleted":
        assert (command.returncode, err) == (130, "ism-dask: deleted in the Prefect UI\n")
    else:
        assert err == "ism-dask: interrupted\n"
        # The second is how Python ends if `exec`, of a dataclass say, was interrupted.
        assert command.returncode in {130, -signal.SIGINT}
        assert serving.run(run)["state_type"] == "CANCELLED"
    assert _gone(family)
    assert list((home() / "flow-runs").iterdir()) == []


@pytest.mark.long
def test_cancelled_in_the_ui_a_command_stops_and_says_so(serving, scheduler):
    deaf = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # as the & of a script does
    with running(*COMMAND, "--scheduler", scheduler.scheduler.address, preexec_fn=deaf) as command:
        run = flow_run_of(command)
        wait(lambda: _working(scheduler))
        wait(lambda: "rows " in str(serving.artifacts_of(run, "progress")))
        assert f"dashboard {scheduler.dashboard_link}, " in str(serving.logs_of(run))
        family = living(command.pid)
        serving.post(f"flow_runs/{run}/set_state", CANCELLING)
        out, err = command.communicate(timeout=120)
    assert (command.returncode, err) == (130, "ism-dask: cancelled in the Prefect UI\n")
    assert out == ""
    assert serving.run(run)["state_type"] == "CANCELLED"
    assert _gone(family)
    wait(lambda: not _working(scheduler))
    assert list((home() / "flow-runs").iterdir()) == []


@pytest.mark.chaos
def test_a_run_of_a_worker_stops_when_it_is_suspended_or_cancelled(serving, scheduler, here):
    store_own(12_000, 20)
    deployment, place = serving.deployed("cancel"), scheduler.scheduler.address
    with running_worker(serving.api, "cancel"):
        run = serving.begin(deployment, exact_fit("suspended"))
        wait(lambda: is_held("suspended") and Checkpoints.of_run("suspended").numbers)
        serving.post(f"flow_runs/{run}/set_state", SUSPENDED)
        wait(lambda: not is_held("suspended"))
        # The state stays, whatever the worker and receipts say when the process has ended.
        time.sleep(3)
        assert serving.run(run)["state"]["name"] == "Suspended"
        serving.post(f"flow_runs/{run}/resume", {})
        wait(lambda: is_held("suspended"))
        assert serving.run(run)["state_type"] == "RUNNING"
        assert "has ended" in here("cancel", "suspended").out
        wait(lambda: serving.run(run)["state_type"] == "CANCELLED")
        assert serving.run(run)["state"]["message"] == "The run was interrupted."
        assert Checkpoints.of_run("suspended").numbers

        run = serving.begin(deployment, replace(exact_fit("on-dask"), scheduler=place))
        wait(lambda: _working(scheduler))
        place = place.removeprefix("tcp://")
        name = f"on-dask: own gaussian q=3, engine exact, on {place}"
        wait(lambda: serving.run(run)["name"] == name)
        tags = {"on-dask", "own", "gaussian", "q=3", "engine exact", place}
        assert set(serving.run(run)["tags"]) == tags
        lease = find_lease("on-dask")
        family = living(lease.pid)
        serving.post(f"flow_runs/{run}/set_state", CANCELLING)
        wait(lambda: not _working(scheduler))
        assert _gone(family)
        wait(lambda: serving.run(run)["state_type"] == "CANCELLED")


def _working(client):
    return bool(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def _gone(family):
    return not psutil.wait_procs(family, timeout=120)[1]
