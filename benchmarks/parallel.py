"""Run independent measurements in parallel, each on a single BLAS thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

T = TypeVar("T")
# Environment variables that BLAS and OpenMP read at start-up.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def in_processes(
    measure: Callable[..., T], cells: Iterable[tuple[Any, ...]], processes: int | None = None
) -> Iterator[T]:
    """Yield `measure(*cell)` in the order of the cells, by default in a process for each core."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            calls = [pool.submit(measure, *cell) for cell in cells]
            yield from (call.result() for call in calls)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
