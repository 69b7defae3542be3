"""A fit depends on the numbers of the rows alone: not on their place, type, chunks or workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone

from ism_dask import SupervisedIKDR, UnsupervisedIKDR
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.kernels import Gaussian
from ism_dask.linalg.subspaces import subspace_sine
from storage import DatasetInfo, open_dataset, write_dataset

CRITERIA = ("prediction", "dependence")


def _bytes(n: int, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of bytes and classes of which the first two columns decide."""
    rng = np.random.default_rng(n)
    X = rng.integers(256, size=(n, d)).astype(np.uint8)
    score = X[:, 0] / 64.0 + np.sin(X[:, 1] / 32.0) + 0.3 * rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, [0.3, 0.6]))


def _stored(X: np.ndarray, folder: Path, chunk_rows: int) -> Any:
    name = f"{X.dtype}-{chunk_rows}"
    write_dataset(folder / name, DatasetInfo(name), [X], chunk_rows=chunk_rows)
    return open_dataset(folder / name)


def _apart(fits: list[SupervisedIKDR]) -> float:
    """Return the largest sine of the angle between the first W and another one."""
    return max(subspace_sine(fits[0].components_.T, each.components_.T) for each in fits[1:])


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_fit_is_the_same_in_memory_on_disk_on_a_cluster_and_as_any_type(
    criterion, tmp_path, thread_cluster
):
    X, y = _bytes(200)
    lazy, stored = da.from_array(X, chunks=(90, 5)), _stored(X * 1.0, tmp_path, 100)
    places = [X * 1.0, X, X.astype(np.float32), csr_array(X), stored, lazy]
    fits = [SupervisedIKDR(1, criterion=criterion).fit(place, y) for place in places]
    with Client(thread_cluster):
        fits += [SupervisedIKDR(1, criterion=criterion).fit(place, y) for place in (X, lazy)]
    for alone, spread in ((fits[1], fits[-2]), (fits[5], fits[-1])):
        assert_array_equal(spread.components_, alone.components_)
    # Few rows of bytes are in single precision for dependence, as ever, and numbers are not.
    assert _apart(fits) < (1e-12 if criterion == "prediction" else 1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clusters_are_the_same_in_memory_on_disk_on_a_cluster_and_sparse(tmp_path, thread_cluster):
    X = _bytes(200)[0] * 1.0
    lazy = da.from_array(X, chunks=(90, 5))
    places = (X, csr_array(X), _stored(X, tmp_path, 90))
    model = UnsupervisedIKDR(3, n_init=1, max_outer=3)
    fits = [clone(model).fit(place) for place in places]
    with Client(thread_cluster):
        fits.append(clone(model).fit(lazy))
    for other in fits[1:]:
        assert_array_equal(other.components_, fits[0].components_)
        assert_array_equal(other.labels_, fits[0].labels_)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_fit_to_larger_rows_is_the_same_wherever_they_are(
    criterion, tmp_path, monkeypatch, thread_cluster
):
    monkeypatch.setattr("ism_dask.rows.blocks.MEMORY_NUMBERS", 900)
    X, y = _bytes(500, 3)
    weights = np.random.default_rng(0).integers(0, 3, size=len(X))
    lazy, stored = da.from_array(X, chunks=(250, 3)), _stored(X * 1.0, tmp_path, 128)
    engine = "auto" if criterion == "prediction" else "blocks"

    def fitted(place):
        return SupervisedIKDR(1, criterion=criterion, engine=engine).fit(place, y, weights)

    fits = [fitted(place) for place in (X, csr_array(X), stored, _stored(X, tmp_path, 2048))]
    with Client(thread_cluster):
        fits.append(fitted(lazy))
    assert _apart(fits) < (1e-12 if criterion == "prediction" else 1e-5)


def test_many_rows_are_in_single_precision_if_it_holds_their_numbers():
    X, _ = _bytes(10_000)
    for values, precision in ((X * 1.0, np.float32), (X / 7.0, np.float64)):
        for place in (values, da.from_array(values, chunks=(3000, 5))):
            prepared = prepare_rows(place, Gaussian(), standardize=True)
            assert prepared.shards.dtype == precision
    few = prepare_rows(X[:500] * 1.0, Gaussian(), standardize=True)
    assert few.shards.dtype == np.float64
