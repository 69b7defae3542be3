"""Estimators for tests."""

from __future__ import annotations

from typing import Any

from ism_dask import SupervisedIKDR
from ism_dask.solvers import SOLVERS

# The solvers of HSIC by name.
HSIC_SOLVERS = {name: kind for name, kind in SOLVERS.items() if name != "ascent"}


def hsic_model(*args: Any, **parameters: Any) -> SupervisedIKDR:
    """Return an estimator that maximises HSIC."""
    return SupervisedIKDR(*args, criterion="dependence", **parameters)
