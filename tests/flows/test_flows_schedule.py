"""A schedule is carried out: the worker of `ism-dask up` refreshes the run, time after time."""

import pytest
from serving import OVER
from shop import open_shop, write_part
from waiting import wait

from flows.runs.published import History, publishing
from storage import home, read_history


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_schedule_refreshes_what_has_changed(tmp_path, up, apart):
    run_file = open_shop(tmp_path)
    # The first run begins by itself, within a minute.
    _schedule(apart, run_file, "* * * * *")
    with publishing("sales"):
        overlapping = wait(lambda: _over(up, auto_scheduled=True), 240)
    assert overlapping["state_type"] == "CANCELLED", overlapping["state"]
    assert "the run 'sales' is being computed" in overlapping["state"]["message"]
    done = {"auto_scheduled": True, "state_type": "COMPLETED"}
    assert wait(lambda: _over(up, **done), 240)["state"]["name"] == "Published"
    assert History("sales").published == "sales-0001"
    assert {"new.csv", "sales.html"} <= {each.name for each in tmp_path.iterdir()}

    _schedule(apart, run_file, "0 2 29 2 *")
    wait(lambda: all(run["state_type"] in OVER for run in up.runs_of("sales")))
    assert _run_now(up)["state"]["name"] == "Unchanged"
    write_part(tmp_path, "b", 40)
    assert _run_now(up)["state"]["name"] == "Published"
    assert History("sales").published == "sales-0002"
    last = [*read_history("sales").values()][-1]
    assert (last["state"], last["rows"]) == ("published", 440)
    assert last["by"].startswith("Prefect worker")
    write_part(tmp_path, "c", 400, shift=30.0)
    suspicious = _run_now(up)
    ending = (suspicious["state"]["name"], suspicious["state_type"])
    assert ending == ("Suspicious", "FAILED")
    # `up` settles the receipts of runs whose process has ended.
    wait(lambda: not (home() / "flow-runs" / f"{suspicious['id']}.json").exists())
    state = up.run(suspicious["id"])["state"]
    assert (state["name"], state["type"]) == ending
    assert "max_rows: there are 1.91 times as many rows" in state["message"]

    run_file.rename(tmp_path / "moved.toml")
    state = _run_now(up)["state"]
    assert state["type"] == "FAILED"
    assert f"the run file {run_file} cannot be read" in state["message"]
    assert [*read_history("sales").values()][-1]["state"] == "failed"


def _schedule(apart, run_file, cron):
    answer = apart("schedule", run_file, "--cron", cron, "--json").answer
    assert (answer["name"], answer["cron"]) == ("sales", cron)


def _over(up, **features):
    """Return the first run that has ended and has these features, None if there is none yet."""
    over = (run for run in up.runs_of("sales") if run["state_type"] in OVER)
    return next((run for run in over if features.items() <= run.items()), None)


def _run_now(up):
    """Begin a run of the schedule by hand, as in the UI, and return it when it has ended."""
    begun = up.begin(up.deployment("refresh/sales")["id"])
    return wait(lambda: _over(up, id=begun), 240)
