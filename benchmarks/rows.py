"""Load or draw the rows that the figures are measured on, and set up their problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.builtin import ingest
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import Engine, Problem, as_engine, first_that_serves
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import leading_eigenpairs
from ism_dask.rows.source import RowSource
from storage import Dataset

Array = NDArray[Any]


@dataclass(frozen=True)
class Head:
    """The first rows of a stored matrix, as a `RowSource` that any process can read by itself.

    Attributes
    ----------
    source : RowSource
    rows : int
    """

    source: RowSource
    rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """The number of these rows, and of columns."""
        return self.rows, self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype as stored."""
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        """The number of rows in a chunk of the source."""
        return self.source.chunk_rows

    def read(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` (exclusive)."""
        return self.source.read(start, min(stop, self.rows))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows with their labels y (n,): X is an array (n, d), or a `RowSource` that fits stream."""

    X: Any
    y: Array

    def head(self, n: int) -> Labelled:
        """Return the first n rows, as a `RowSource` if X is one."""
        X = Head(self.X, n) if isinstance(self.X, RowSource) else self.X[:n]
        return Labelled(X, self.y[:n])

    def in_memory(self) -> Labelled:
        """Return the same rows and labels with X as an array."""
        X = self.X.read(0, self.X.shape[0]) if isinstance(self.X, RowSource) else self.X
        return Labelled(X, self.y)


def mnist_train() -> Dataset:
    """Return the data set of MNIST's 60,000 training images, ingested first if need be."""
    return ingest("mnist", "train")


def labelled(data: Dataset) -> Labelled:
    """Return the rows and labels of a data set; fits stream the rows."""
    return Labelled(data.X, np.asarray(data.y))


def blobs(n: int, d: int, classes: int) -> Labelled:
    """Draw n rows around one centre for each class; the centres differ in a few directions only."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    centres = np.zeros((classes, d))
    centres[:, :classes] = 2 * np.eye(classes)
    return Labelled(rng.normal(size=(n, d)) + centres[y], y)


def problem_of(rows: Labelled, kernel: Kernel, q: int = 10) -> Problem:
    """Return the problem that a fit of q features with `kernel` would solve."""
    prepared = prepare_rows(rows.X, kernel, standardize=True)
    return DependenceRows.of(prepared, kernel, None, q).problem(target_dependence(rows.y))


def first_subspace(problem: Problem, q: int) -> Array:
    """Return W (d, q) after the first iteration, which is close enough to that of a whole fit."""

    def iterated(engine: Engine) -> Array:
        start = leading_eigenpairs(engine.phi0(), q)
        W = start.vectors[:, ~start.null]
        return leading_eigenpairs(engine.phi(W).phi, q).vectors

    with single_threaded_blas():
        return first_that_serves(as_engine("auto").engines(problem, q), iterated)


def turned(W: Array, seed: int) -> Array:
    """Return W (d, q) slightly perturbed: engines reuse what they computed for the same W."""
    noise = np.random.default_rng(seed).normal(size=W.shape)
    return np.asarray(np.linalg.qr(W + 1e-6 * noise)[0])
