"""A worker process uses freed memory again, which Dask would return to the system."""

import os
import subprocess
import sys

import pytest

_FAULTS = """
import resource
import numpy as np
from ism_dask.rows.worker import prepare_worker
if {settled}:
    prepare_worker()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**21)
before = faults()
for _ in range(10):
    np.ones(2**21)
print(faults() - before)
"""


def _faults(settled: bool, threshold: str) -> int:
    """Return the pages that ten arrays of 16 MiB cost, one after the other, after a first one."""
    env = {**os.environ, "MALLOC_TRIM_THRESHOLD_": threshold}
    # Huge pages would hide what is counted here.
    env["NUMPY_MADVISE_HUGEPAGE"] = "0"
    script = _FAULTS.format(settled=settled)
    out = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True)
    return int(out.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has the thresholds")
def test_a_worker_uses_freed_memory_again():
    ten_arrays = 10 * 16 * 2**20 // os.sysconf("SC_PAGESIZE")
    assert _faults(False, "65536") >= ten_arrays
    assert _faults(True, "65536") < ten_arrays / 10


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has the thresholds")
def test_thresholds_that_somebody_chose_stay():
    assert _faults(True, "131072") >= 10 * 16 * 2**20 // os.sysconf("SC_PAGESIZE")
