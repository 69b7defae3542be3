"""Parts of a cluster, or the driver, die, stop or hang: a fit loses time, and has the same bits."""

import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from daskparts import ran
from fits import ENDLESS, FIT, OFTEN, Fit, Supervisor, Whole, kill_one, saved_iterations, stop_for
from support import doomed_command, store_own
from tally import few_and_many
from waiting import wait

from storage import Checkpoints, PartialResults

KILLS_OF_A_FIT = 4


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
        row.add(survived=survived, wrong=survived and whole.differs(fit.name), times=kills)


@few_and_many(few=1, many=10)
def test_the_scheduler_is_killed(tally, count, whole, tmp_path):
    row = tally("kill -9 the scheduler", count)
    with closing(Supervisor()) as cluster:
        for number in range(count):
            fit = Fit(f"scheduler-{number}", cluster.address, tmp_path)
            _kill_scheduler(row, fit, whole, lambda: cluster.scheduler)


def _kill_scheduler(row, fit, whole, scheduler):
    fit.reach(4)
    kill_one(random.Random(fit.name), lambda: [scheduler()])
    survived = fit.ended(60)
    assert "was lost on the way: joining it again" in fit.said
    row.add(survived=survived, wrong=survived and whole.differs(fit.name))


@few_and_many(few=1, many=5)
@pytest.mark.timeout(900)
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
        with closing(Supervisor()) as cluster:
            fit = Fit(f"all-{number}", cluster.address, tmp_path)
            fit.reach(4)
            cluster.end_workers() if for_good else _kill_all(cluster.workers())
            # The cluster has two minutes to come back, once its workers are missed.
            survived = fit.ended(300 if for_good else 120)
            if for_good:
                assert fit.said.splitlines()[-1].startswith("ism-dask: the Dask cluster at")
                assert "lost all its workers" in fit.said.splitlines()[-1]
                row.add(survived=fit.process.returncode == 1)
            else:
                row.add(survived=survived, wrong=survived and whole.differs(fit.name))


def _kill_all(workers):
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
    row.add(survived=survived, wrong=survived and whole.differs(fit.name), times=3)
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
    assert "no task was done for 10 s on the Dask cluster at" in fit.said
    row.add(survived=survived, wrong=survived and whole.differs(fit.name))


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(600)
def test_the_folds_after_a_loss(tally, apart, serving, tmp_path):
    """Under Prefect, where each fold is a task: they share the cluster that took the place."""
    store_own(3_000, 10)
    row = tally("kill -9 the scheduler, in a cross-validation under Prefect", 2)
    wanted = ("crossval", *FIT[1:], "--folds", "3", "--json")
    with closing(Supervisor()) as cluster:
        where = ("--scheduler", cluster.address, "--run")
        whole = apart(*wanted, "--plain", *where, "whole").answer["results"]
        with ThreadPoolExecutor() as pool:
            running = pool.submit(apart, *wanted, *where, "cut")
            for fold in range(2):
                _await_piece("cut", fold)
                cluster.scheduler.kill()
            cut = running.result().answer["results"]
    scores = [[(each["cost"], each["accuracy"]) for each in run] for run in (cut, whole)]
    row.add(survived=True, wrong=scores[0] != scores[1], times=2)


def _await_piece(run, fold):
    """Wait until a fold, counted from 0, is under way."""
    saved = PartialResults.of_run(run)
    wait(lambda: len(saved.keys("fold-")) >= fold and saved_iterations(run), every=0.05)


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(1800)
def test_memory_stays_through_a_thousand_iterations(tally, tmp_path):
    store_own(2_000, 8, y=np.random.default_rng(0).integers(0, 3, 2_000))
    row = tally("a soak of 1,000 iterations", 1)
    with closing(Supervisor()) as cluster:
        fit = Fit("soak", cluster.address, tmp_path, fit=ENDLESS)
        watched = {"driver": fit.process, "scheduler": cluster.scheduler}
        fit.reach(100, 600)
        before = {name: each.memory_info().rss for name, each in watched.items()}
        fit.reach(990, 1200)
        after = {name: each.memory_info().rss for name, each in watched.items()}
        survived = fit.process.poll() is None
        fit.stop()
    grown = {name: after[name] / before[name] - 1 for name in watched}
    print({name: (before[name], round(share, 4)) for name, share in grown.items()})
    row.add(survived=survived, wrong=max(grown.values()) >= 0.05)


KILLS_OF_A_DRIVER = 5


@few_and_many(few=1, many=50)
def test_the_driver_is_killed_at_any_moment(tally, count, apart):
    store_own(2_500, 20)
    rng = random.Random(count)
    row = tally("kill -9 the driver, also while it saves", count)
    assert apart(*FIT, *OFTEN, "--quiet", "--run", "whole").status == 0
    whole = Whole("whole")
    for fit in range(-(-count // KILLS_OF_A_DRIVER)):
        name, kills = f"cut-{fit}", min(KILLS_OF_A_DRIVER, count - fit * KILLS_OF_A_DRIVER)
        lost = [_killed(name, rng) for _ in range(kills)]
        done = ran(*_driver(name, 0))
        for each in lost:
            row.add(survived=each <= 1 and done.returncode == 0, wrong=whole.differs(name))
        assert not Checkpoints.of_run(name).numbers


def _driver(name, calls):
    return doomed_command("checkpoint-", calls, *FIT, *OFTEN, "--quiet", "--run", name)


def _killed(name, rng):
    """Kill the driver of a run; return how many iterations that it had come to are lost."""
    saving = rng.random() < 0.5
    with subprocess.Popen(
        _driver(name, rng.randint(1, 60) if saving else 0), stdout=subprocess.PIPE, text=True
    ) as process:
        reached = 0
        lines = rng.randint(0, 2)
        for line in process.stdout:
            reached = int(line)
            lines -= 1
            if lines < 0 and not saving:
                time.sleep(rng.random() * 0.2)
                process.kill()
        assert process.wait() == -signal.SIGKILL
    return reached - saved_iterations(name)
