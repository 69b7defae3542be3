"""Services of `ism-dask up` that are killed under runs that its worker has begun."""

import time
from contextlib import suppress

import httpx
import numpy as np
import pytest
from serving import OVER, ended, home_for_up, own_ports, start_up
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
