"""What `import ism_dask` gives, and what it does not wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ism_dask

NAMES = ("AlternativeIKDR", "SemiSupervisedIKDR", "SupervisedIKDR", "UnsupervisedIKDR", "hsic")


def test_all_that_is_exported_is_there():
    assert set(NAMES) < set(ism_dask.__all__) <= set(dir(ism_dask))
    for name in ism_dask.__all__:
        assert getattr(ism_dask, name) is not None
    assert ism_dask.kernels.KERNELS["gaussian"] is ism_dask.kernels.Gaussian


def test_a_missing_name_is_the_usual_error():
    with pytest.raises(AttributeError, match="module 'ism_dask' has no attribute 'Superwised'"):
        _ = ism_dask.Superwised
    with pytest.raises(ImportError, match="cannot import name 'Superwised'"):
        from ism_dask import Superwised  # noqa: F401


def test_nothing_heavy_is_imported_before_it_is_used():
    code = (
        "import sys, ism_dask, ism_dask.rows.source, ism_dask.rows.standardise; print(*sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"dask", "sklearn", "scipy"} & set(said.stdout.split())
