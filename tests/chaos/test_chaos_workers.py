"""Workers crash, want memory, hold still, are preempted or unlike, clocks jump: a fit goes on."""

import asyncio
import os
import platform
import random
import re
import signal
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import distributed
import numpy as np
import psutil
import pytest
from daskparts import scheduler, worker
from fits import FIT, Fit, Supervisor
from scipy.linalg import subspace_angles
from support import store_own
from tally import few_and_many
from threadpoolctl import threadpool_info
from waiting import wait

from flows.services.leases import find_lease
from storage import load_model

# Faults that one fit meets.
OF_A_FIT = 5
# A C call with the GIL: no thread of Python goes on until it returns.
HELD = "open({!r}, 'x').close(), __import__('ctypes').PyDLL(None).sleep(60)"
GIB = 2**30


def _strike_fits(row, count, whole, place, folder, strike):
    """Let `strike(fit, rng)` inject so many faults at random moments of fits."""
    for seed in range(-(-count // OF_A_FIT)):
        rng = random.Random(seed)
        fit = Fit(f"struck-{seed}", place, folder)
        times = min(OF_A_FIT, count - seed * OF_A_FIT)
        for number in range(times):
            fit.reach(2 + 3 * number)
            time.sleep(rng.random() * 0.3)
            strike(fit, rng)
        survived = fit.ended(200)
        row.add(survived=survived, wrong=survived and whole.differs(fit.name), times=times)


def _client(fit):
    """Return a client of the cluster of a fit, as another program would have."""
    address = re.findall(r"joined the Dask cluster at ([^,\s]+)", fit.said)[-1]
    return distributed.Client(address, set_as_default=False)


def _one_of(rng, client):
    return rng.choice(sorted(client.scheduler_info(n_workers=-1)["workers"]))


@few_and_many(few=1, many=10)
def test_a_crash_of_a_worker_costs_time_only(tally, count, whole, local, tmp_path):
    def crash(fit, rng):
        victim = rng.choice(fit.workers())
        victim.send_signal(signal.SIGSEGV)
        victim.wait(30)

    row = tally("SIGSEGV in a worker", count)
    _strike_fits(row, count, whole, local, tmp_path, crash)


@pytest.fixture
def narrow():
    """Make a memory cgroup of 2 MiB within that of the tests, or skip."""
    own = re.search(r":memory:(.*)", Path("/proc/self/cgroup").read_text())
    group = Path(f"/sys/fs/cgroup/memory{own and own[1]}", f"ism-dask-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(2**21))
    except OSError as error:
        pytest.skip(f"no memory cgroup (version 1) can be made here: {error}")
    yield group
    wait(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@few_and_many(few=1, many=10)
def test_the_oom_killer_of_the_kernel_costs_time_only(tally, count, whole, local, tmp_path, narrow):
    def starve(fit, rng):
        with _client(fit) as other:
            one = [_one_of(rng, other)]
            (pid,) = other.run(os.getpid, workers=one).values()
            (narrow / "cgroup.procs").write_text(str(pid))
            wanted = other.submit(os.urandom, GIB // 10, workers=one, pure=False)
            wait(lambda: not psutil.pid_exists(pid))
            del wanted

    row = tally("the kernel's OOM killer ends a worker", count)
    _strike_fits(row, count, whole, local, tmp_path, starve)
    killed = re.search(r"oom_kill (\d+)", (narrow / "memory.oom_control").read_text())
    assert int(killed[1]) == count


@few_and_many(few=1, many=10)
def test_an_allocation_that_fails_is_one_line_and_the_same_command_goes_on(
    tally, count, whole, local, tmp_path
):
    row, rng = tally("allocation fails in a worker (RLIMIT_AS)", count), random.Random(count)
    for number in range(-(-count // OF_A_FIT)):
        name, survived = f"limited-{number}", []
        for strike in range(min(OF_A_FIT, count - number * OF_A_FIT)):
            fit = Fit(name, local, tmp_path)
            fit.reach(2 + 3 * strike)
            victim = rng.choice(fit.workers())
            victim.rlimit(psutil.RLIMIT_AS, (victim.memory_info().vms, -1))
            ended = fit.ended(120)
            last = fit.said.splitlines()[-1]
            print(fit.process.returncode, last)
            one_line = last.startswith("ism-dask: ") and "Traceback" not in fit.said
            survived.append(ended or (fit.process.returncode == 1 and one_line))
        ended = fit.process.returncode == 0 or Fit(name, local, tmp_path).ended(120)
        for each in survived:
            row.add(survived=each and ended, wrong=ended and whole.differs(name))


@few_and_many(few=1, many=10)
def test_a_worker_that_spills_and_pauses_costs_time_only(tally, count, whole, local, tmp_path):
    async def fill(dask_worker):
        ballast, seen = b"\1" * (int(0.87 * GIB) - psutil.Process().memory_info().rss), set()
        for _ in range(30):
            await asyncio.sleep(0.1)
            seen.add(dask_worker.status.name)
        return bool(ballast) and "paused" in seen

    def on_disk(dask_worker):
        return bool(dask_worker.data.disk)

    def crowd(fit, rng):
        with _client(fit) as other:
            one = {"workers": [_one_of(rng, other)]}
            held = [other.submit(os.urandom, GIB // 10, pure=False, **one) for _ in range(9)]
            distributed.wait(held)
            assert all(other.run(on_disk, **one).values())
            del held
            assert all(other.run(fill, **one).values())

    row = tally("other work fills a worker, which spills and then pauses", count)
    _strike_fits(row, count, whole, local, tmp_path, crowd)


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(900)
def test_a_worker_whose_python_is_held_costs_time_only(tally, whole, local, tmp_path):
    """Twice the fit waits, the third time it is resumed on another cluster."""
    row, rng = tally("a C call holds a worker's GIL for 60 s", 3), random.Random(0)
    for stall in (600, 20):
        fit = Fit(f"held-{stall}", local, tmp_path, "--stall", stall)
        holds = 2 if stall == 600 else 1
        for number in range(holds):
            fit.reach(2 + 6 * number)
            mark = tmp_path / f"mark-{stall}-{number}"
            with _client(fit) as other:
                one = [_one_of(rng, other)]
                held = other.submit(eval, HELD.format(str(mark)), workers=one, pure=False)
                wait(mark.exists)
                time.sleep(60 if stall == 600 else 0)
                del held
        survived = fit.ended(200)
        row.add(survived=survived, wrong=survived and whole.differs(fit.name), times=holds)
        assert ("joining it again" in fit.said) == (stall == 20)


@few_and_many(few=1, many=10)
def test_a_preempted_worker_costs_time_only(tally, count, whole, local, tmp_path):
    def preempt(fit, rng):
        nanny = rng.choice(cluster.parts[1:])
        with suppress(psutil.NoSuchProcess):
            family = [nanny, *nanny.children(recursive=True)]
            # Some systems send it to the first process of a machine, some to all.
            for each in family[: rng.choice((1, None))]:
                each.terminate()
            for each in psutil.wait_procs(family, 30)[1]:
                each.kill()

    row = tally("SIGTERM to a worker, SIGKILL 30 s later", count)
    with closing(Supervisor()) as cluster:
        _strike_fits(row, count, whole, cluster.address, tmp_path, preempt)


@few_and_many(few=1, many=10)
def test_clocks_that_jump_by_an_hour_cost_nothing(
    tally, count, whole, local, tmp_path, monkeypatch
):
    library = Path("/usr/lib", f"{platform.machine()}-linux-gnu", "faketime/libfaketimeMT.so.1")
    if not library.exists():
        missing = f"there is no {library} here; `make tools` installs it"
        (pytest.fail if os.environ.get("ISM_DASK_REQUIRE_TOOLS") else pytest.skip)(missing)
    clock, hours = tmp_path / "clock", [0]
    clock.write_text("+0h")
    given = {"TIMESTAMP_FILE": str(clock), "CACHE_DURATION": "1", "DONT_FAKE_MONOTONIC": "1"}
    for name, value in given.items():
        monkeypatch.setenv(f"FAKETIME_{name}", value)
    monkeypatch.setenv("LD_PRELOAD", str(library))

    def jump(fit, rng):
        hours.append(hours[-1] + rng.choice((-1, 1)))
        clock.write_text(f"{hours[-1]:+}h")
        wait(lambda: abs(find_lease(fit.name).path.stat().st_mtime - time.time()) < 60)

    row = tally("the clocks of driver, scheduler and workers jump by an hour", count)
    with closing(Supervisor()) as cluster:
        _strike_fits(row, count, whole, cluster.address, tmp_path, jump)


# Kernels of OpenBLAS, and of NumPy, for processors of 2013, 2011 and 2004.
OLD = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4"}
KINDS = {"Haswell": {}, "Sandybridge": OLD, "Prescott": OLD}
PAIRS = (("Haswell", "Sandybridge"), ("Haswell", "Prescott"), ("Sandybridge", "Prescott"))


@few_and_many(few=1, many=6)
def test_unlike_processors_agree_to_rounding(tally, count, tmp_path):
    X = np.random.default_rng(0).normal(size=(1_500, 10))
    store_own(1_500, 10, y=np.digitize(X[:, 0] * X[:, 1] + X[:, 2], [-0.5, 0.5]))
    row = tally("workers with kernels of unlike processors", count)
    prediction = ("fit", "own", "-q", "3")
    for number, fit in enumerate((FIT, prediction)[: -(-count // len(PAIRS))]):
        equal = _fit_on(("Haswell", "Haswell"), tmp_path, f"equal-{number}", fit)
        for pair in PAIRS[:count]:
            unlike = _fit_on(pair, tmp_path, f"{'-'.join(pair)}-{number}", fit)
            sine = np.sin(subspace_angles(equal.components.T, unlike.components.T).max())
            change = abs(unlike.history[-1]["objective"] / equal.history[-1]["objective"] - 1)
            print(pair, fit[2:], f"sine {sine:.1e}, J {change:.1e}")
            row.add(survived=True, wrong=max(sine / 1e-10, change / 1e-12) > 1)


def _fit_on(pair, folder, name, fit):
    with ExitStack() as parts:
        address = parts.enter_context(scheduler(folder))
        for kind in pair:
            given = {"OPENBLAS_CORETYPE": kind, **KINDS[kind]}
            parts.enter_context(worker(address, **given))
        with distributed.Client(address, set_as_default=False) as other:
            other.wait_for_workers(2)
            seen = other.run(lambda: threadpool_info()[0]["architecture"]).values()
        if len({*seen}) != len({*pair}):
            pytest.skip(f"this machine has no OpenBLAS for {pair}, but {seen}")
        assert Fit(name, address, folder, fit=fit).ended(200)
    return load_model(name)
