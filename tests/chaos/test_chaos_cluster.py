"""Parts of a cluster, or the driver, die, stop or hang: a fit loses time, and has the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import numpy as np
import psutil
import pytest
from daskparts import dask, ran, scheduler_options, worker_options
from serving import ended, free_port, own_ports, start_up
from support import EXACT, doomed_command, store_own
from tally import few_and_many
from waiting import wait

from flows.services.dask import scheduler_environment
from flows.services.service import live_record
from storage import Checkpoints, PartialResults, load_model, run_folder

LOCAL = 'kind = "local"\nworkers = 2\nthreads = 1\nmemory = "1 GiB"\n'
FIT = ("fit", "own", *EXACT, "--tol", "1e-12", "-q", "3", "--max-iter", "20")
# Which goes round near the end for ever: it never finds the same numbers twice.
ENDLESS = ("fit", "own", *EXACT, "--tol", "1e-300", "-q", "3", "--max-iter", "1000")
OFTEN = ("--plain", "--checkpoint", "0")


def saved_iterations(run, *, of_all_starts=False):
    """Return how many iterations a run has saved, of its last start or of all."""
    newest = Checkpoints.of_run(run).find()
    if newest is None or not newest.runs:
        return 0
    if of_all_starts:
        return newest.iterations
    return 0 if newest.runs[-1] is None else len(newest.runs[-1].history)


class Fit:
    """A fit in a process of its own, whose words go to a file in a folder."""

    def __init__(self, name, scheduler, folder, *options, fit=FIT):
        self.name, self._said = name, folder / f"{name}.said"
        wanted = (*fit, *OFTEN, "--scheduler", scheduler, "--run", name, *options)
        command = [sys.executable, "-m", "flows.cli", *map(str, wanted)]
        with self._said.open("wb") as said:
            self.process = psutil.Popen(command, stdout=said, stderr=subprocess.STDOUT)

    @property
    def said(self):
        return self._said.read_text()

    def reach(self, iteration, within=120.0, **which):
        """Wait until it has come to an iteration, or has made so many of all starts."""
        until = time.monotonic() + within
        while saved_iterations(self.name, **which) < iteration:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.02)

    def workers(self):
        """Return the workers that it has started."""
        children = self.process.children(recursive=True)
        return [each for each in children if "spawn_main" in " ".join(each.cmdline())]

    def ended(self, within):
        """Say whether it comes to a good end in so many seconds."""
        try:
            return self.process.wait(within) == 0
        except psutil.TimeoutExpired:
            self.stop()
            return False

    def stop(self):
        """End it with what it has started, whatever state that is in."""
        family = [self.process, *self.process.children(recursive=True)]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait()


class Whole:
    """What an undisturbed fit comes to."""

    def __init__(self, name):
        model = load_model(name)
        self.components = model.components
        self.objectives = [each["objective"] for each in model.history]

    def differs(self, name):
        """Return whether another run has other bits."""
        other = Whole(name)
        same = np.array_equal(self.components, other.components)
        return not same or self.objectives != other.objectives


def kill_one(rng, among):
    """Kill one of some processes, in a while."""
    time.sleep(rng.random() * 0.3)
    with suppress(psutil.NoSuchProcess):
        rng.choice(among()).kill()


class Supervisor:
    """Starts a scheduler and two workers, and again whatever of them has ended."""

    def __init__(self):
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        parts = [dask("scheduler", *scheduler_options(port))]
        parts += [dask("worker", self.address, *worker_options())] * 2
        self._commands = [[str(word) for word in part] for part in parts]
        self._ended, self._keeps_workers = threading.Event(), True
        self.parts = [self._start(command) for command in self._commands]
        self._thread = threading.Thread(target=self._look_after)
        self._thread.start()

    @property
    def scheduler(self):
        return self.parts[0]

    def workers(self):
        """Return the workers that run now, without their nannies."""
        nannies = [each for each in self.parts[1:] if each.poll() is None]
        found = [child for nanny in nannies for child in nanny.children(recursive=True)]
        return [each for each in found if "spawn_main" in " ".join(each.cmdline())]

    def end_workers(self):
        self._keeps_workers = False
        for part in self.parts[1:]:
            for each in [part, *part.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()

    def close(self):
        self._ended.set()
        self._thread.join()
        for part in reversed(self.parts):
            part.terminate()
        for part in self.parts:
            part.wait(30)

    def _look_after(self):
        while not self._ended.wait(0.2):
            for number, command in enumerate(self._commands):
                wanted = number == 0 or self._keeps_workers
                if wanted and self.parts[number].poll() is not None:
                    self.parts[number] = self._start(command)

    @staticmethod
    def _start(command):
        nowhere = subprocess.DEVNULL
        settings = {**os.environ, **scheduler_environment()}
        return psutil.Popen(command, stdout=nowhere, stderr=nowhere, cwd="/", env=settings)


def stop_for(process, seconds):
    """Let a process stand still for so many seconds."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)


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


def _local(folder):
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
        row.add(survived=survived, wrong=survived and whole.differs(fit.name), times=kills)


@few_and_many(few=1, many=10)
def test_the_scheduler_is_killed(tally, count, whole, local, tmp_path, prefect_home, monkeypatch):
    row = tally("kill -9 the scheduler", count)
    of_up = OF_UP if count > OF_UP else 0
    with closing(Supervisor()) as cluster:
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


def _kill_scheduler(row, fit, whole, scheduler):
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
        with closing(Supervisor()) as cluster:
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
