"""Partial results: no bit lost, found for their request alone, never wrong, never half there."""

import math
import multiprocessing
import shutil
from dataclasses import fields, is_dataclass
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ism_dask.records.checkpoint import Checkpoint, OuterState
from ism_dask.records.iteration import Record, Round, State
from ism_dask.status import Status
from storage import Checkpoints, DamagedStore, PartialResults, list_runs
from storage.partial_results import FORMAT_VERSION, RECORDS, checkpoint_key, from_json, to_json

REQUEST = {"cap": 600.0, "seed": 0, "sizes": (1, 2)}
VALUE = {"seconds": 1.25, "shown": [1, 2], "error": math.inf, "note": "ü", "W": np.eye(3)}
ARRAYS = st.sampled_from(["float64", "float32", "int64", "int32", "uint8", "bool"]).flatmap(
    lambda dtype: st.lists(st.integers(0, 200), max_size=6).map(
        lambda numbers: np.array(numbers, dtype).reshape(-1, 1 + (len(numbers) % 2 == 0))
    )
)


def checkpoint(seed=0):
    rng = np.random.default_rng(seed)
    record = Record(1, rng.normal(), (1.5, -0.0), math.inf, 0.1, 0.2, ascent=True, settled=True)
    W, best = rng.normal(size=(2, 5, 2))
    steps = ((W, best),)
    state = State(W, rng.normal(size=2), best, -math.inf, math.nan, (record,), rng.normal(), steps)
    turn = Round(1, 2.0, 3.0, (1.0, 0.5), 0.1, 0.2, 7, 0.4)
    standing = OuterState((turn,), State.from_weights(W, np.ones(2)))
    return Checkpoint(standing, (state, None, state))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | ARRAYS
    | st.sampled_from(Status) | st.builds(checkpoint, st.integers(0, 2**32 - 1)),
    lambda inner: st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def bits(value):
    """Return what tells values apart, to the last bit and the type."""
    if isinstance(value, dict):
        return {name: bits(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [bits(each) for each in value]
    if is_dataclass(value):
        return type(value), bits(vars(value))
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return type(value), repr(value)


@given(VALUES)
def test_no_bit_is_lost(value):
    record, arrays = to_json(value)
    assert bits(from_json(record, arrays)) == bits(value)


def test_what_cannot_be_saved_or_read_is_refused():
    for wrong in ({1}, np.array(["a"]), np.array([1.0], ">f8"), object(), {"__kind__": 1}, Status):
        with pytest.raises(TypeError):
            to_json((1.0, wrong))
    record, arrays = to_json({"W": np.eye(3)})
    with pytest.raises(ValueError, match="no value of a run"):
        from_json(record, {"other": arrays["array-0"]})
    for kind in ("os.system", ["State"], None, "Certificate"):
        with pytest.raises(ValueError, match=r"no value of a run|other fields"):
            from_json({"__kind__": kind}, {})


def test_the_fields_on_the_disk_are_those_of_the_version():
    """A field that is renamed, added or removed needs another version of the format."""
    names = {name: tuple(each.name for each in fields(kind)) for name, kind in RECORDS.items()}
    digest = sha256(repr(names).encode()).hexdigest()[:12]
    assert (FORMAT_VERSION, digest) == (14, "9074a4890267")


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


def _save_many(number):
    results = PartialResults.of_run("tables")
    for step in range(20):
        results.save("shared", REQUEST, {"writer": number, "step": step, "long": "x" * 2000})


def test_two_that_write_at_once_leave_one_whole_result():
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_save_many, args=(number,)) for number in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = PartialResults.of_run("tables").find("shared", REQUEST)
    assert found["step"] == 19


@pytest.mark.parametrize("wrong", [{"runs": ()}, checkpoint().runs[2], (1, 2), None])
def test_what_is_no_checkpoint_is_damaged(wrong):
    checkpoints = Checkpoints.of_run("own")
    checkpoints.results.save(checkpoint_key(1), REQUEST, wrong)
    with pytest.raises(DamagedStore, match="not a checkpoint"):
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
