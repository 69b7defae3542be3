"""The flows under Prefect: the same numbers, and what the UI shows of them."""

import logging
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from support import EXACT, flown, store_own
from waiting import SilentHandler, served, wait

from flows.errors import Interrupted, SettingsError
from flows.reports.summary import summarise
from flows.runs.crossval import run_crossval
from flows.services.liveness import RunReceipt
from flows.settings.base import IngestSettings
from flows.settings.runs import CrossvalSettings
from flows.tracking.client import ServerUnreachable, prefect_client
from flows.tracking.live import LiveRun
from storage import home

pytestmark = pytest.mark.usefixtures("prefect_server")

WINE = CrossvalSettings(dataset="wine", n_components=2, sigma="median", first=3)


@pytest.mark.smoke
def test_crossval_shows_what_it_computes(serving):
    result, plain = flown("crossval", WINE), run_crossval(WINE)
    run, page, progress = _shown(serving, result)
    for one, two in zip(result.results, plain.results, strict=True):
        assert {**one.to_json(), "seconds": 0} == {**two.to_json(), "seconds": 0}
    assert run["state_type"] == "COMPLETED"
    assert run["name"] == f"{result.run}: wine gaussian q=2, by prediction, on this machine"
    tags = {"wine", "gaussian", "q=2", "by prediction", "this machine"}
    assert set(run["tags"]) == {"wine-gaussian-q2-crossval", *tags}
    assert run["parameters"] == {"settings": WINE.to_json()}
    folds = {f"fold {number} of 10" for number in (1, 2, 3)}
    assert set(serving.tasks_of(run["id"])) == {"ingest wine", "deal folds", *folds, "aggregate"}
    assert f"| 3 | {result.results[2].accuracy:.4f} |" in page["data"]
    assert page["key"] == "crossval-wine-gaussian"
    assert page["description"] == f"{result.run}, wine gaussian q=2, {summarise(result).headline}"
    assert result.page == result.flow_run["url"]
    assert f"| Flow run | {result.page} |" in page["data"]
    assert f"Folder of the run: {Path(result.path).parent}" in page["data"]
    assert "file:" not in page["data"]
    assert (progress["key"], progress["data"]) == ("crossval-wine-gaussian-progress", 100)


def _shown(serving, result):
    """Return the flow run of a result, its page and its progress."""
    run = serving.run(result.flow_run["id"])
    (page,), (progress,) = (
        serving.artifacts_of(run["id"], kind) for kind in ("markdown", "progress")
    )
    return run, page, progress


def test_ingest_shows_what_is_stored(serving, monkeypatch):
    create, names = SyncPrefectClient.create_flow_run, []

    def watched(*given, **more):
        made = create(*given, **more)
        names.append(made.name)
        return made

    monkeypatch.setattr(SyncPrefectClient, "create_flow_run", watched)
    result = flown("ingest", IngestSettings(dataset="wine"))
    run, page, progress = _shown(serving, result)
    assert names == ["wine"]  # from birth
    assert result.rows == 178
    assert (run["name"], run["tags"], run["state_type"]) == ("wine", ["wine"], "COMPLETED")
    wait(lambda: set(serving.tasks_of(run["id"])) == {"store wine"})
    assert result.data_hash in page["data"]
    opening = "178 rows were read with 13 columns of numbers and the label cultivar (3 classes); "
    assert f"{opening}no check speaks against it." in page["data"]
    assert progress["data"] == 100


def test_an_interrupted_run_is_cancelled_and_not_called_a_crash(serving, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.run_flows.store_dataset", interrupted)
    with pytest.raises(Interrupted):
        flown("ingest", IngestSettings(dataset="wine", force=True))
    cancelled = {"state": {"type": {"any_": ["CANCELLED"]}}, "name": {"any_": ["wine"]}}
    (run,) = serving.find("flow_runs", flow_runs=cancelled)
    wait(lambda: serving.tasks_of(run["id"]) == {"store wine": "CANCELLED"})
    wait(lambda: "Finished in state Cancelled" in str(serving.logs_of(run["id"])))
    assert not any("Crash" in each["message"] for each in serving.logs_of(run["id"]))


@pytest.mark.long
def test_the_log_is_a_diary_of_the_run(apart, serving):
    store_own(3000)
    given = (*EXACT, "--sigma", "median", "--tol", "1e-12", "--max-iter", "40")
    ended = apart("fit", "own", *given, "--checkpoint", "0", "--run", "diary")
    assert (ended.status, ended.err) == (0, "")
    # None of the log is on the terminal.
    assert re.match(r"run: \S+\ndiary: W of all rows of own", ended.out)
    run = ended.out.splitlines()[0].rpartition("/")[2]
    logs = serving.logs_of(run)
    lines = [each["message"] for each in logs if each["name"] == "prefect.flow_runs"]
    diary = [line for line in lines if re.match("data: |result: ", line)]
    assert any("`ism-dask cancel diary`" in line for line in lines)  # greyed out on its page
    assert diary[0].startswith("data: own, 3,000 rows, 4 columns, digest ")
    assert diary[0].endswith("label y, 3 classes; new features q: 2")
    assert diary[-1].startswith("result: diary: W of all rows of own: 3,000 rows, 4 columns, ")
    assert {each["level"] for each in logs} == {logging.INFO}


def test_a_wrong_request_fails_the_run_and_comes_back_as_it_is(serving):
    from flows.run_flows import fit

    with pytest.raises(SettingsError, match="`label` is 'colour'"):
        flown("crossval", replace(WINE, label="colour"))
    failed = serving.find("flow_runs", flow_runs={"state": {"type": {"any_": ["FAILED"]}}})
    messages = [run["state"]["message"] for run in failed]
    said = "Flow run encountered an exception: SettingsError: `label` is 'colour'; wine has"
    assert len([message for message in messages if message.startswith(said)]) == 1
    assert list((home() / "flow-runs").iterdir()) == []
    state = fit({"dataset": "wine", "degree": 3}, return_state=True)
    assert "`degree` is no parameter of the gaussian kernel" in state.message


def test_the_progress_says_how_much_is_left(serving, monkeypatch):
    from flows.run_flows import fit

    monkeypatch.setattr("ism_dask.observe.progress._SECONDS", 0.0)
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(fit)
    identity = str(run.id)
    follower = LiveRun(run, RunReceipt(run=identity, api=""), "key", "title")
    with follower.shown():
        for done in range(1, 21):
            time.sleep(0.01)
            follower.tick(done / 1000, "text")
        wait(lambda: " left" in str(serving.artifacts_of(identity, "progress")))
    # Of a run that is over nothing is left.
    (shown,) = serving.artifacts_of(identity, "progress")
    assert (shown["key"], shown["data"], shown["description"]) == ("key-progress", 2, "text")


class _Busy(SilentHandler):
    """Refuses every other call, as a server does whose database is locked for a moment."""

    calls = 0

    def do_GET(self):
        type(self).calls += 1
        self.answer(503 if self.calls % 2 else 200, Retry_After=0)


def test_a_call_before_a_run_waits_for_a_busy_server():
    with served(_Busy) as page, temporary_settings({PREFECT_API_URL: f"{page}/api"}):
        with pytest.raises(ServerUnreachable, match="has trouble"), prefect_client() as client:
            client.hello()
        _Busy.calls = 0
        with prefect_client(retries=1) as client:
            assert client.hello().is_success
        assert _Busy.calls == 2
