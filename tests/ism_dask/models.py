"""Estimators and engines for tests."""

from __future__ import annotations

from typing import Any

from ism_dask import SupervisedIKDR
from ism_dask.engines import Engine, EngineOptions, Problem, as_engine
from ism_dask.solvers import SOLVERS

# The solvers of HSIC by name.
HSIC_SOLVERS = {name: kind for name, kind in SOLVERS.items() if name != "ascent"}


def hsic_model(*args: Any, **parameters: Any) -> SupervisedIKDR:
    """Return an estimator that maximises HSIC."""
    return SupervisedIKDR(*args, criterion="dependence", **parameters)


def first_engine(engine: str | EngineOptions, problem: Problem, q: int) -> Engine:
    """Return the engine that is tried first."""
    return as_engine(engine).engines(problem, q)[0]
