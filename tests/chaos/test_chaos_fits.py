"""Whatever strikes a fit, its cluster or its machine: it loses time, and has the same bits."""

import asyncio
import os
import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import distributed
import numpy as np
import psutil
import pytest
from daskparts import needs, ran, scheduler, worker
from fits import FIT, OFTEN, Fit, Supervisor, bits, saved_iterations
from network import network
from scipy.linalg import subspace_angles
from serving import kill_family
from support import doomed_command, store_own
from tally import few_and_many, sizes
from threadpoolctl import threadpool_info
from waiting import wait

from storage import Checkpoints, PartialResults, home, load_model

JOINS = "joining it again"
SHORT = (*FIT, "--max-iter", "3")
# Which goes round near the end for ever: it never finds the same numbers twice.
ENDLESS = (*FIT, "--tol", "1e-300", "--max-iter", "1000")
# A C call with the GIL: no thread of Python goes on until it returns.
HELD = "open({!r}, 'x').close(), __import__('ctypes').PyDLL(None).sleep(60)"
TENTH = 2**30 // 10  # of the memory limit of a worker
HOUR = 3600
# The memory cgroup (version 1) of this process, in which the tests make another one.
OWN = re.search(r":memory:(.*)", Path("/proc/self/cgroup").read_text())
GROUP = Path(f"/sys/fs/cgroup/memory{OWN and OWN[1]}", f"ism-dask-{os.getpid()}")


# Where a fit computes.


def _built(name, folder):
    """Build one of our libraries that are loaded before that of C, and return its path."""
    path, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    ran(needs("cc"), "-shared", "-fPIC", "-o", path, source, "-ldl").check_returncode()
    return str(path)


@pytest.fixture
def own(local):
    return SimpleNamespace(address=local, within=())


@pytest.fixture
def processes():
    with closing(Supervisor()) as cluster:
        yield cluster


@pytest.fixture
def caged(processes):
    if not os.access(GROUP.parent, os.W_OK):
        pytest.skip("no memory cgroup")
    return processes


@pytest.fixture
def frugal(own, monkeypatch):
    """Let no process take memory of earlier arrays again, as malloc does by default."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    return own


@pytest.fixture
def clock(own, tmp_path, monkeypatch):
    """Let the clock of all processes be off by what a file says."""
    (tmp_path / "offset").write_bytes(struct.pack("l", HOUR))
    monkeypatch.setenv("LD_PRELOAD", _built("jumping_clock", tmp_path))
    monkeypatch.setenv("CLOCK_OFF_BY", str(tmp_path / "offset"))
    return own


@pytest.fixture(scope="module")
def far():
    """Yield a cluster on machines of a network: a scheduler, two workers, a driver."""
    with network(4) as (net, machines), closing(Supervisor(*machines[:3])) as cluster:
        cluster.net, cluster.machines, cluster.within = net, machines, machines[3].within
        yield cluster


@pytest.fixture
def late(far, monkeypatch):
    monkeypatch.setattr(far.net, "delay", 0.2)
    return far


@pytest.fixture
def lossy(far, monkeypatch):
    monkeypatch.setattr(far.net, "loss", 0.05)
    return far


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Return what a command comes to where nothing happens."""
    known = {}

    def of(fit=FIT):
        if fit not in known:
            folder = tmp_path_factory.mktemp("whole")
            with pytest.MonkeyPatch.context() as patch, closing(Supervisor()) as cluster:
                patch.setenv("ISM_DASK_HOME", str(folder / "home"))
                store_own(3_000, 10)
                assert Fit("whole", folder, "--scheduler", cluster.address, fit=fit).ended(200)
                known[fit] = bits("whole")
        return known[fit]

    return of


# What strikes it: each is given the fit, where that computes, and random numbers.


def _signal(number, whom, fit, place, rng):
    """Send a signal to a worker, to all of them, or to the scheduler."""
    time.sleep(rng.random() * 0.3)
    if whom == "scheduler":
        place.scheduler.send_signal(number)
        return
    workers = fit.workers() or wait(place.workers)
    assert whom == "worker" or len(workers) == 2
    for each in workers if whom == "workers" else [rng.choice(workers)]:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def _stop_worker(fit, place, rng):
    worker = rng.choice(fit.workers())
    worker.send_signal(signal.SIGSTOP)
    time.sleep(60)
    worker.send_signal(signal.SIGCONT)


def _end_workers(fit, place, rng):
    with place.without_workers():
        # The cluster has two minutes to come back, once its workers are missed.
        assert not fit.ended(300)


@contextmanager
def _other_program(cluster, rng):
    """Yield another client of the cluster, and a worker as options of its calls."""
    with distributed.Client(cluster.address, set_as_default=False) as other:
        workers = wait(lambda: sorted(other.scheduler_info(n_workers=-1)["workers"]))
        yield other, {"workers": [rng.choice(workers)]}


def _starve(fit, place, rng):
    GROUP.mkdir()
    (GROUP / "memory.limit_in_bytes").write_text(str(2**21))
    with _other_program(place, rng) as (other, one):
        (pid,) = other.run(os.getpid, **one).values()
        (GROUP / "cgroup.procs").write_text(str(pid))
        _wanted = other.submit(os.urandom, TENTH, pure=False, **one)
        wait(lambda: not psutil.pid_exists(pid))
    assert "oom_kill 1\n" in (GROUP / "memory.oom_control").read_text()
    GROUP.rmdir()


def _crowd(fit, place, rng):
    async def fill(dask_worker):
        ballast, seen = [], set()
        for _ in range(30):
            missing = int(8.7 * TENTH) - psutil.Process().memory_info().rss
            ballast.append(b"\1" * max(missing, 0))
            await asyncio.sleep(0.1)
            seen.add(dask_worker.status.name)
        return "paused" in seen

    with _other_program(place, rng) as (other, one):
        held = [other.submit(os.urandom, TENTH, pure=False, **one) for _ in range(8)]
        assert not any(each.exception() for each in held)
        assert all(other.run(lambda dask_worker: bool(dask_worker.data.disk), **one).values())
        held.clear()
        assert all(other.run(fill, **one).values())


def _preempt(fit, place, rng):
    nanny = rng.choice(place.parts[1:])
    with suppress(psutil.NoSuchProcess):
        family = [nanny, *nanny.children(recursive=True)]
        # Some systems send it to the first process of a job, some to all.
        for each in family[: rng.choice((1, None))]:
            each.terminate()
        for each in psutil.wait_procs(family, 30)[1]:
            each.kill()


def _hold(fit, place, rng):
    mark = home() / f"mark-{rng.random()}"
    with _other_program(place, rng) as (other, one):
        _held = other.submit(eval, HELD.format(str(mark)), pure=False, **one)
        wait(mark.exists)
        time.sleep(60)


def _limit(fit, place, rng):
    for each in wait(fit.workers):
        each.rlimit(psutil.RLIMIT_AS, (each.memory_info().vms // 2, -1))


def _turn_clock(fit, place, rng):
    time.sleep(rng.random())
    with Path(os.environ["CLOCK_OFF_BY"]).open("r+b") as file:  # it is mapped: the same file
        (offset,) = struct.unpack("l", file.read())
        file.seek(0)
        file.write(struct.pack("l", HOUR - offset))


def _cut_off(seconds, fit, place, rng):
    """Cut a machine off for a while, or so shortly that its processes end meanwhile."""
    victim = rng.randrange(2 if seconds < 10 else 4)
    place.net.cut_off = {place.machines[victim]}
    if seconds < 10:  # nobody closes their connections: to the others they are half-open
        kill_family(place.parts[victim].pid)
    time.sleep(seconds)
    place.net.cut_off = set()


def _nothing(fit, place, rng):
    """Strike not: the place is bad from the beginning."""


class Fault(NamedTuple):
    """What strikes fits, how often, and what they may say."""

    name: str
    place: str
    strike: Callable[[Fit, Any, random.Random], None]
    many: int
    few: int = 1  # 0: it takes minutes
    times: int = 1  # strikes of one fit
    options: tuple[object, ...] = ()
    fit: tuple[str, ...] = FIT
    seconds: float = 200  # within which a fit ends then
    says: str = ""
    never_says: str = "\0"
    error: str = "\0"  # after which the same command may be needed once more


STALL = ("--stall", 20)
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
GIL = "a C call holds a worker's GIL for 60 s, --stall"
FAULTS = {
    "worker": Fault("kill -9 a worker", "own", partial(_signal, KILL, "worker"), 20, times=4),
    "scheduler": Fault(
        "kill -9 the scheduler", "processes", partial(_signal, KILL, "scheduler"), 10,
        seconds=60, says=f"was lost on the way: {JOINS}",
    ),
    "all": Fault("kill -9 all workers", "own", partial(_signal, KILL, "workers"), 3),
    "all-apart": Fault(
        "kill -9 all workers under nannies", "processes", partial(_signal, KILL, "workers"), 2
    ),
    "for-good": Fault(
        "kill -9 all workers for three minutes", "processes", _end_workers, 1, few=0,
        says="lost all its workers", error="ism-dask: the Dask cluster at",
    ),
    "still": Fault(
        "SIGSTOP a worker for 60 s", "own", _stop_worker, 3, few=0, times=3, never_says=JOINS
    ),
    "hangs": Fault(
        "SIGSTOP all workers for good", "own", partial(_signal, STOP, "workers"), 1, few=0,
        options=("--stall", 10), says="no task was done for 10 s on the Dask cluster at",
    ),
    "crash": Fault(
        "SIGSEGV in a worker", "processes", partial(_signal, signal.SIGSEGV, "worker"), 10, times=2
    ),
    "starve": Fault("the kernel's OOM killer ends a worker", "caged", _starve, 10, times=2),
    "crowd": Fault("other work fills a worker, which spills and pauses", "processes", _crowd, 10),
    "preempt": Fault("SIGTERM to a worker, SIGKILL 30 s later", "processes", _preempt, 10, times=2),
    "held": Fault(
        f"{GIL} 600", "processes", _hold, 2, few=0, times=2, options=("--stall", 600),
        never_says=JOINS,
    ),
    "held-long": Fault(f"{GIL} 20", "processes", _hold, 1, few=0, options=STALL, says=JOINS),
    # Another cluster goes on after `--stall` if workers do nothing, or Dask waits for the old time.
    "limit": Fault(
        "no worker gets memory (RLIMIT_AS)", "frugal", _limit, 3, options=STALL, error="ism-dask: "
    ),
    "clock": Fault(
        "the clock of all processes jumps by an hour", "clock", _turn_clock, 10, options=STALL
    ),
    "late": Fault(
        "each packet takes 200 ms, each way", "late", _nothing, 10, fit=SHORT, seconds=400
    ),
    "lost": Fault("5% of all packets are lost", "lossy", _nothing, 10, fit=SHORT, seconds=400),
    "cut": Fault(
        "a machine is cut off for 90 s", "far", partial(_cut_off, 90), 10, options=STALL,
        seconds=400,
    ),
    "gone": Fault(
        "processes end on a machine that is cut off", "far", partial(_cut_off, 5), 10,
        options=STALL, seconds=400,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fault", "count"), sizes(FAULTS))
def test_a_fault_costs_time_only(tally, fault, count, whole, request, tmp_path):
    undisturbed, place = whole(fault.fit), request.getfixturevalue(fault.place)
    store_own(3_000, 10)
    row, rng = tally(fault.name, count), random.Random(count)
    while row.injected < count:
        options = ("--scheduler", place.address, *fault.options)
        fit = Fit(f"struck-{row.injected}", tmp_path, *options, fit=fault.fit, within=place.within)
        times = min(fault.times, count - row.injected)
        for number in range(times):
            fit.reach(rng.randrange(1, 4) + 4 * number)
            fault.strike(fit, place, rng)
        survived = fit.ended(fault.seconds)
        print(said := fit.said)
        assert fault.says in said
        assert fault.never_says not in said
        if not survived and said.splitlines()[-1].startswith(fault.error):
            fit.start()
            survived = fit.ended(fault.seconds)
        wrong = survived and bits(fit.name) != undisturbed
        row.add(survived=survived, wrong=wrong, times=times)


@few_and_many(few=1, many=10)
@pytest.mark.parametrize(
    ("fault", "times", "largest", "microseconds"),
    [
        # As of a disk that is about to die, or a network file system with a soft time limit.
        ("each n-th write, or sync, to the home fails (EIO), n from 1 to 300", 3, 300, 0),
        ("each write, or sync, to the home takes 20 ms", 1, 0, 20_000),
    ],
    ids=["fails", "slow"],
)
def test_a_bad_disk(
    tally, count, fault, times, largest, microseconds, apart, tmp_path, monkeypatch
):
    store_own(600, 10)
    assert Fit("whole", tmp_path, "--quiet").ended(200)
    undisturbed, rng, row = bits("whole"), random.Random(count), tally(fault, count * times)
    library = _built("bad_disk", tmp_path)
    monkeypatch.setenv("BAD_DISK", str(home()))
    monkeypatch.setenv("BAD_DISK_MICROSECONDS", str(microseconds))
    for number in range(row.aim):
        monkeypatch.setenv("BAD_DISK_FAILS_EACH", str(int(largest ** rng.random())))
        monkeypatch.setenv("LD_PRELOAD", library)
        fit = Fit(f"bad-{number}", tmp_path, "--quiet")
        survived, said = fit.ended(200), fit.said.strip()
        monkeypatch.delenv("LD_PRELOAD")
        if not survived and said.startswith("ism-dask: could not write ") and "\n" not in said:
            fit.start()
            survived = fit.ended(200)
        row.add(survived=survived, wrong=survived and bits(fit.name) != undisturbed)
    assert apart("check").status == 0


KILLS_OF_A_DRIVER = 5


@few_and_many(few=1, many=50)
def test_the_driver_is_killed_at_any_moment(tally, count, tmp_path):
    store_own(2_500, 20)
    rng = random.Random(count)
    row = tally("kill -9 the driver, also while it saves", count)
    assert Fit("whole", tmp_path, "--quiet").ended(200)
    undisturbed = bits("whole")
    for fit in range(-(-count // KILLS_OF_A_DRIVER)):
        name, kills = f"cut-{fit}", min(KILLS_OF_A_DRIVER, count - fit * KILLS_OF_A_DRIVER)
        lost = [_killed(name, rng) for _ in range(kills)]
        done = ran(*_driver(name, 0))
        for each in lost:
            survived = each <= 1 and done.returncode == 0
            row.add(survived=survived, wrong=bits(name) != undisturbed)
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


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(600)
def test_the_folds_after_a_loss(tally, apart, serving, processes):
    """Under Prefect, where each fold is a task: they share the cluster that took the place."""
    store_own(3_000, 10)
    row = tally("kill -9 the scheduler, in a cross-validation under Prefect", 2)
    wanted = ("crossval", *FIT[1:], "--folds", "3", "--json", "--scheduler", processes.address)
    undisturbed = apart(*wanted, "--plain", "--run", "whole").answer["results"]
    with ThreadPoolExecutor() as pool:
        running, saved = pool.submit(apart, *wanted, "--run", "cut"), PartialResults.of_run("cut")
        for fold in range(2):
            wait(
                lambda n=fold: len(saved.keys("fold-")) >= n and saved_iterations("cut"), every=0.05
            )
            processes.scheduler.kill()
        cut = running.result().answer["results"]
    scores = [[(each["cost"], each["accuracy"]) for each in run] for run in (cut, undisturbed)]
    row.add(survived=True, wrong=scores[0] != scores[1], times=2)


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(1800)
def test_memory_stays_through_a_thousand_iterations(tally, processes, tmp_path):
    store_own(2_000, 8, y=np.random.default_rng(0).integers(0, 3, 2_000))
    row = tally("a soak of 1,000 iterations", 1)
    fit = Fit("soak", tmp_path, "--scheduler", processes.address, fit=ENDLESS)
    watched = {"driver": fit.process, "scheduler": processes.scheduler}
    sizes = []
    for iteration in (100, 990):
        fit.reach(iteration, 1200)
        sizes.append({name: each.memory_info().rss for name, each in watched.items()})
    survived = fit.process.poll() is None
    fit.stop()
    grown = [sizes[1][name] / sizes[0][name] - 1 for name in watched]
    print(sizes, grown)
    row.add(survived=survived, wrong=max(grown) >= 0.05)


# The kernels of OpenBLAS, and of NumPy, for processors of 2013, 2011 and 2004.
OLD = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4"}
KINDS = {"Haswell": {}, "Sandybridge": OLD, "Prescott": OLD}
PAIRS = (("Haswell", "Sandybridge"), ("Haswell", "Prescott"), ("Sandybridge", "Prescott"))


@few_and_many(few=1, many=3)
def test_unlike_processors_agree_to_rounding(tally, count, tmp_path):
    store_own(3_000, 10)
    row = tally("workers of unlike processors", count)
    equal = _fit_on(("Haswell", "Haswell"), tmp_path)
    for pair in PAIRS[:count]:
        unlike = _fit_on(pair, tmp_path)
        sine = np.sin(subspace_angles(equal.components.T, unlike.components.T).max())
        change = abs(unlike.history[-1]["objective"] / equal.history[-1]["objective"] - 1)
        print(pair, f"sine {sine:.1e}, J {change:.1e}")
        row.add(survived=True, wrong=sine > 1e-10 or change > 1e-12)


def _fit_on(pair, folder):
    name = "-".join(pair)
    with ExitStack() as parts:
        address = parts.enter_context(scheduler(folder))
        for kind in pair:
            given = {"OPENBLAS_CORETYPE": kind, **KINDS[kind]}
            parts.enter_context(worker(address, **given))
        with distributed.Client(address, set_as_default=False) as other:
            other.wait_for_workers(2)
            seen = other.run(lambda: threadpool_info()[0]["architecture"]).values()
        if len({*seen}) != len({*pair}):
            pytest.skip(f"OpenBLAS has no kernels for {pair} here: {[*seen]}")
        assert Fit(name, folder, "--scheduler", address).ended(200)
    return load_model(name)
