"""What tests of the flows need: how a command ended, somebody who watches, made-up data sets."""

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daskparts import ran

from flows.services.leases import find_lease
from flows.settings.runs import FitSettings
from storage import DatasetInfo, Model, dataset_path, load_model, write_dataset

# A program that ends itself at one of its calls to the disk that name some path, if a number of the
# call is given: its first two arguments.
DYING = """
import os, signal, sys
folder, calls = sys.argv.pop(1), int(sys.argv.pop(1))
def end():
    os.kill(os.getpid(), signal.SIGKILL)
def hook(event, given):
    global calls
    if event.startswith(("os.", "open")) and any(folder in str(each) for each in given[:2]):
        calls -= 1
        if calls == 0:
            end()
sys.addaudithook(hook)
"""
# The command, which prints the number of an iteration before it saves it.
_DOOMED = f"""{DYING}
from flows.runs import resumable
offer = resumable.FitCheckpoints.offer
def announced(self, checkpoint):
    print(len(checkpoint.runs[-1].history) if checkpoint.runs else 0, flush=True)
    offer(self, checkpoint)
resumable.FitCheckpoints.offer = announced
from flows.cli import main
main()
"""


# What is made, in the folder of the test, by code that should not run.
MARKER = "was-run"


class Payload:
    """Makes the marker when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (MARKER,)


PICKLED = pickle.dumps(Payload())


LOCAL = """\
cluster = "distributed.LocalCluster"
workers = 2
options = {memory_limit = "1 GiB"}
"""
# Options of a fit of many iterations, one like the other.
EXACT = ("--criterion", "dependence", "--engine", "exact")


def doomed_command(folder: str, calls: int, *arguments: object) -> list[str]:
    """Return a command that kills itself at the n-th call that names a path; 0: never."""
    return [sys.executable, "-c", _DOOMED, folder, str(calls), *map(str, arguments)]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a size such as 3m during the block, or skip the test."""
    folder.mkdir()
    mounted = ran("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs is not allowed here")
    try:
        yield folder
    finally:
        ran("umount", "--lazy", folder).check_returncode()


@dataclass(frozen=True)
class Ended:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """The object of the last line, in strict JSON: without infinities."""
        assert self.out, self
        return json.loads(self.out.splitlines()[-1], parse_constant=pytest.fail)

    @property
    def words(self) -> str:
        """What was printed, with a space for each line break."""
        return " ".join(self.out.split())

    def failed(self, status: int) -> str:
        """Return the one line that a failed command prints; with `--json`, an object as well."""
        assert self.status == status, self
        if self.out:
            line = self.err.removeprefix("ism-dask: ").strip()
            assert json.loads(self.out) == {"error": line, "status": status}
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        assert self.err.startswith("ism-dask: ")
        return self.err


Command = Callable[..., Ended]


class Diary:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self.texts: list[str] = []
        self.notes: list[str] = []
        self.log: list[str] = []

    def tick(self, share: float, text: str) -> None:
        self.shares.append(share)
        self.texts.append(text)

    def noted(self, text: str) -> None:
        self.notes.append(text)

    def logged(self, text: str) -> None:
        self.log.append(text)


def store_own(rows: int, columns: int = 4, **labels: np.ndarray) -> None:
    """Store a data set "own" of normal rows; without labels y, classes by the first column."""
    X = np.random.default_rng(0).normal(size=(rows, columns))
    given = labels or {"y": np.digitize(X[:, 0], [-0.5, 0.5])}
    write_dataset(dataset_path("own"), DatasetInfo("own", default_label="y"), [X], given)


def exact_fit(run: str, iterations: int = 1000) -> FitSettings:
    """Return a fit of "own" of many iterations, each of them a checkpoint."""
    fit: Any = {"criterion": "dependence", "sigma": "median", "engine": "exact", "n_components": 3}
    limits: Any = {"tol": 1e-12, "max_iter": iterations, "checkpoint": 0.0}
    return FitSettings(dataset="own", run=run, force=True, **fit, **limits)


def undisturbed(iterations: int, rows: int = 3_500) -> Model:
    """Store "own" of so many rows, and return what a fit of it comes to."""
    from flows.runs.fit import run_fit

    store_own(rows, 20)
    run_fit(exact_fit("whole", iterations))
    return load_model("whole")


def is_held(run: str) -> bool:
    """Return whether a process computes a run."""
    lease = find_lease(run)
    return lease is not None and lease.held


def flown(flow: str, settings: Any) -> Any:
    """Return the result of a flow under Prefect."""
    from flows import run_flows
    from flows.tracking.flow_run import run_flow

    return run_flow(getattr(run_flows, flow), settings)
