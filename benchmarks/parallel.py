"""Independent measurements in as many processes as there are cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

T = TypeVar("T")


def in_processes(measure: Callable[..., T], cells: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """Yield `measure(*cell)` in the order of the cells, each with one BLAS thread."""
    with parallel_config(backend="loky", n_jobs=-1, inner_max_num_threads=1):
        yield from Parallel(return_as="generator")(delayed(measure)(*cell) for cell in cells)
