"""Set up a process once: freed memory is reused, and BLAS has one thread in a worker."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

import numpy as np

from ism_dask.blas_threads import pin_process

# Names and values of glibc: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# The values that glibc itself raises these thresholds to, unless the environment fixes them ...
_LARGEST_MAPPED, _MAX_FREE = 32 * 2**20, 64 * 2**20
# ... as Dask's nannies do by default.
_NANNY_SETTING = ("MALLOC_TRIM_THRESHOLD_", "65536")


@cache
def reuse_pages() -> None:
    """Free a large array once, so that malloc keeps the memory that this process frees later.

    glibc returns an array to the system if it is larger than any that was freed before, or twice as
    large at the end of the heap; the system then clears new pages for the next tile. That took a
    third of the time of a fit of 700 rows, in a process that had never held a larger array.
    """
    np.empty(_LARGEST_MAPPED - 2**16, np.uint8)  # freed at once, without a write


@cache
def prepare_worker() -> None:
    """Prepare a worker's process for tasks: one BLAS thread, and reuse of freed memory.

    With the thresholds that Dask sets, every array gets new pages from the system, and clearing
    them took a third of the time of a fit. So malloc may reuse some tens of megabytes.
    """
    pin_process()
    name, value = _NANNY_SETTING
    if sys.platform != "linux" or os.environ.get(name) != value:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have no mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_MAPPED)
        mallopt(_TRIM_THRESHOLD, _MAX_FREE)
