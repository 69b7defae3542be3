"""Square matrices in memory that is used again.

For matrices of some hundred rows, to get fresh memory from the system takes as long as the
arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ism_dask._types import Array

# Memory that no thread uses at present, and the number of such pieces that are not given back.
_UNUSED: list[Array] = []
_MOST_UNUSED = 64


@contextmanager
def square_matrices(
    rows: Any, count: int, dtype: DTypeLike = np.float64
) -> Iterator[list[Array | None]]:
    """Yield `count` matrices (n, n) with any content for rows (n, d), which end with the block.

    Rows of another library than NumPy get None: it reuses its memory itself.
    """
    if not isinstance(rows, np.ndarray):
        yield [None] * count
        return
    n = len(rows)
    memory = [_memory(n * n) for _ in range(count)]
    try:
        yield [each.view(dtype)[: n * n].reshape(n, n) for each in memory]
    finally:
        _UNUSED.extend(memory[: max(0, _MOST_UNUSED - len(_UNUSED))])


def _memory(size: int) -> Array:
    """Return memory of at least `size` numbers."""
    try:
        memory = _UNUSED.pop()
    except IndexError:
        return np.empty(size)
    return memory if len(memory) >= size else np.empty(size)
