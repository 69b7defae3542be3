"""Fits in processes of their own, clusters whose parts may be killed, and what a fit comes to."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import psutil
from daskparts import dask, scheduler_options, worker_options
from serving import free_port
from support import EXACT

from flows.services.dask import scheduler_environment
from storage import Checkpoints, load_model

LOCAL = 'cluster = "distributed.LocalCluster"\nworkers = 2\noptions = {memory_limit = "1 GiB"}\n'
FIT = ("fit", "own", *EXACT, "--tol", "1e-12", "-q", "3", "--max-iter", "20")
# Which goes round near the end for ever: it never finds the same numbers twice.
ENDLESS = ("fit", "own", *EXACT, "--tol", "1e-300", "-q", "3", "--max-iter", "1000")
OFTEN = ("--plain", "--checkpoint", "0")


def saved_iterations(run):
    """Return how many iterations a run has saved."""
    newest = Checkpoints.of_run(run).find()
    if newest is None or not newest.runs:
        return 0
    return 0 if newest.runs[-1] is None else len(newest.runs[-1].history)


class Fit:
    """A fit in a process of its own, whose words go to a file in a folder."""

    def __init__(self, name, scheduler, folder, *options, fit=FIT, within=()):
        self.name, self._said = name, folder / f"{name}.said"
        wanted = (*fit, *OFTEN, "--scheduler", scheduler, "--run", name, *options)
        command = [*within, sys.executable, "-m", "flows.cli", *map(str, wanted)]
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


class Machine(NamedTuple):
    """A machine: its address, and the beginning of commands on it."""

    host: str
    within: tuple[str, ...]

    @property
    def address(self):
        return bytes(map(int, self.host.split(".")))


HERE = Machine("127.0.0.1", ())


class Supervisor:
    """Starts a scheduler and two workers, and again whatever of them has ended."""

    def __init__(self, *machines):
        scheduler, *workers = machines or [HERE] * 3
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
        found = [child for nanny in nannies for child in nanny.children(recursive=True)]
        return [each for each in found if "spawn_main" in " ".join(each.cmdline())]

    def kill(self, number):
        """Kill a part, with what it has started."""
        part = self.parts[number]
        for each in [part, *part.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def end_workers(self):
        self._keeps_workers = False
        for number in range(1, len(self.parts)):
            self.kill(number)

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
