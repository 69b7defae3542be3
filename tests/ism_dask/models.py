"""Estimators, engines and rows for tests, and what two equal fits have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.testing import assert_allclose

from ism_dask import SupervisedIKDR
from ism_dask.engines import Engine, EngineOptions, Problem, as_engine
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Kernel
from ism_dask.rows.shards import cut
from ism_dask.solvers import SOLVERS

# The solvers of HSIC by name.
HSIC_SOLVERS = {name: kind for name, kind in SOLVERS.items() if name != "ascent"}


def hsic_model(*args: Any, **parameters: Any) -> SupervisedIKDR:
    """Return an estimator that maximises HSIC."""
    return SupervisedIKDR(*args, criterion="dependence", **parameters)


def problem_of(X: Any, y: Any, kernel: Kernel, rows: int | None = None, **given: Any) -> Problem:
    """Return the problem of rows X (n, d), in shards of so many rows, and the dependence on y."""
    known = y if isinstance(y, Dependence) else target_dependence(y)
    return Problem.from_dependence(cut(X, rows), kernel, known, **given)


def first_engine(engine: str | EngineOptions, problem: Problem, q: int) -> Engine:
    """Return the engine that is tried first."""
    return as_engine(engine).engines(problem, q)[0]


def projector(fitted: Any) -> np.ndarray:
    """Return the projector (d, d) on the space of the new features."""
    return np.asarray(fitted.components_.T @ fitted.components_)


def assert_same_fit(one: Any, other: Any, rtol: float, atol: float | None = None) -> None:
    """Assert that J is the same within `rtol`, and the space of W within `atol`, else `rtol`."""
    assert_allclose(one.objective_, other.objective_, rtol=rtol)
    assert_allclose(projector(one), projector(other), atol=rtol if atol is None else atol)
    assert_allclose(one.mean_, other.mean_, rtol=1e-12)
    assert_allclose(one.scale_, other.scale_, rtol=1e-12)


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows that are read in ranges, as those on a disk."""

    X: np.ndarray
    chunk_rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.X.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.X[start:stop]
