"""Checkpoints: no bit lost, the newest three, and one that is damaged is told and passed over."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ism_dask.records.checkpoint import Checkpoint, OuterState, Round
from ism_dask.records.iteration import Candidate, Record, Solution, State
from ism_dask.status import Status
from storage import Checkpoints, DamagedStore, StorageError, list_runs
from storage.checkpoints import checkpoint_from_json, checkpoint_to_json

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
    turn = Round(1, 2.0, 3.0, (1.0, 0.5), 0.1, 7, 0.4)
    standing = OuterState((turn,), solution(1), solution(2, Status.SWINGS), None)
    return Checkpoint(standing, (solution(3), None, state))


def same(one: Checkpoint, other: Checkpoint) -> bool:
    """Say whether two checkpoints are alike to the last bit."""
    (record, numbers), (another, others) = checkpoint_to_json(one), checkpoint_to_json(other)
    return repr(record) == repr(another) and numbers.tobytes() == others.tobytes()


@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_no_bit_is_lost(seed: int, legs: int) -> None:
    whole = checkpoint(seed)
    cut = Checkpoint(whole.outer if seed % 2 else None, whole.runs[:legs])
    found = checkpoint_from_json(*checkpoint_to_json(cut))
    assert same(found, cut)
    assert isinstance(found.runs, tuple)


def test_what_is_no_journey_is_said_to_be_none() -> None:
    record, numbers = checkpoint_to_json(checkpoint())
    with pytest.raises(ValueError, match="numbers from"):
        checkpoint_from_json(record, numbers[:-1])
    for wrong in ({}, {"kind": "os.system"}, {"kind": "Shift", "size": 1.0, "since": 1}, []):
        with pytest.raises(ValueError, match="no checkpoint"):
            checkpoint_from_json(wrong, numbers)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float32"):
        checkpoint_to_json(
            Checkpoint(
                None, (solution(0), State.initial(Candidate(*[np.zeros(1, "f4")] * 2, 0, 0)))
            )
        )


def test_the_newest_of_what_is_asked_is_found() -> None:
    checkpoints = Checkpoints.of_run("own")
    assert checkpoints.find(REQUEST) is None
    assert checkpoints.newest() is None
    for seed in range(5):
        checkpoints.save(REQUEST, checkpoint(seed))
    found = checkpoints.find(REQUEST)
    assert found is not None
    assert same(found, checkpoint(4))
    assert checkpoints.numbers == [3, 4, 5]
    assert checkpoints.find({**REQUEST, "tol": 0.01}) is None
    assert checkpoints.pointer == 5
    assert list_runs() == ()
    checkpoints.clear()
    assert checkpoints.find(REQUEST) is None
    assert not checkpoints.folder.exists()
    checkpoints.save(REQUEST, checkpoint(7))
    assert checkpoints.numbers == [1]


@settings(max_examples=15)
@given(data=st.data())
def test_one_that_is_cut_short_or_altered_is_told_and_the_one_before_taken(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("cut") / "checkpoints")
    for seed in (0, 1):
        checkpoints.save(REQUEST, checkpoint(seed))
    files = sorted(path for path in (checkpoints.folder / "00000002").rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(content[:at])
    else:
        bit = 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
    messages: list[str] = []
    found = checkpoints.find(REQUEST, messages.append)
    assert found is not None
    assert same(found, checkpoint(0))
    (line,) = messages
    assert "00000002" in line
    assert "The checkpoint before it is taken" in line
    with pytest.raises(DamagedStore):
        checkpoints.read(2)


def test_one_that_is_gone_is_missed() -> None:
    checkpoints = Checkpoints.of_run("own")
    for seed in (0, 1):
        checkpoints.save(REQUEST, checkpoint(seed))
    shutil.rmtree(checkpoints.folder / "00000002")
    messages: list[str] = []
    found = checkpoints.find(REQUEST, messages.append)
    assert found is not None
    assert same(found, checkpoint(0))
    assert "00000002, the newest checkpoint, is missing" in messages[0]
    # Its number is not given again: what is told of it would be told of another.
    checkpoints.save(REQUEST, checkpoint(2))
    assert checkpoints.numbers == [1, 3]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_one_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(REQUEST, checkpoint())
    checkpoints.folder.chmod(0o500)
    with pytest.raises(StorageError, match="writing is not allowed"):
        checkpoints.save(REQUEST, checkpoint(1))
    checkpoints.folder.chmod(0o700)
    assert checkpoints.numbers == [1]
