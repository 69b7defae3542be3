"""Scheduled runs under `ism-dask up` that are struck, and runs whose server goes away."""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest
from daskparts import ran
from fits import FIT, bits
from serving import (
    CANCELLING,
    OVER,
    Serving,
    ended,
    flow_run_of,
    free_port,
    home_for_up,
    own_ports,
    running,
    start_up,
)
from support import exact_fit, is_held, store_own, undisturbed
from tally import LONG, sizes
from waiting import wait

from flows.services.leases import find_lease
from flows.services.service import live_record
from storage import Checkpoints, home, load_model, run_folder, saved_run_path

RETRYING = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
AT_ONCE = ("--sigma", "median", "--checkpoint", "0")
# What a command sets before it imports Prefect.
LEVELS = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL")
ITERATIONS = 60


@pytest.fixture(scope="module")
def night(tmp_path_factory, prefect_home):
    """Yield a home with an `ism-dask up`, a deployment, and what its fit comes to undisturbed."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("home")
        patch = stack.enter_context(home_for_up(folder, prefect_home))
        patch.setenv("PREFECT_WORKER_QUERY_SECONDS", "1")
        # A fit goes on while `up` looks, each 5 s, whether its services live. It is stored first: a
        # form knows the data sets that there are when it is deployed.
        undisturbed(ITERATIONS, rows=9_000)
        ports = own_ports()

        def start():
            up = start_up(*ports, "--workers", 1, "--memory", "500MB")
            return stack.enter_context(ended(up))

        up = start()
        deployment = up.deployed("local-process")
        yield SimpleNamespace(
            up=up, start=start, deployment=deployment, home=folder, whole=bits("whole")
        )


def _state(server, run):
    return str(server.run(run)["state_type"])


def _kill_flow(night, run, flow_run):
    psutil.Process(find_lease(run).pid).kill()
    wait(lambda: _state(night.up, flow_run) == "CRASHED")


def _kill_service(name, night, run, flow_run):
    """Let `up` end with its service, and start it again as systemd does."""
    live_record(name).process.kill()
    assert night.up.process.wait(200) == 1
    assert not is_held(run)
    night.up = night.start()


def _cancel(night, run, flow_run):
    night.up.post(f"flow_runs/{flow_run}/set_state", CANCELLING)
    wait(lambda: _state(night.up, flow_run) == "CANCELLED")
    wait(lambda: not is_held(run))


def _begin(night, settings, flow_run):
    return night.up.begin(night.deployment, settings)


def _retry(night, settings, flow_run):
    night.up.post(f"flow_runs/{flow_run}/set_state", RETRYING)
    return flow_run


class Fault(NamedTuple):
    """What strikes a scheduled run, and what goes on with it, perhaps with a word in its log."""

    name: str
    strike: Callable[..., None]
    many: int
    proceed: Callable[..., str] = _begin
    says: str = ""
    few: int = 1


FAULTS = {
    "flow": Fault(
        "kill -9 the process of a scheduled flow", _kill_flow, 10, says="ended without a word"
    ),
    "cancel": Fault("a run is cancelled and retried in the Prefect UI", _cancel, 10, _retry),
    **{
        name: Fault(f"kill -9 the {name} of up under a run", partial(_kill_service, name), 5)
        for name in ("prefect-server", "prefect-worker")
    },
}


@pytest.mark.parametrize(("fault", "count"), sizes(FAULTS))
def test_the_next_run_goes_on(tally, fault, count, night, request, monkeypatch):
    """It does not do again what the first has done, and ends Completed."""
    monkeypatch.setenv("ISM_DASK_HOME", str(night.home))
    row = tally(fault.name, count)
    for number in range(count):
        settings = exact_fit(f"{request.node.callspec.id}-{number}", ITERATIONS)
        run = str(settings.run)
        first = night.up.begin(night.deployment, settings)
        wait(lambda run=run: max(Checkpoints.of_run(run).numbers, default=0) >= 3, every=0.02)
        fault.strike(night, run, first)
        history = Checkpoints.of_run(run).find().runs[-1].history
        known = [{**vars(each), "eigenvalues": list(each.eigenvalues)} for each in history]
        second = fault.proceed(night, settings, first)
        wait(lambda second=second: _state(night.up, second) in OVER, 300)
        # The state stays: no receipt of the first attempt comes after it.
        time.sleep(2.0)
        logs = [each["message"] for each in night.up.logs_of(second)]
        survived = (
            _state(night.up, second) == "COMPLETED"
            and load_model(run).history[: len(known)] == known
            and any(fault.says in each for each in logs)
            and find_lease(run) is None
        )
        wrong = saved_run_path(run) is not None and bits(run) != night.whole
        row.add(survived=survived, wrong=wrong)


@pytest.mark.parametrize(
    ("count", "seconds", "iterations"),
    [pytest.param(1, 3.0, 30, id="few"), pytest.param(5, 120.0, 60, id="many", marks=LONG)],
)
def test_the_server_is_away_in_the_middle_of_a_fit(
    tally, count, seconds, iterations, prefect_home, tmp_path
):
    undisturbed(iterations)
    whole = bits("whole")
    row = tally(f"Prefect's server is stopped for {seconds:g} s in the middle of a fit", count)

    def outlived(number):
        run = f"away-{number}"
        serving = Serving(prefect_home(tmp_path / run), free_port())
        with ExitStack() as stack:
            stack.callback(serving.kill)
            serving.start()
            fit = _fit(run, iterations, *AT_ONCE, **serving.environment)
            process = stack.enter_context(fit)
            flow_run = flow_run_of(process)
            wait(lambda: Checkpoints.of_run(run).numbers)
            serving.kill()
            time.sleep(seconds)
            serving.start()
            err = process.communicate(timeout=120)[1]
            # As `up` does, if the fit ended before the server was back.
            ran(sys.executable, "-m", "flows.tracking.client", **serving.environment)
            wait(lambda: _state(serving, flow_run) == "COMPLETED")
            wait(lambda: serving.artifacts_of(flow_run, "markdown"))
        row.add(survived=(process.returncode, err) == (0, ""), wrong=bits(run) != whole)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(outlived, range(count)))


def _fit(run, iterations, *more, **environment):
    """Run a fit that takes some seconds beside a block."""
    own = (*FIT, "--run", run, "--max-iter", iterations, *more)
    return running(*own, environment={**dict.fromkeys(LEVELS, "CRITICAL"), **environment})


@pytest.mark.chaos
def test_a_run_that_ends_while_its_server_is_away_is_told_of_by_the_next_command(doomed, apart):
    store_own(12_000, 20)
    with _fit("own", 5) as fit:
        run = flow_run_of(fit)
        doomed.kill()
        out, err = fit.communicate(timeout=120)
    assert (fit.returncode, err) == (0, "")
    said = "does not answer: `ism-dask up`, or the next command, tells it how this run has ended"
    assert f"the Prefect server at {doomed.api} {said}" in out
    assert "Objective J" in out
    assert (run_folder("own") / "result").exists()
    doomed.start()
    assert _state(doomed, run) == "RUNNING"
    assert apart("ingest", "wine", "--quiet").status == 0
    assert _state(doomed, run) == "COMPLETED"
    # Those that the server has heard of: what is sent to one that is away may be lost.
    assert set(doomed.tasks_of(run).values()) <= {"COMPLETED"}
    (page,) = doomed.artifacts_of(run, "markdown")
    assert page["data"].startswith("# ")
    assert list((home() / "flow-runs").iterdir()) == []
