"""Schedulers and workers of Dask as processes of their own, as they are on a cluster."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import wait


def needs(program: str) -> str:
    """Return the path of a program that is not Python's, or skip the test."""
    # Debian's users have no /usr/sbin on their path, and `make tools` puts what Debian lacks beside
    # Python.
    places = (os.environ["PATH"], "/usr/sbin", str(Path(sys.executable).parent))
    found = shutil.which(program, path=os.pathsep.join(places))
    if found is None:
        absent = f"there is no {program} here; `make tools` installs it"
        # CI must not pass by skipping.
        required = os.environ.get("ISM_DASK_REQUIRE_TOOLS")
        (pytest.fail if required else pytest.skip)(absent)
    return found


def ran(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return how a command ended, and what it printed."""
    return subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=200,
        check=False,
    )


@contextmanager
def process(*command: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a process during the block."""
    started = subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
        cwd="/",  # not in the checkout, from where Python would import
    )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def dask(part: str, *options: object, within: Sequence[str] = ()) -> list[object]:
    """Return the command of a scheduler or a worker, in a network namespace perhaps."""
    return [*within, sys.executable, "-m", f"distributed.cli.dask_{part}", *options]


@contextmanager
def scheduler(folder: Path) -> Iterator[str]:
    """Keep a scheduler during the block; yield its address."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    with process(*dask("scheduler", *scheduler_options(0), "--scheduler-file", file)):
        wait(lambda: file.exists() and file.read_text().endswith("}"))
        yield str(json.loads(file.read_text())["address"])


@contextmanager
def worker(
    address: str, *options: object, within: Sequence[str] = (), **environment: str
) -> Iterator[None]:
    """Keep a worker during the block."""
    started = dask("worker", address, *worker_options(), *options, within=within)
    with process(*started, **environment):
        yield


def scheduler_options(port: int, host: str = "127.0.0.1") -> list[object]:
    """Return the options of a scheduler on this machine."""
    return ["--host", host, "--port", port, "--no-dashboard", "--dashboard-address", f"{host}:0"]


def worker_options(host: str = "127.0.0.1") -> list[object]:
    """Return the options of a worker of one thread on this machine."""
    size = ["--nthreads", 1, "--memory-limit", "1GiB", "--no-dashboard"]
    return ["--host", host, "--dashboard-address", f"{host}:0", *size]
