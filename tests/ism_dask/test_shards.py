"""Rows cut into shards, sums over them, the memory of workers, and what is said of columns."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, SchedulerPlugin
from distributed.utils import key_split
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from models import StoredRows, curved, hsic_model
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info

from ism_dask import PredictiveIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.criteria.landmark_regression import KernelSums
from ism_dask.kernels import Gaussian
from ism_dask.rows.execution import task_budget
from ism_dask.rows.raw import ROW_WEIGHTS, ColumnMoments
from ism_dask.rows.shards import cut
from ism_dask.solvers import ISM
from ism_dask.threads import _libraries, _set_threads, side_by_side, single_threaded_blas

RNG = np.random.default_rng(11)
X = RNG.normal(size=(50, 4))


def _first_and_sum(piece):
    return np.array([piece.X.sum()]), float(len(piece.X))


def _blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_overlapping_holders_give_blas_back_at_the_end(request):
    before = [library.get_num_threads() for library in _libraries()]
    request.addfinalizer(lambda: _set_threads(before))
    _set_threads([2] * len(before))  # of which the suite leaves one
    assert _blas_threads() == {2}
    early, late = ExitStack(), ExitStack()
    for holder in (early, late):
        holder.enter_context(single_threaded_blas())
    early.close()
    assert _blas_threads() == {1}
    late.close()
    assert _blas_threads() == {2}
    cut(X, 5).fold(_first_and_sum)
    assert _blas_threads() == {2}


def test_some_shards_are_rows_of_their_own():
    shards = cut(X, 12).with_rows(ROW_WEIGHTS, np.arange(50.0))
    some = shards.every(2, np.r_[0:12, 30:50])  # there is none of the second shard
    kept = np.r_[0:12, 36:48]
    assert (some.n_rows, some.bounds) == (24, (0, 12, 24))
    assert_array_equal(some.rows(np.arange(24)), X[kept])
    assert_array_equal(some.gather_fact(ROW_WEIGHTS), kept)
    assert some.fold(_first_and_sum)[1] == 24


def test_a_cluster_without_workers_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("ism_dask.rows.execution._WORKER_WAIT", 0.2)
    refused = pytest.raises(RuntimeError, match="has no workers")
    with _local_cluster(tmp_path, 0) as cluster, Client(cluster), refused:
        cut(X)


def _fit(data, y):
    options = {"kernel": Gaussian("median"), "solver": ISM(tol=0.01)}
    return hsic_model(2, **options).fit(data, y).components_


def _clustered(data, engine):
    # Two rounds: every kind of pass is made in each, and one bit off is there at the end.
    options = {"solver": ISM(tol=0.1), "outer_tol": 0.2}
    model = UnsupervisedIKDR(3, 2, engine=engine, **options).fit(data)
    assert model.report_.engine == engine
    return np.column_stack([model.embedding_, model.labels_])


def _local_cluster(folder, n_workers, **options):
    if options.get("processes", True):  # threads of this process have no host
        options["host"] = "127.0.0.1"
    options.setdefault("dashboard_address", "127.0.0.1:0")
    return LocalCluster(n_workers=n_workers, local_directory=str(folder), **options)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(2,), pytest.param((1, 4), marks=pytest.mark.chaos)])
def test_the_same_bits_on_one_two_and_four_workers_and_none(sizes, tmp_path, monkeypatch):
    """Processes, not threads: every shard and every partial sum crosses a wire."""
    monkeypatch.setattr("ism_dask.clustering.spectral_embedding._DENSE", 100)
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 100)
    rows, score = curved(300, noise=0)
    y = np.digitize(score, [0.3, 1.2])
    bytes_ = (np.arange(300)[:, None] * 7 + np.arange(5) ** 2).astype(np.uint8)
    source, labels = StoredRows(bytes_, chunk_rows=16), np.arange(300) // 100
    lazy = da.from_array(rows, chunks=(110, 3))
    alone = [_fit(rows, y), _fit(source, labels), _fit(lazy, y)]
    assert_allclose(alone[2], alone[0], atol=1e-9)
    groups = rows + 3 * y[:, None]
    alone += [_clustered(groups, "landmarks"), _clustered(groups, "exact")]
    with _local_cluster(tmp_path, 0, threads_per_worker=1) as cluster, Client(cluster) as client:
        for workers in sizes:
            cluster.scale(workers)
            client.wait_for_workers(workers, timeout=120)
            assert task_budget() > 0
            spread = [_fit(rows, y), _fit(source, labels), _fit(lazy, y)]
            spread.append(_clustered(groups, "landmarks"))
            if workers == 2:  # which takes seconds, by many small passes
                spread.append(_clustered(groups, "exact"))
            for one, many in zip(alone, spread, strict=False):
                assert_array_equal(many, one)


@pytest.mark.long
def test_a_prediction_has_the_same_bits_on_workers_one_of_which_dies(tmp_path, monkeypatch):
    """It dies between the two passes of an evaluation, with its shards."""
    data, y = curved(10_500, seed=1, noise=0.5)
    fit = PredictiveIKDR(2, target="linear").fit
    alone, deaths, coefficients = fit(data, y).components_, [], KernelSums.coefficients
    with _local_cluster(tmp_path, 2, threads_per_worker=1) as cluster, Client(cluster) as client:
        tasks = _TaskNames()
        cluster.scheduler.add_plugin(tasks)
        assert_array_equal(fit(data, y).components_, alone)
        assert {"kernel_sums", "slope_sums"} <= tasks.names

        def with_a_death(sums, ridge):
            if not deaths and sums.size > 10_000:
                deaths.append(min(client.run(os.getpid).values()))
                os.kill(deaths[0], signal.SIGKILL)
            return coefficients(sums, ridge)

        monkeypatch.setattr(KernelSums, "coefficients", with_a_death)
        assert_array_equal(fit(data, y).components_, alone)
    assert deaths


class _TaskNames(SchedulerPlugin):
    """Collects the names of the tasks, as the dashboard shows them."""

    def __init__(self):
        self.names = set()

    def transition(self, key, start, finish, *args, **kwargs):
        self.names.add(key_split(key))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_tasks_on_the_dashboard_have_plain_names(monkeypatch, tmp_path):
    monkeypatch.setattr("ism_dask.clustering.spectral_embedding._DENSE", 50)
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 80)
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    rows = re.findall(r"^\| (`\w+`.*?) \|", page, re.MULTILINE)
    plain = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    points, y = RNG.normal(size=(240, 5)), np.repeat([0, 1, 2], [60, 80, 100])
    tasks, options = _TaskNames(), {"threads_per_worker": 2, "processes": False}
    with _local_cluster(tmp_path, 1, **options) as cluster, Client(cluster):
        cluster.scheduler.add_plugin(tasks)

        def fit(kernel="gaussian", y=y, weights=None, **parameters):
            given = {"solver": ISM(max_iter=2)} | parameters
            hsic_model(2, kernel=kernel, **given).fit(points, y, sample_weight=weights)

        for kernel in ("gaussian", "relative_gaussian"):
            fit(kernel, engine="exact")
        fit(engine="landmarks")
        fit("polynomial", engine="landmarks")
        fit("linear", engine="closed_form")
        fit(weights=RNG.random(240), y=points[:, 0])
        scores = np.where(np.arange(240)[:, None] % 2, np.column_stack([y == 0, y == 1]), np.nan)
        SemiSupervisedIKDR(3, 2, solver=ISM(max_iter=2), max_outer=1).fit(points, scores)
        _clustered(points, "landmarks")
    assert len(tasks.names) > 20
    assert tasks.names <= plain


def test_a_child_of_a_fork_computes_with_threads_of_its_own(monkeypatch):
    """Several shards take threads, and those of the parent are not in the child."""
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 10)
    y = X[:, 0] > 0
    before = _fit(X, y)
    # A bare fork: the child runs no exit handler of what other tests have imported.
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # which ends it if it waits for a thread
        same = np.array_equal(_fit(X, y), before)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Moments of columns.


@given(
    arrays(np.float64, (12, 2), elements=st.floats(-1e6, 1e6)),
    st.floats(-1e8, 1e8),
    st.integers(1, 11),
    st.none() | arrays(np.float64, 12, elements=st.sampled_from([0.0, 0.5, 1.0, 3.0])),
)
def test_moments_of_parts_add_up(X, offset, cut, weights):
    X = X + offset
    cuts = [slice(cut), slice(cut, None)]
    parts = [ColumnMoments.from_rows(X[s], None if weights is None else weights[s]) for s in cuts]
    whole, counts = parts[0] + parts[1], np.ones(12) if weights is None else weights
    assert (whole.n_rows, whole.weight) == (12, counts.sum())
    assert_array_equal([whole.low, whole.high], [X.min(axis=0), X.max(axis=0)])
    if not counts.any():
        return
    exact = X.astype(np.longdouble)
    mean = (counts @ exact) / counts.sum()
    # Numbers below the normal ones have fewer digits.
    rounding = max(1e-15 * np.abs(X).max(), np.finfo(float).tiny)
    assert_allclose(whole.mean, mean.astype(float), rtol=1e-13, atol=4 * rounding)
    expected = np.sqrt(counts @ (exact - mean) ** 2 / counts.sum()).astype(float)
    found = np.sqrt(whole.squares / whole.weight)
    free = expected < 1e-150  # squares have lost digits, or all of them
    assert_allclose(found[~free], expected[~free], rtol=1e-9, atol=8 * rounding)


def test_work_within_work_ends_on_one_thread(monkeypatch):
    """A thread makes those calls itself that no other has begun, and Dask's tasks within calls."""
    one = ThreadPoolExecutor(1)
    monkeypatch.setattr("ism_dask.threads._pool", lambda _: one)
    shards = cut(X, 10)

    def count(number):
        inner = side_by_side([lambda k=k: k + number for k in range(3)])
        return sum(inner) + shards.fold(lambda piece: len(piece.X))

    found = side_by_side([partial(count, number) for number in range(4)])
    assert found == [3 + 3 * number + len(X) for number in range(4)]
