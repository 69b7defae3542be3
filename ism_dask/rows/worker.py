"""Set up a process once: memory stays, and a worker has one BLAS thread."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

import numpy as np

from ism_dask.blas_threads import pin_process

# Names and values of glibc: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
_TRIM, _MAP = -1, -3
# What glibc itself goes up to in a process where nobody has fixed these ...
_LARGEST_MAPPED, _KEPT_FREE = 32 * 2**20, 64 * 2**20
# ... as Dask's nannies do, unless they are told otherwise.
_FIXED = ("MALLOC_TRIM_THRESHOLD_", "65536")


@cache
def reuse_pages() -> None:
    """Let malloc use again what this process frees, unless its environment says otherwise.

    glibc returns arrays to the system that are larger than any it has seen freed, or twice as
    large at the end of the heap; the system then clears pages anew for the next tile. That took
    a third of a fit of 700 rows, in a process that had never held a larger array.
    """
    np.empty(_LARGEST_MAPPED - 2**16, np.uint8)  # freed at once, and never touched


@cache
def prepare_worker() -> None:
    """Make this process, a worker's, fit for tasks."""
    pin_process()
    name, value = _FIXED
    if sys.platform == "linux" and os.environ.get(name) == value:
        _keep_pages()


def _keep_pages() -> None:
    """Let malloc use again what was freed, up to some tens of megabytes.

    Under the thresholds of Dask every array comes as fresh pages from the kernel, and clearing
    those took a third of the time of a fit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have none
        mallopt(_MAP, _LARGEST_MAPPED)
        mallopt(_TRIM, _KEPT_FREE)
