"""Workers crash, want memory, hold still, are preempted, or are unlike: a fit goes on."""

import asyncio
import os
import random
import re
import signal
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import distributed
import numpy as np
import psutil
import pytest
from daskparts import scheduler, worker
from fits import Fit, Supervisor
from scipy.linalg import subspace_angles
from support import store_own
from tally import few_and_many
from threadpoolctl import threadpool_info
from waiting import wait

from storage import load_model

# A C call with the GIL: no thread of Python goes on until it returns.
HELD = "open({!r}, 'x').close(), __import__('ctypes').PyDLL(None).sleep(60)"
TENTH = 2**30 // 10  # of the memory limit of a worker
# The memory cgroup (version 1) of this process, in which the tests make another one.
OWN = re.search(r":memory:(.*)", Path("/proc/self/cgroup").read_text())
GROUP = Path(f"/sys/fs/cgroup/memory{OWN and OWN[1]}", f"ism-dask-{os.getpid()}")


@contextmanager
def _other_program(cluster, rng):
    """Yield another client of the cluster, and a worker as options of its calls."""
    with distributed.Client(cluster.address, set_as_default=False) as other:
        workers = wait(lambda: sorted(other.scheduler_info(n_workers=-1)["workers"]))
        yield other, {"workers": [rng.choice(workers)]}


def _crash(cluster, rng):
    victim = rng.choice(wait(cluster.workers))
    victim.send_signal(signal.SIGSEGV)
    victim.wait(30)


def _starve(cluster, rng):
    GROUP.mkdir()
    (GROUP / "memory.limit_in_bytes").write_text(str(2**21))
    with _other_program(cluster, rng) as (other, one):
        (pid,) = other.run(os.getpid, **one).values()
        (GROUP / "cgroup.procs").write_text(str(pid))
        _wanted = other.submit(os.urandom, TENTH, pure=False, **one)
        wait(lambda: not psutil.pid_exists(pid))
    assert "oom_kill 1\n" in (GROUP / "memory.oom_control").read_text()
    GROUP.rmdir()


def _crowd(cluster, rng):
    async def fill(dask_worker):
        ballast, seen = [], set()
        for _ in range(30):
            missing = int(8.7 * TENTH) - psutil.Process().memory_info().rss
            ballast.append(b"\1" * max(missing, 0))
            await asyncio.sleep(0.1)
            seen.add(dask_worker.status.name)
        return "paused" in seen

    with _other_program(cluster, rng) as (other, one):
        held = [other.submit(os.urandom, TENTH, pure=False, **one) for _ in range(8)]
        assert not any(each.exception() for each in held)
        assert all(other.run(lambda dask_worker: bool(dask_worker.data.disk), **one).values())
        held.clear()
        assert all(other.run(fill, **one).values())


def _preempt(cluster, rng):
    nanny = rng.choice(cluster.parts[1:])
    with suppress(psutil.NoSuchProcess):
        family = [nanny, *nanny.children(recursive=True)]
        # Some systems send it to the first process of a job, some to all.
        for each in family[: rng.choice((1, None))]:
            each.terminate()
        for each in psutil.wait_procs(family, 30)[1]:
            each.kill()


def _struck(row, whole, cluster, folder, strike):
    """Strike fits at random moments while they run, and count that."""
    rng = random.Random(row.aim)
    while row.injected < row.aim:
        fit, times = Fit(f"struck-{row.injected}", cluster.address, folder), 0
        fit.reach(1)
        while row.injected + times < row.aim and fit.process.poll() is None:
            time.sleep(rng.random())
            strike(cluster, rng)
            times += 1
        survived = fit.ended(200)
        row.add(survived=survived, wrong=survived and whole.differs(fit.name), times=times)


@pytest.fixture
def cluster_of_processes(local):
    with closing(Supervisor()) as cluster:
        yield cluster


no_group = pytest.mark.skipif(not os.access(GROUP.parent, os.W_OK), reason="no memory cgroup")


@few_and_many(few=1, many=10)
@pytest.mark.parametrize(
    ("fault", "strike"),
    [
        ("SIGSEGV in a worker", _crash),
        pytest.param("the kernel's OOM killer ends a worker", _starve, marks=no_group),
        ("other work fills a worker, which spills and then pauses", _crowd),
        ("SIGTERM to a worker, SIGKILL 30 s later", _preempt),
    ],
    ids=["crash", "starve", "crowd", "preempt"],
)
def test_a_worker_costs_time_only(
    tally, count, fault, strike, whole, cluster_of_processes, tmp_path
):
    _struck(tally(fault, count), whole, cluster_of_processes, tmp_path, strike)


@few_and_many(few=1, many=3)
def test_workers_that_get_no_memory_cost_time_only(
    tally, count, whole, local, tmp_path, monkeypatch
):
    """The fit is resumed on other workers, or by the same command after an error of one line."""
    # By default malloc takes the memory of earlier arrays.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    row = tally("no allocation succeeds in any worker (RLIMIT_AS)", count)
    for number in range(count):
        fit = Fit(f"limited-{number}", local, tmp_path)
        fit.reach(1 + number)
        for each in wait(fit.workers):
            each.rlimit(psutil.RLIMIT_AS, (each.memory_info().vms // 2, -1))
        survived, said = fit.ended(200), fit.said
        if not survived and said.splitlines()[-1].startswith("ism-dask: "):
            survived = Fit(fit.name, local, tmp_path).ended(200)
        print(re.findall(r"ism-dask: .*|.*joining it again", said))
        row.add(survived=survived, wrong=survived and whole.differs(fit.name))


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("stall", "holds"), [(600, 2), (20, 1)])
def test_a_held_worker_costs_time_only(tally, stall, holds, whole, cluster_of_processes, tmp_path):
    """If no task is done for `stall` seconds meanwhile, the fit is resumed."""
    row = tally(f"a C call holds a worker's GIL for 60 s, --stall {stall}", holds)
    fit = Fit("held", cluster_of_processes.address, tmp_path, "--stall", stall)
    for number in range(holds):
        fit.reach(2 + 6 * number)
        mark = tmp_path / f"mark-{number}"
        with _other_program(cluster_of_processes, random.Random(number)) as (other, one):
            _held = other.submit(eval, HELD.format(str(mark)), pure=False, **one)
            wait(mark.exists)
            time.sleep(60)
    survived = fit.ended(200)
    row.add(survived=survived, wrong=survived and whole.differs("held"), times=holds)
    assert ("joining it again" in fit.said) == (stall == 20)


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
        assert Fit(name, address, folder).ended(200)
    return load_model(name)
