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

from storage import load_model

# A C call with the GIL: no thread of Python goes on until it returns.
HELD = "open({!r}, 'x').close(), __import__('ctypes').PyDLL(None).sleep(60)"
TENTH = 2**30 // 10  # of the memory limit of a worker


@pytest.fixture
def supervised(local):
    with closing(Supervisor()) as parts:
        yield parts


@pytest.fixture
def struck(whole, tmp_path):
    """Return what strikes a fit at random moments, and counts that."""

    def strike_fit(row, place, strike):
        fit, rng = Fit("struck", place, tmp_path), random.Random(row.aim)
        for number in range(row.aim):
            fit.reach(1 + 17 * number // row.aim)
            time.sleep(rng.random() * 0.3)
            strike(fit, rng)
        survived = fit.ended(200)
        row.add(survived=survived, wrong=survived and whole.differs("struck"), times=row.aim)

    return strike_fit


def _client(address):
    return distributed.Client(address, set_as_default=False)


def _any_worker(client, rng):
    """Return the address of a worker as the options of a call."""
    return {"workers": [rng.choice(sorted(client.scheduler_info(n_workers=-1)["workers"]))]}


@few_and_many(few=1, many=10)
def test_a_crash_of_a_worker_costs_time_only(tally, count, struck, local):
    def crash(fit, rng):
        victim = wait(lambda: fit.workers() and rng.choice(fit.workers()))
        victim.send_signal(signal.SIGSEGV)
        victim.wait(30)

    struck(tally("SIGSEGV in a worker", count), local, crash)


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
def test_the_oom_killer_costs_time_only(tally, count, struck, supervised, narrow):
    def starve(fit, rng):
        with _client(supervised.address) as other:
            one = _any_worker(other, rng)
            (pid,) = other.run(os.getpid, **one).values()
            (narrow / "cgroup.procs").write_text(str(pid))
            wanted = other.submit(os.urandom, TENTH, pure=False, **one)
            wait(lambda: not psutil.pid_exists(pid))
            del wanted

    struck(tally("the kernel's OOM killer ends a worker", count), supervised.address, starve)
    killed = re.search(r"oom_kill (\d+)", (narrow / "memory.oom_control").read_text())
    assert int(killed[1]) == count


@few_and_many(few=1, many=10)
def test_an_allocation_that_fails_ends_in_one_line(tally, count, whole, local, tmp_path):
    """The same command then resumes the fit."""
    row, rng, survived = tally("allocation fails in a worker", count), random.Random(count), []
    for number in range(count):
        fit = Fit("limited", local, tmp_path)
        fit.reach(1 + 17 * number // count)
        victim = rng.choice(fit.workers())
        victim.rlimit(psutil.RLIMIT_AS, (victim.memory_info().vms, -1))
        ended, last = fit.ended(120), fit.said.splitlines()[-1]
        survived.append(not ended and last.startswith("ism-dask: Unable to allocate"))
    resumed = Fit("limited", local, tmp_path).ended(120)
    for each in survived:
        row.add(survived=each and resumed, wrong=resumed and whole.differs("limited"))


@few_and_many(few=1, many=10)
def test_a_worker_that_spills_and_pauses_costs_time_only(tally, count, struck, supervised):
    async def fill(dask_worker):
        ballast, seen = b"\1" * (9 * TENTH - psutil.Process().memory_info().rss), set()
        for _ in range(20):
            await asyncio.sleep(0.1)
            seen.add(dask_worker.status.name)
        return bool(ballast) and "paused" in seen

    def on_disk(dask_worker):
        return bool(dask_worker.data.disk)

    def crowd(fit, rng):
        with _client(supervised.address) as other:
            one = _any_worker(other, rng)
            held = [other.submit(os.urandom, TENTH, pure=False, **one) for _ in range(8)]
            distributed.wait(held)
            assert all(other.run(on_disk, **one).values())
            held.clear()
            assert all(other.run(fill, **one).values())

    row = tally("other work fills a worker, which spills and then pauses", count)
    struck(row, supervised.address, crowd)


@pytest.mark.chaos
@pytest.mark.minutes
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("stall", "holds"), [(600, 2), (20, 1)])
def test_a_held_worker_costs_time_only(tally, stall, holds, whole, supervised, tmp_path):
    """If no task is done for `stall` seconds meanwhile, the fit is resumed."""
    row = tally(f"a C call holds a worker's GIL for 60 s, --stall {stall}", holds)
    fit = Fit("held", supervised.address, tmp_path, "--stall", stall)
    for number in range(holds):
        fit.reach(2 + 6 * number)
        mark = tmp_path / f"mark-{number}"
        with _client(supervised.address) as other:
            one = _any_worker(other, random.Random(number))
            held = other.submit(eval, HELD.format(str(mark)), pure=False, **one)
            wait(mark.exists)
            time.sleep(60)
            del held
    survived = fit.ended(200)
    row.add(survived=survived, wrong=survived and whole.differs("held"), times=holds)
    assert ("joining it again" in fit.said) == (stall == 20)


@few_and_many(few=1, many=10)
def test_a_preempted_worker_costs_time_only(tally, count, struck, supervised):
    def preempt(fit, rng):
        nanny = rng.choice(supervised.parts[1:])
        with suppress(psutil.NoSuchProcess):
            family = [nanny, *nanny.children(recursive=True)]
            # Some systems send it to the first process of a job, some to all.
            for each in family[: rng.choice((1, None))]:
                each.terminate()
            for each in psutil.wait_procs(family, 30)[1]:
                each.kill()

    struck(tally("SIGTERM to a worker, SIGKILL 30 s later", count), supervised.address, preempt)


@few_and_many(few=1, many=10)
def test_clocks_that_jump_cost_nothing(tally, count, struck, local, tmp_path, monkeypatch):
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

    row = tally("the clocks of driver, scheduler and workers jump by an hour", count)
    with closing(Supervisor()) as parts:
        struck(row, parts.address, jump)


# The kernels of OpenBLAS, and of NumPy, for processors of 2013, 2011 and 2004.
OLD = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4"}
KINDS = {"Haswell": {}, "Sandybridge": OLD, "Prescott": OLD}
PAIRS = (("Haswell", "Sandybridge"), ("Haswell", "Prescott"), ("Sandybridge", "Prescott"))


@few_and_many(few=1, many=6)
def test_unlike_processors_agree_to_rounding(tally, count, tmp_path):
    X = np.random.default_rng(0).normal(size=(1_500, 10))
    store_own(1_500, 10, y=np.digitize(X[:, 0] * X[:, 1] + X[:, 2], [-0.5, 0.5]))
    row = tally("workers of unlike processors", count)
    for name, fit in {"hsic": FIT, "ridge": ("fit", "own", "-q", "3")}.items():
        equal = _fit_on(("Haswell", "Haswell"), tmp_path, f"equal-{name}", fit)
        for pair in PAIRS[: min(count - row.injected, 3)]:
            unlike = _fit_on(pair, tmp_path, f"{'-'.join(pair)}-{name}", fit)
            sine = np.sin(subspace_angles(equal.components.T, unlike.components.T).max())
            change = abs(unlike.history[-1]["objective"] / equal.history[-1]["objective"] - 1)
            print(pair, name, f"sine {sine:.1e}, J {change:.1e}")
            row.add(survived=True, wrong=sine > 1e-10 or change > 1e-12)


def _fit_on(pair, folder, name, fit):
    with ExitStack() as parts:
        address = parts.enter_context(scheduler(folder))
        for kind in pair:
            given = {"OPENBLAS_CORETYPE": kind, **KINDS[kind]}
            parts.enter_context(worker(address, **given))
        with _client(address) as other:
            other.wait_for_workers(2)
            seen = other.run(lambda: threadpool_info()[0]["architecture"]).values()
        if len({*seen}) != len({*pair}):
            pytest.skip(f"OpenBLAS has no kernels for {pair} here: {[*seen]}")
        assert Fit(name, address, folder, fit=fit).ended(200)
    return load_model(name)
