"""Passes that are continued from saved sums: the same bits, from any of them, and no others."""

from __future__ import annotations

import time
from threading import Lock

import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from models import hsic_model
from sklearn.base import clone

from ism_dask.kernels import Gaussian
from ism_dask.records.partial_results import saving_partial_results
from ism_dask.rows import saved_sums
from ism_dask.rows.shards import cut, fingerprint
from ism_dask.rows.tasks import RowFact
from ism_dask.solvers import ISM

X = np.random.default_rng(0).normal(size=(340, 5))
_FACT = RowFact("fact")
CALLS = []


class Killed(BaseException):
    """Stands for the end of the process."""


class Sums:
    """A store in memory, which ends the process after a number of sums."""

    def __init__(self, known=None, most=10**6):
        self.saved, self.most = {} if known is None else known, most
        self.ever = {}

    def find(self, key):
        return self.saved.get(key)

    def save(self, key, total):
        if self.most == 0:
            raise Killed
        self.most -= 1
        self.ever[key] = self.saved[key] = total

    def remove(self, key):
        self.saved.pop(key, None)

    def keys(self, start):
        return [key for key in self.saved if key.startswith(start)]


@pytest.fixture(autouse=True)
def _every_pass_is_long(monkeypatch):
    monkeypatch.setattr(saved_sums, "_LONG", -1.0)


def _gram(piece, scale):
    CALLS.append(piece.start)
    return scale * (piece.X.T @ piece.X), piece.X.sum(axis=0), float(piece.X.sum())


def _first(total):
    return total[:1]


def _outer(head, tail, scale):
    CALLS.append(head.start)
    return None, scale * sum(head.X.T @ (head.X @ (piece.X.T @ piece.X)) for piece in tail)


def _slow_outer(head, tail, scale):
    time.sleep(0.02)
    return _outer(head, tail, scale)


PASSES = {
    "fold": lambda shards, scale: shards.fold(_gram, scale),
    "finished": lambda shards, scale: shards.fold(_gram, scale, finish=_first),
    "pairs": lambda shards, scale: shards.fold_pairs(_outer, scale),
}


def _bits(result):
    return [None if each is None else np.asarray(each).tobytes() for each in result]


@pytest.mark.parametrize("one", PASSES.values(), ids=PASSES)
@settings(max_examples=8, deadline=None)
@given(rows=st.sampled_from([3, 10, 21, 90]), data=st.data())
def test_a_pass_continues_from_any_of_its_sums_to_the_same_bits(one, rows, data):
    plain = one(cut(X, rows), 0.3)
    store = Sums()
    with saving_partial_results(store):
        assert _bits(one(cut(X, rows), 0.3)) == _bits(plain)
        sums = {key: total for key, total in store.ever.items() if not key.endswith("result")}
        saved = data.draw(st.sets(st.sampled_from(sorted(sums))))
        CALLS.clear()
        with saving_partial_results(Sums({key: sums[key] for key in saved})):
            assert _bits(one(cut(X, rows), 0.3)) == _bits(plain)
        again = len(CALLS)
        CALLS.clear()
        one(cut(X, rows), 0.31)  # another pass, of which nothing is known
        assert again <= len(CALLS)
        assert (again == len(CALLS)) == (not saved)


def test_a_complete_pass_is_one_sum_and_is_not_computed_again():
    store = Sums()
    with saving_partial_results(store):
        first = cut(X, 20).fold(_gram, 0.3)
        CALLS.clear()
        second = cut(X.copy(), 20).fold(_gram, 0.3)
    assert CALLS == []
    assert _bits(first) == _bits(second)
    assert len(store.saved) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda shards: cut(X + 1e-15, 20),
        lambda shards: cut(X, 21),
        lambda shards: cut(X[::-1], 20),
        lambda shards: shards.with_rows(_FACT, X[:, 0]),
        lambda shards: shards.times(np.eye(5)),
        lambda shards: cut(X.astype(np.float32), 20),
    ],
)
def test_other_rows_are_another_pass(other):
    store = Sums()
    with saving_partial_results(store):
        shards = cut(X, 20)
        shards.fold(_gram, 0.3)
        CALLS.clear()
        other(shards).fold(_gram, 0.3)
    assert CALLS


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("engine", ["exact", "landmarks"])
def test_a_fit_killed_in_a_pass_ends_with_the_same_bits(engine, monkeypatch):
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 20)
    model = hsic_model(
        2, kernel=Gaussian(1.5), engine=engine, solver=ISM(max_iter=3), random_state=0
    )
    y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
    whole, saved = clone(model).fit(X, y), {}
    for most in (0, 5, 40):  # the third process is killed, too, in a later pass
        with saving_partial_results(Sums(saved, most)), pytest.raises(Killed):
            clone(model).fit(X, y)
    known = len(saved)
    rest = Sums(saved)
    with saving_partial_results(rest):
        model.fit(X, y)
    assert known
    assert model.components_.tobytes() == whole.components_.tobytes()
    assert [each.objective for each in model.history_] == [
        each.objective for each in whole.history_
    ]


def test_a_pass_on_a_cluster_saves_what_it_has_computed_and_goes_on(monkeypatch):
    monkeypatch.setattr(saved_sums, "_SHORT", 0.01)
    plain = cut(X, 10).fold_pairs(_outer, 0.3)
    saved, rest = {}, Sums()
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster),
    ):
        with saving_partial_results(Sums(saved, 3)), pytest.raises(Killed):
            cut(X, 10).fold_pairs(_slow_outer, 0.3)
        rest.saved = dict(saved)
        _wait_for_rest(cluster)  # calls of the killed pass end by themselves
        CALLS.clear()
        with saving_partial_results(rest):
            whole = cut(X, 10).fold_pairs(_slow_outer, 0.3)
    assert len(saved) == 3
    # Each part has four calls, as has each head.
    assert len(CALLS) == 4 * (len(cut(X, 10).parts) - 3)
    assert _bits(whole) == _bits(plain)
    assert len(rest.saved) == 1


def _wait_for_rest(cluster):
    """Wait until a cluster of one worker has nothing to do, ten times in a row."""
    idle = 0
    while idle < 10:
        tasks = list(cluster.scheduler.tasks.values())
        waits = any(task.state in ("waiting", "queued", "processing") for task in tasks)
        idle = 0 if waits or cluster.workers[0].active_threads else idle + 1
        time.sleep(0.02)


def test_fingerprints_are_of_values_not_of_objects():
    kernel = Gaussian(2.0)
    assert fingerprint(kernel, X, (1, "a"), None) == fingerprint(
        Gaussian(2.0), X.copy(), (1, "a"), None
    )
    values = [kernel, Gaussian(3.0), X, X[:1], X.astype("f4"), 1, 1.0, "1", True, None, [1], (1,)]
    assert len({fingerprint(each) for each in values}) == len(values)
    for unknown in (object(), Lock()):
        assert fingerprint(unknown) is None
