"""Partial results: no bit lost, found for their request alone, never wrong, never half there."""

import math
import shutil
from dataclasses import fields, replace
from hashlib import sha256

import numpy as np
import pytest
from stock import bits, checkpoint

from ism_dask.records.checkpoint import Checkpoint, OuterState
from ism_dask.records.iteration import Record, Round, State
from storage import Checkpoints, DamagedStore, PartialResults, StorageError, list_runs
from storage.partial_results import FORMAT_VERSION, checkpoint_key

REQUEST = {"cap": 600.0, "seed": 0, "sizes": (1, 2)}
VALUE = {"seconds": 1.25, "shown": [1, 2], "error": math.inf, "note": "ü"}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?", ">f8"])
def test_a_checkpoint_comes_back_to_the_last_bit(dtype):
    state = replace(checkpoint().runs[0], W=np.array([[1, 0], [3, 1]], dtype))
    Checkpoints.of_run("own").save(REQUEST, Checkpoint(None, (state, None)))
    found = Checkpoints.of_run("own").find(REQUEST)
    native = replace(state, W=state.W.astype(state.W.dtype.newbyteorder("=")))
    assert bits(found) == bits(Checkpoint(None, (native, None)))


def test_what_cannot_be_saved_is_refused():
    for wrong in ({1}, np.array(["a"]), object(), {"a": checkpoint()}, {"__float__": 1}):
        with pytest.raises(StorageError, match=r"`value|`record"):
            PartialResults.of_run("own").save("a", REQUEST, (1.0, wrong))


def test_the_fields_on_the_disk_are_those_of_the_version():
    """A field that is renamed, added or removed needs another version of the format."""
    kinds = (Checkpoint, OuterState, Record, Round, State)
    names = {kind.__name__: tuple(each.name for each in fields(kind)) for kind in kinds}
    digest = sha256(repr(names).encode()).hexdigest()[:12]
    assert (FORMAT_VERSION, digest) == (15, "9074a4890267")


def test_a_result_is_found_for_its_request_and_no_other():
    results = PartialResults.of_run("tables")
    assert results.find("wine-1", REQUEST) is None
    results.save("wine-1", REQUEST, VALUE)
    assert bits(results.find("wine-1", REQUEST)) == bits(VALUE)
    assert results.find("wine-1", {**REQUEST, "seed": 1}) is None
    assert results.find("wine-2", REQUEST) is None
    results.save("wine-1", {**REQUEST, "seed": 1}, 2.0)
    assert results.find("wine-1", {**REQUEST, "seed": 1}) == 2.0
    results.save("face-1", REQUEST, 3.0)
    assert results.keys() == ["face-1", "wine-1"]
    assert results.keys("wine") == ["wine-1"]
    for _ in range(2):
        results.remove("wine-1")
        assert results.keys() == ["face-1"]
    assert list_runs() == ()  # partial results alone are no run
    results.clear()
    assert not results.folder.exists()


def test_a_folder_without_a_manifest_and_one_of_another_version_are_damaged(monkeypatch):
    results = PartialResults.of_run("tables")
    monkeypatch.setattr("storage.partial_results.FORMAT_VERSION", FORMAT_VERSION - 1)
    results.save("a", REQUEST, VALUE)
    monkeypatch.undo()
    with pytest.raises(DamagedStore, match=f"is {FORMAT_VERSION - 1}, this version of ism-dask"):
        results.find("a", REQUEST)
    shutil.rmtree(results.path("a"))
    results.path("a").mkdir()
    with pytest.raises(DamagedStore, match="is missing"):
        results.find("a", REQUEST)


@pytest.mark.parametrize("wrong", [checkpoint().runs[2], (1, 2), None, {"runs": (1,)}])
def test_what_is_no_checkpoint_is_damaged(wrong):
    checkpoints = Checkpoints.of_run("own")
    checkpoints.results.save(checkpoint_key(1), REQUEST, wrong)
    with pytest.raises(DamagedStore, match="cannot be read"):
        checkpoints.read(1)
    assert checkpoints.find() is None


def test_the_newest_checkpoint_of_a_request_is_returned():
    checkpoints = Checkpoints.of_run("own")
    assert checkpoints.find() is None
    for seed in range(5):
        checkpoints.save(REQUEST, checkpoint(seed))
    assert bits(checkpoints.find(REQUEST)) == bits(checkpoint(4))
    assert checkpoints.numbers == [3, 4, 5]
    assert checkpoints.find({**REQUEST, "seed": 1}) is None
    checkpoints.results.clear()
    assert checkpoints.find(REQUEST) is None
    checkpoints.save(REQUEST, checkpoint(7))
    assert checkpoints.numbers == [1]
