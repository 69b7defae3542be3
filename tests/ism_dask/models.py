"""Estimators, engines, rows and watchers of fits for tests, and what they have to fulfil."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_wine

from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.engines import Problem, as_engine
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Gaussian, Laplacian, Linear, Polynomial
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.rows.raw import LoadedShard
from ism_dask.rows.shards import cut
from storage import DatasetInfo, open_dataset, write_dataset

# For fits whose features or ends are no matter of the test.
quiet = pytest.mark.filterwarnings("ignore::UserWarning")
# Kernels that predictions may have: their matrices are positive definite.
DEFINITE = [Gaussian(1.5), Gaussian(0.4), Laplacian(2.0), Linear(), Polynomial(2, 0.0)]
DEFINITE += [Polynomial(3, 1.0), 0.3 * Gaussian(1.0), 0.5 * Gaussian(2.0) + 0.1 * Polynomial(2)]
WINE, CULTIVAR = load_wine(return_X_y=True)
NAMES = np.array(["barolo", "grignolino", "barbera"])[CULTIVAR]


def curved(n=120, d=5, seed=0, noise=0.3):
    """Return rows X (n, d), and numbers that depend on the first two columns and on noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + X[:, 1] ** 2 + noise * rng.normal(size=n)


# The estimators of labels and numbers.
SUPERVISED = (PredictiveIKDR, SupervisedIKDR)
hsic_model = SupervisedIKDR


def quick(kind, n_components=1, **options):
    """Return an estimator of labels or numbers with a given width and no choice of few features."""
    few = {"max_features": None} if kind is PredictiveIKDR else {}
    return kind(n_components, **{"kernel": Gaussian(sigma=2.0), **few, **options})


def problem_of(X, y, kernel, rows=None, **given):
    """Return the problem of rows X (n, d), in shards of so many rows, and the dependence on y."""
    known = y if isinstance(y, Dependence) else target_dependence(y)
    return Problem.from_dependence(cut(X, rows), kernel, known, **given)


def objective_of(engine, W):
    """Return J at W (d, k) by an engine, in double precision."""
    return engine.double.value(W).objective


def first_engine(engine, problem, q):
    """Return the engine that is tried first."""
    return as_engine(engine).engines(problem, q)[0]


def projector(fitted):
    """Return the projector (d, d) on the space of the new features."""
    return np.asarray(fitted.components_.T @ fitted.components_)


def apart(one, *others):
    """Return the largest sine of an angle between the space of the first W and that of another."""
    return max(subspace_sine(one.components_.T, each.components_.T) for each in others)


def assert_same_fit(one, other, rtol, atol=None):
    """Assert that J is the same within `rtol`, and the space of W within `atol`, else `rtol`."""
    assert_allclose(one.objective_, other.objective_, rtol=rtol)
    assert_allclose(projector(one), projector(other), atol=rtol if atol is None else atol)
    assert_allclose(one.mean_, other.mean_, rtol=1e-12)
    assert_allclose(one.scale_, other.scale_, rtol=1e-12)


class StoredRows:
    """Rows that are read in ranges, as those on a disk."""

    def __init__(self, X, chunk_rows):
        self.X, self.shape, self.dtype, self.chunk_rows = X, X.shape, X.dtype, chunk_rows

    def read(self, start, stop):
        return self.X[start:stop]


def stored(X, folder, chunk_rows):
    """Return rows on the disk."""
    path = folder / f"{X.dtype}-{chunk_rows}"
    write_dataset(path, DatasetInfo(path.name), [X], chunk_rows=chunk_rows)
    return open_dataset(path)


def loaded(part):
    """Return a shard in memory as a task gets it."""
    return LoadedShard(part.start, part.raw, part.facts)


def most_memory(call):
    """Return how many bytes a call takes at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
