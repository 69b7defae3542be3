"""A cluster that is lost on the way: the work goes on, or ends with one clear error."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import Diary, store_own
from waiting import wait

from flows.errors import FlowError
from flows.progress.watching import watch_progress
from flows.runs.resumable import ResumableRun, fit_on_cluster, resumable_run
from flows.services.leases import LiveNumbers, find_lease
from flows.settings.runs import FitSettings
from storage import StorageError, run_folder


@pytest.fixture
def settings(tmp_path: Path) -> FitSettings:
    store_own(100)
    file = tmp_path / "local.toml"
    file.write_text('kind = "local"\nworkers = 1\nthreads = 1\nmemory = "1 GiB"\n')
    return FitSettings(dataset="own", run="lost", scheduler=str(file), stall=2)


@pytest.fixture
def this(settings: FitSettings) -> Iterator[ResumableRun]:
    with resumable_run("lost", "fit", settings, {}) as this:
        yield this


@pytest.fixture
def diary() -> Iterator[Diary]:
    diary = Diary()
    with watch_progress(diary):
        yield diary


@pytest.mark.long
def test_a_cluster_that_hangs(settings: FitSettings, this: ResumableRun, diary: Diary) -> None:
    """Its state is kept, and another is opened, on which the work is begun again."""
    clusters = []

    def work() -> int:
        client = _client()
        clusters.append(client.scheduler.address)
        return client.submit(time.sleep, 1_000 if len(clusters) == 1 else 0).result() or 7

    assert fit_on_cluster(settings, this, work, 100) == 7
    assert len(set(clusters)) == 2
    (dump,) = (run_folder("lost") / "stalled").glob("cluster-*.json")
    state = json.loads(dump.read_text())
    assert len(state["workers"]) == 1
    assert "run_spec" not in dump.read_text()
    # All that Dask is configured with is there, passwords of gateways among it.
    assert "config" not in state
    (noted,) = diary.notes
    assert f"no task was done for 2 s on the Dask cluster at {clusters[0]}" in noted
    assert str(dump) in noted
    this.lease.renew()
    assert _numbers().clusters_lost == 1


@pytest.mark.long
def test_losses_without_progress_end(
    settings: FitSettings, this: ResumableRun, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.services.dask.ALLOWED_FAILURES", 0)
    said = r"one task ended 1 worker .* the last of 3 such losses without an iteration between"
    # On a busy machine the next worker may take longer to start than a stall is allowed.
    patient = replace(settings, stall=60)
    with pytest.raises(FlowError, match=said) as error:
        fit_on_cluster(patient, this, lambda: _client().submit(_end_process).result(), 100)
    assert len(diary.notes) == 2
    assert error.value.transient


def test_workers_that_go_and_come_are_counted_and_work_elsewhere_is_no_stall(
    settings: FitSettings, this: ResumableRun, diary: Diary
) -> None:
    def work() -> None:
        time.sleep(settings.stall + 2)  # without a task of the cluster
        client = _client()
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        # Its nanny starts another.
        wait(lambda: any(" joined, tcp://" in line for line in diary.log))

    fit_on_cluster(settings, this, work, 100)
    assert diary.notes == []
    joined, lost, back = diary.log
    assert re.fullmatch(r"joined the Dask cluster at tcp://\S+, 1 worker", joined)
    assert re.fullmatch(r"1 worker lost, tcp://\S+: [01] workers? now", lost)
    assert re.fullmatch(r"1 worker joined, tcp://\S+: 1 worker now", back)
    this.lease.renew()
    assert _numbers().workers_lost == 1


@pytest.mark.chaos  # half a minute: `make long`
def test_an_error_of_ours_is_no_loss_of_a_cluster(
    settings: FitSettings, this: ResumableRun, diary: Diary
) -> None:
    def work() -> None:
        # Even where the cluster goes away just then.
        _client().shutdown()
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        fit_on_cluster(settings, this, work, 100)
    assert diary.notes == []


def _numbers() -> LiveNumbers:
    lease = find_lease("lost")
    assert lease is not None
    return lease.numbers


def _client() -> Any:
    from distributed import default_client

    return default_client()


def _end_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
