"""Measure seconds of alternating runs, peak memory, and independent cells in processes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import psutil

Figure = dict[str, Any]
T = TypeVar("T")

# Seconds between two samples: short enough to catch peaks that last, long enough that sampling does
# not slow down what it measures.
_EVERY_SECONDS = 0.05
# The children of a process are listed anew after this many samples.
_SAMPLES_PER_CENSUS = 20
# Environment variables that BLAS and OpenMP read at start-up.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def say(text: str) -> None:
    """Print a line of progress on the standard error."""
    print(f"  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Run(Generic[T]):
    """The return value of a call, and its seconds."""

    value: T
    seconds: float


def timed(call: Callable[[], T]) -> Run[T]:
    """Call a function and return its value with its seconds."""
    started = time.perf_counter()
    value = call()
    return Run(value, time.perf_counter() - started)


def alternating(calls: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[Run[T]]]:
    """Run all calls in turn, `repeats` times, so that a slow phase of the machine slows them all.

    Return the runs of each call by name.
    """
    runs: dict[str, list[Run[T]]] = {name: [] for name in calls}
    for repeat in range(repeats):
        for name, call in calls.items():
            runs[name].append(timed(call))
            if runs[name][-1].seconds > 1:
                took = runs[name][-1].seconds
                say(f"{name}: {took:.1f} s (run {repeat + 1} of {repeats})")
    return runs


def median_seconds(runs: Sequence[Run[Any]]) -> float:
    """Return the median seconds of runs."""
    return float(np.median([run.seconds for run in runs]))


def median_ratio(runs: Sequence[Run[Any]], others: Sequence[Run[Any]]) -> float:
    """Return the median ratio of the seconds of neighbouring runs.

    The speed of a machine drifts more from the first to the last run than between neighbours.
    """
    pairs = zip(runs, others, strict=True)
    return float(np.median([run.seconds / other.seconds for run, other in pairs]))


def means_by_name(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over runs of each of their numbers, by name."""
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


class PeakMemory:
    """The peak resident memory of processes in bytes, sampled 20 times a second.

    Without `pids`, it is the sum over this process and all its children, whose number may change;
    pages that they share count more than once. With `pids`, each of these counts by itself. A
    spike of one process between two samples comes from the kernel's own high-water mark, if the
    system has one.
    """

    def __init__(self, pids: Sequence[int] | None = None) -> None:
        self._pids = pids
        self._own = [psutil.Process(pid) for pid in (pids or [psutil.Process().pid])]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)
        self._total = 0
        self._each = dict.fromkeys((process.pid for process in self._own), 0)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for pid in self._each:
            self._each[pid] = max(self._each[pid], high_water(pid))

    @property
    def each(self) -> dict[int, int]:
        """The peak of each process by its id."""
        return dict(self._each)

    @property
    def together(self) -> int:
        """The peak of the sum over all processes."""
        return max(self._total, *self._each.values())

    def _sample_until_stopped(self) -> None:
        samples = 0
        processes = self._own
        while not self._stop.is_set():
            if self._pids is None and samples % _SAMPLES_PER_CENSUS == 0:
                processes = [*self._own, *self._own[0].children(recursive=True)]
            self._sample(processes)
            samples += 1
            self._stop.wait(_EVERY_SECONDS)

    def _sample(self, processes: Sequence[psutil.Process]) -> None:
        total = 0
        for process in processes:
            with suppress(
                psutil.Error
            ):  # the process may have ended since the children were listed
                rss = process.memory_info().rss
                total += rss
                if process.pid in self._each:
                    self._each[process.pid] = max(self._each[process.pid], rss)
        self._total = max(self._total, total)


def high_water(pid: int) -> int:
    """Return the peak resident bytes of a process so far, or 0 if the system does not record them.

    `ru_maxrss` will not do: a process inherits that of its parent.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


def in_processes(
    measure: Callable[..., T], cells: Iterable[tuple[Any, ...]], processes: int | None = None
) -> Iterator[T]:
    """Yield `measure(*cell)` in the order of the cells, by default in a process for each core.

    Each process has a single BLAS thread.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            calls = [pool.submit(measure, *cell) for cell in cells]
            yield from (call.result() for call in calls)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
