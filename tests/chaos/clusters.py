"""Fits on clusters of which parts are killed, and whoever starts those parts again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from daskparts import dask, scheduler_options, worker_options
from support import EXACT

from flows.services.dask import scheduler_environment
from storage import Checkpoints, load_model

LOCAL = 'kind = "local"\nworkers = 2\nthreads = 1\nmemory = "1 GiB"\n'
FIT = ("fit", "own", *EXACT, "--tol", "1e-12", "-q", "3", "--max-iter", "20")
# Which goes round near the end for ever: it never finds the same numbers twice.
ENDLESS = ("fit", "own", *EXACT, "--tol", "1e-300", "-q", "3", "--max-iter", "1000")
KEPT = ("--plain", "--checkpoint", "0")


class Fit:
    """A fit in a process of its own, as `ism-dask` runs it, that is looked at from outside.

    Parameters
    ----------
    name : str
        Of its run.
    scheduler : str or Path
    folder : Path
        For what it says.
    """

    def __init__(
        self, name: str, scheduler: object, folder: Path, *options: object, fit: Sequence[str] = FIT
    ) -> None:
        self.name, self._said = name, folder / f"{name}.said"
        wanted = (*fit, *KEPT, "--scheduler", scheduler, "--run", name, *options)
        with self._said.open("wb") as said:
            self.process = psutil.Popen(
                [sys.executable, "-m", "flows.cli", *map(str, wanted)],
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        """All that it has said so far."""
        return self._said.read_text()

    @property
    def iteration(self) -> int:
        """Where its newest checkpoint is."""
        newest = Checkpoints.of_run(self.name).find()
        if newest is None or not newest.runs or newest.runs[-1] is None:
            return 0
        return len(newest.runs[-1].history)

    @property
    def iterations(self) -> int:
        """How many iterations it has made, of all starts."""
        newest = Checkpoints.of_run(self.name).find()
        return 0 if newest is None else newest.iterations

    def reach(self, iteration: int, within: float = 120.0, *, of_all_starts: bool = False) -> None:
        """Wait until it has come to an iteration, or has made so many of all starts."""
        until = time.monotonic() + within
        while (self.iterations if of_all_starts else self.iteration) < iteration:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.02)

    def workers(self) -> list[psutil.Process]:
        """Return the workers that it has started."""
        children = self.process.children(recursive=True)
        return [each for each in children if "spawn_main" in " ".join(each.cmdline())]

    def ended(self, within: float) -> bool:
        """Say whether it comes to a good end in so many seconds."""
        try:
            return self.process.wait(within) == 0
        except psutil.TimeoutExpired:
            self.stop()
            return False

    def stop(self) -> None:
        """End it with what it has started, whatever state that is in."""
        family = [self.process, *self.process.children(recursive=True)]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait()


class Whole:
    """What an undisturbed fit comes to."""

    def __init__(self, name: str) -> None:
        model = load_model(name)
        self.components = model.components
        self.objectives = [each["objective"] for each in model.history]

    def differs(self, name: str) -> bool:
        """Return whether another run has other bits."""
        other = Whole(name)
        same = np.array_equal(self.components, other.components)
        return not same or self.objectives != other.objectives


def kill_one(rng: random.Random, among: Callable[[], list[psutil.Process]]) -> None:
    """Kill one of some processes, in a while."""
    time.sleep(rng.random() * 0.3)
    with suppress(psutil.NoSuchProcess):
        rng.choice(among()).kill()


class Supervisor:
    """Starts a scheduler and two workers, and again whatever of them has ended.

    Parameters
    ----------
    port : int
        Of the scheduler.
    """

    def __init__(self, port: int) -> None:
        self.address = f"tcp://127.0.0.1:{port}"
        parts = [dask("scheduler", *scheduler_options(port))]
        parts += [dask("worker", self.address, *worker_options())] * 2
        self._commands = [[str(word) for word in part] for part in parts]
        self._ended, self._keeps_workers = threading.Event(), True
        self.parts = [self._start(command) for command in self._commands]
        self._thread = threading.Thread(target=self._look_after)
        self._thread.start()

    @property
    def scheduler(self) -> psutil.Popen:
        """The scheduler that runs now."""
        return self.parts[0]

    def workers(self) -> list[psutil.Process]:
        """Return the workers that run now, without their nannies."""
        nannies = [each for each in self.parts[1:] if each.poll() is None]
        found = [child for nanny in nannies for child in nanny.children(recursive=True)]
        return [each for each in found if "spawn_main" in " ".join(each.cmdline())]

    def end_workers(self) -> None:
        """End all workers for good."""
        self._keeps_workers = False
        for part in self.parts[1:]:
            for each in [part, *part.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()

    def close(self) -> None:
        """End all of it."""
        self._ended.set()
        self._thread.join()
        for part in reversed(self.parts):
            part.terminate()
        for part in self.parts:
            part.wait(30)

    def _look_after(self) -> None:
        while not self._ended.wait(0.2):
            for number, command in enumerate(self._commands):
                wanted = number == 0 or self._keeps_workers
                if wanted and self.parts[number].poll() is not None:
                    self.parts[number] = self._start(command)

    @staticmethod
    def _start(command: list[str]) -> psutil.Popen:
        nowhere = subprocess.DEVNULL
        settings = {**os.environ, **scheduler_environment()}
        return psutil.Popen(command, stdout=nowhere, stderr=nowhere, cwd="/", env=settings)


def stop_for(process: psutil.Process, seconds: float) -> None:
    """Let a process stand still for so many seconds."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)
