"""Fits in processes of their own, clusters whose parts may be killed, and what a fit comes to."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import NamedTuple

import psutil
from daskparts import dask, scheduler_options, worker_options
from serving import free_port, kill_family
from support import EXACT
from waiting import wait

from flows.compute.places import SCHEDULER_SETTINGS, dask_environment
from storage import Checkpoints, load_model

FIT = ("fit", "own", *EXACT, "--tol", "1e-12", "-q", "3", "--max-iter", "20")
OFTEN = ("--plain", "--checkpoint", "0")


def saved_iterations(run):
    """Return how many iterations a run has saved."""
    newest = Checkpoints.of_run(run).find()
    if newest is None or not newest.runs:
        return 0
    return 0 if newest.runs[-1] is None else len(newest.runs[-1].history)


def _workers(processes):
    return [each for each in processes if "spawn_main" in " ".join(each.cmdline())]


class Fit:
    """A fit in a process of its own, whose words go to a file in a folder."""

    def __init__(self, name, folder, *options, fit=FIT, within=()):
        self.name, self._said = name, folder / f"{name}.said"
        wanted = (*fit, *OFTEN, "--run", name, *options)
        self._command = [*within, sys.executable, "-m", "flows.cli", *map(str, wanted)]
        self.start()

    def start(self):
        """Start the command, once more perhaps."""
        with self._said.open("wb") as said:
            self.process = psutil.Popen(self._command, stdout=said, stderr=subprocess.STDOUT)

    @property
    def said(self):
        return self._said.read_text()

    def reach(self, iteration, within=120.0):
        """Wait until it has come to an iteration."""

        def reached():
            assert self.process.poll() is None, self.said
            return saved_iterations(self.name) >= iteration

        wait(reached, within, every=0.02)

    def workers(self):
        """Return the workers that it has started."""
        return _workers(self.process.children(recursive=True))

    def ended(self, within):
        """Say whether it comes to a good end in so many seconds."""
        try:
            return self.process.wait(within) == 0
        except psutil.TimeoutExpired:
            self.stop()
            return False

    def stop(self):
        """End it with what it has started, whatever state that is in."""
        kill_family(self.process.pid)
        self.process.wait()


def bits(run):
    """Return what a fit has come to, to the last bit."""
    model = load_model(run)
    return model.components.tobytes(), [each["objective"] for each in model.history]


class Machine(NamedTuple):
    """A machine: its address, and the beginning of commands on it."""

    host: str
    within: tuple[str, ...]

    @property
    def address(self):
        return bytes(map(int, self.host.split(".")))


class Supervisor:
    """Starts a scheduler and two workers, and again whatever of them has ended."""

    within = ()

    def __init__(self, *machines):
        scheduler, *workers = machines or [Machine("127.0.0.1", ())] * 3
        port = free_port()
        self.address = f"tcp://{scheduler.host}:{port}"
        where = scheduler_options(port, scheduler.host)
        parts = [dask("scheduler", *where, within=scheduler.within)]
        for each in workers:
            where = worker_options(each.host)
            parts.append(dask("worker", self.address, *where, within=each.within))
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
        return _workers(child for nanny in nannies for child in nanny.children(recursive=True))

    @contextmanager
    def without_workers(self):
        """End the workers, and start none in the block."""
        self._keeps_workers = False
        for each in self.parts[1:]:
            kill_family(each.pid)
        yield
        self._keeps_workers = True

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
        settings = {**os.environ, **dask_environment(SCHEDULER_SETTINGS)}
        return psutil.Popen(command, stdout=nowhere, stderr=nowhere, cwd="/", env=settings)
