"""Machines whose disk fails now and then, or takes long, or whose clock jumps."""

import random
import struct
import sys
import time
from pathlib import Path

import pytest
from daskparts import needs, ran
from fits import FIT, OFTEN, Fit, Whole
from support import store_own
from tally import few_and_many

from storage import home

HOUR = 3600


def _built(name, folder):
    """Build one of our libraries that are loaded before that of C, and return its path."""
    path, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    ran(needs("cc"), "-shared", "-fPIC", "-o", path, source, "-ldl").check_returncode()
    return str(path)


@pytest.fixture
def undisturbed():
    store_own(600, 10)
    _fit("whole")
    return Whole("whole")


def _fit(run, **environment):
    command = (sys.executable, "-m", "flows.cli", *FIT, *OFTEN, "--quiet", "--run", run)
    return ran(*command, **environment)


@pytest.fixture
def bad_disk(tmp_path):
    return {"LD_PRELOAD": _built("bad_disk", tmp_path), "BAD_DISK": str(home())}


def _harm(*, fails_each=0, microseconds=0):
    return {
        "BAD_DISK_FAILS_EACH": str(fails_each),
        "BAD_DISK_MICROSECONDS": str(microseconds),
    }


@few_and_many(few=2, many=30)
def test_each_nth_write_fails(tally, count, undisturbed, bad_disk):
    """As of a disk that is about to die, or a network file system with a soft time limit."""
    row = tally("each n-th write, or sync, to the home fails (EIO), n from 1 to 300", count)
    rng = random.Random(count)
    for number in range(count):
        run, nth = f"bad-{number}", int(300 ** rng.random())
        ended = _fit(run, **bad_disk, **_harm(fails_each=nth))
        said = ended.stderr.strip()
        print(nth, ended.returncode, said)
        survived = ended.returncode == 0
        if not survived and said.startswith("ism-dask: could not write ") and "\n" not in said:
            survived = _fit(run).returncode == 0
        row.add(survived=survived, wrong=survived and undisturbed.differs(run))
    assert ran(sys.executable, "-m", "flows.cli", "check").returncode == 0


@few_and_many(few=1, many=10)
def test_a_slow_disk_costs_time_only(tally, count, undisturbed, bad_disk):
    row = tally("each write, or sync, to the home takes 20 ms", count)
    for number in range(count):
        run = f"slow-{number}"
        survived = _fit(run, **bad_disk, **_harm(microseconds=20_000)).returncode == 0
        row.add(survived=survived, wrong=survived and undisturbed.differs(run))


@few_and_many(few=1, many=10)
def test_a_clock_that_jumps_costs_time_only(tally, count, whole, local, tmp_path, monkeypatch):
    """If Dask waits for the old time to come again, another cluster goes on after `--stall`."""
    row = tally("the clock of all processes jumps by an hour, forward and back in turn", count)
    offset, rng = tmp_path / "offset", random.Random(count)
    offset.write_bytes(struct.pack("l", HOUR))
    monkeypatch.setenv("LD_PRELOAD", _built("jumping_clock", tmp_path))
    monkeypatch.setenv("CLOCK_OFF_BY", str(offset))
    for number in range(count):
        fit = Fit(f"jumped-{number}", local, tmp_path, "--stall", 20)
        fit.reach(rng.randrange(1, 10))
        time.sleep(rng.random())
        with offset.open("r+b") as file:  # it is mapped: the same file
            file.write(struct.pack("l", HOUR * (number % 2)))
        survived = fit.ended(200)
        print(number, fit.said.count("joining it again"))
        row.add(survived=survived, wrong=survived and whole.differs(fit.name))
