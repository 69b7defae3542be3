"""Parts of a cluster die, stop or hang: a fit loses time, and comes to the same bits."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest
from clusters import ENDLESS, FIT, LOCAL, Fit, Supervisor, Whole, kill_one, stop_for
from support import store_own
from tally import Tally, few_and_many
from upkeep import ended, free_port, own_ports, start_up
from waiting import wait

from flows.services.service import live_record
from storage import Checkpoints, run_folder

KILLS_OF_A_FIT = 4
# Of ten schedulers that are killed so many are those of `ism-dask up`.
OF_UP = 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return what the fit comes to on a cluster where nothing dies."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(folder / "home"))
        store_own(3_000, 10)
        assert Fit("whole", _local(folder), folder).ended(200)
        return Whole("whole")


@pytest.fixture
def local(tmp_path):
    store_own(3_000, 10)
    return _local(tmp_path)


def _local(folder: Path) -> Path:
    file = folder / "local.toml"
    file.write_text(LOCAL)
    return file


@few_and_many(few=1, many=20)
def test_workers_are_killed_one_by_one(tally, count, whole, local, tmp_path):
    row = tally("kill -9 a worker during one fit", count)
    for seed in range(-(-count // KILLS_OF_A_FIT)):
        rng = random.Random(seed)
        fit = Fit(f"workers-{seed}", local, tmp_path)
        kills = min(KILLS_OF_A_FIT, count - seed * KILLS_OF_A_FIT)
        for kill in range(kills):
            fit.reach(2 + 4 * kill)
            kill_one(rng, fit.workers)
        survived = fit.ended(120)
        for _ in range(kills):
            row.add(survived=survived, wrong=survived and whole.differs(fit.name))


@few_and_many(few=1, many=10)
def test_the_scheduler_is_killed(tally, count, whole, local, tmp_path, prefect_home, monkeypatch):
    row = tally("kill -9 the scheduler", count)
    of_up = OF_UP if count > OF_UP else 0
    with closing(Supervisor(free_port())) as cluster:
        for number in range(count - of_up):
            fit = Fit(f"scheduler-{number}", cluster.address, tmp_path)
            _kill_scheduler(row, fit, whole, lambda: cluster.scheduler)
    if of_up:
        prefect_home(tmp_path / "home" / "prefect")
        monkeypatch.delenv("PREFECT_API_URL", raising=False)
        with ended(start_up(*own_ports(), "--workers", 2, "--memory", "500MB")):
            for number in range(of_up):
                fit = Fit(f"up-{number}", "up", tmp_path)
                _kill_scheduler(row, fit, whole, lambda: live_record("dask-scheduler").process)


def _kill_scheduler(
    row: Tally, fit: Fit, whole: Whole, scheduler: Callable[[], psutil.Process]
) -> None:
    fit.reach(4)
    kill_one(random.Random(fit.name), lambda: [scheduler()])
    survived = fit.ended(60)
    assert "was lost on the way: joining it again" in fit.said
    row.add(survived=survived, wrong=survived and whole.differs(fit.name))


@few_and_many(few=1, many=5)
def test_all_workers_are_killed_at_once(tally, count, whole, local, tmp_path):
    row = tally("kill -9 all workers at once", count)
    kept = min(count, 3)
    for number in range(kept):
        fit = Fit(f"all-{number}", local, tmp_path)
        fit.reach(3 + number)
        _kill_all(fit.workers())
        survived = fit.ended(120)
        row.add(survived=survived, wrong=survived and whole.differs(fit.name))
    for number in range(kept, count):
        # Of the last one nobody starts them again: that has to come to one clear error.
        for_good = number == count - 1
        with closing(Supervisor(free_port())) as cluster:
            fit = Fit(f"all-{number}", cluster.address, tmp_path)
            fit.reach(4)
            cluster.end_workers() if for_good else _kill_all(cluster.workers())
            survived = fit.ended(120)
            if for_good:
                assert fit.said.splitlines()[-1].startswith("ism-dask: the Dask cluster at")
                assert "lost all its workers" in fit.said.splitlines()[-1]
                row.add(survived=fit.process.returncode == 1)
            else:
                row.add(survived=survived, wrong=survived and whole.differs(fit.name))


def _kill_all(workers: list[psutil.Process]) -> None:
    assert len(workers) == 2
    for each in workers:
        each.kill()


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(900)
def test_a_worker_stands_still_for_a_minute(tally, whole, local, tmp_path):
    row = tally("SIGSTOP a worker for 60 s", 3)
    fit = Fit("still", local, tmp_path)
    for stop in range(3):
        fit.reach(2 + 6 * stop)
        stop_for(random.Random(stop).choice(fit.workers()), 60)
    survived = fit.ended(120)
    for _ in range(3):
        row.add(survived=survived, wrong=survived and whole.differs(fit.name))
    assert "joining it again" not in fit.said


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(600)
def test_a_cluster_that_hangs(tally, whole, local, tmp_path):
    row = tally("SIGSTOP all workers for good", 1)
    fit = Fit("hangs", local, tmp_path, "--stall", 10)
    fit.reach(4)
    for each in fit.workers():
        each.send_signal(signal.SIGSTOP)
    survived = fit.ended(200)
    (dump,) = (run_folder("hangs") / "stalled").glob("cluster-*.json")
    assert "no task was done for 10 s on the Dask cluster at" in fit.said
    assert str(dump) in " ".join(fit.said.split())
    assert len(json.loads(dump.read_text())["workers"]) == 2
    row.add(survived=survived, wrong=survived and whole.differs(fit.name))


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(600)
def test_the_folds_after_a_loss(tally, apart, serving, tmp_path):
    """Under Prefect, where each fold is a task: they share the cluster that took the place."""
    store_own(3_000, 10)
    row = tally("kill -9 the scheduler, in a cross-validation under Prefect", 2)
    wanted = ("crossval", *FIT[1:], "--folds", "3", "--json")
    with closing(Supervisor(free_port())) as cluster:
        where = ("--scheduler", cluster.address, "--run")
        whole = apart(*wanted, "--plain", *where, "whole").answer["results"]
        with ThreadPoolExecutor() as pool:
            running = pool.submit(apart, *wanted, *where, "cut")
            for fold in range(2):
                _await_piece("cut", fold)
                cluster.scheduler.kill()
            cut = running.result().answer["results"]
    wrong = [(each["cost"], each["accuracy"]) for each in cut] != [
        (each["cost"], each["accuracy"]) for each in whole
    ]
    for _ in range(2):
        row.add(survived=True, wrong=wrong)


def _await_piece(run: str, fold: int) -> None:
    """Wait until a fold, counted from 0, is under way."""
    folder = run_folder(run)
    wait(lambda: len([*folder.rglob("fold-*.json")]) >= fold and _begun(run), every=0.05)


def _begun(run: str) -> bool:
    newest = Checkpoints.of_run(run).find()
    return newest is not None and bool(newest.runs)


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(1800)
def test_memory_stays_through_a_thousand_iterations(tally, tmp_path):
    store_own(2_000, 8, y=np.random.default_rng(0).integers(0, 3, 2_000))
    row = tally("a soak of 1,000 iterations", 1)
    with closing(Supervisor(free_port())) as cluster:
        # One start alone may come to rest before, with a change of the eigenvalues that is 0.
        fit = Fit("soak", cluster.address, tmp_path, "--restarts", "99", fit=ENDLESS)
        watched = {"driver": fit.process, "scheduler": cluster.scheduler}
        fit.reach(100, 600, of_all_starts=True)
        before = {name: each.memory_info().rss for name, each in watched.items()}
        fit.reach(1_000, 1200, of_all_starts=True)
        after = {name: each.memory_info().rss for name, each in watched.items()}
        survived = fit.process.poll() is None
        fit.stop()
    grown = {name: after[name] / before[name] - 1 for name in watched}
    print({name: (before[name], round(share, 4)) for name, share in grown.items()})
    row.add(survived=survived, wrong=max(grown.values()) >= 0.05)
