"""Checkpoints: no bit is lost, three stay, and a damaged one is reported and passed over."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stock import same

from ism_dask.records.checkpoint import Checkpoint, OuterState, Round
from ism_dask.records.iteration import Candidate, Record, Solution, State
from ism_dask.status import Status
from storage import Checkpoints, DamagedStore, list_runs
from storage.partial_results import checkpoint_key, from_json, to_json

REQUEST = {"dataset": "wine", "tol": 1e-5, "sizes": (1, 2)}


def solution(seed: int, status: Status = Status.CONVERGED) -> Solution:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(5, 2))
    record = Record(1, rng.normal(), (1.5, -0.0), math.inf, 0.1, 0.2, ascent=True, settled=True)
    return Solution(W, rng.normal(size=2), math.nan, 1.5, 0.0, W * 2, 1, status, (record,))


def checkpoint(seed: int = 0) -> Checkpoint:
    rng = np.random.default_rng(seed)
    best = Candidate(rng.normal(size=(5, 2)), rng.normal(size=2), 0.3, -math.inf)
    state = State(4, best, best, solution(seed).history, rng.normal())
    turn = Round(1, 2.0, 3.0, (1.0, 0.5), 0.1, 0.2, 7, 0.4)
    standing = OuterState((turn,), solution(1, Status.SWINGS))
    return Checkpoint(standing, (solution(3), None, state))


@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_no_bit_is_lost(seed, legs):
    whole = checkpoint(seed)
    cut = Checkpoint(whole.outer if seed % 2 else None, whole.runs[:legs])
    found = from_json(*to_json(cut))
    assert same(found, cut)
    assert isinstance(found.runs, tuple)


@pytest.mark.parametrize("wrong", [{"runs": ()}, checkpoint().runs[2], (1, 2), None])
def test_what_is_no_checkpoint_is_damaged(wrong):
    checkpoints = Checkpoints.of_run("own")
    checkpoints.results.save(checkpoint_key(1), REQUEST, wrong)
    with pytest.raises(DamagedStore, match="not a checkpoint"):
        checkpoints.read(1)
    assert checkpoints.find() is None
    assert checkpoints.find(REQUEST) is None


def test_the_newest_checkpoint_of_a_request_is_returned():
    checkpoints = Checkpoints.of_run("own")
    assert checkpoints.find(REQUEST) is None
    assert checkpoints.find() is None
    for seed in range(5):
        checkpoints.save(REQUEST, checkpoint(seed))
    found = checkpoints.find(REQUEST)
    assert found is not None
    assert same(found, checkpoint(4))
    assert checkpoints.numbers == [3, 4, 5]
    assert checkpoints.find({**REQUEST, "tol": 0.01}) is None
    assert list_runs() == ()
    checkpoints.results.clear()
    assert checkpoints.find(REQUEST) is None
    checkpoints.save(REQUEST, checkpoint(7))
    assert checkpoints.numbers == [1]
