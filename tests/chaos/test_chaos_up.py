"""Services of `ism-dask up` that are killed under runs that its worker has begun."""

import numpy as np
import pytest
from serving import ended, home_for_up, own_ports, start_up
from support import exact_fit, is_held, store_own, undisturbed
from tally import few_and_many
from waiting import wait

from flows.services.service import live_record
from storage import Checkpoints, load_model


@pytest.mark.long
@few_and_many(few=1, many=5)
@pytest.mark.parametrize("service", ["prefect-server", "prefect-worker"])
def test_a_run_goes_on_after_its_service_was_killed(
    tally, count, service, tmp_path, prefect_home, here
):
    """`up` ends with an error, and the run with it, which has the same bits when it is resumed."""
    row = tally(f"kill -9 the {service} of up in the middle of a deployed run", count)
    with home_for_up(tmp_path, prefect_home) as patch:
        patch.setenv("PREFECT_WORKER_QUERY_SECONDS", "1")
        store_own(3_500, 20)  # a form knows the data sets that there are when it is deployed
        whole = undisturbed(300)
        for number in range(count):
            mine = exact_fit(f"{service}-{number}", 300)
            run = str(mine.run)
            with ended(start_up(*own_ports(), "--workers", 1, "--memory", "500MB")) as up:
                up.begin(up.deployed("local-process"), mine)
                wait(lambda run=run: max(Checkpoints.of_run(run).numbers, default=0) >= 3)
                live_record(service).process.kill()
                assert up.process.wait(120) == 1
            assert not is_held(run)
            survived = here("resume", run, "--plain").status == 0
            wrong = survived and not np.array_equal(load_model(run).components, whole.components)
            row.add(survived=survived, wrong=wrong)
