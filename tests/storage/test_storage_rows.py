"""Streaming in, reading ranges out, every kind of damage, and whatever stops a writer."""

import multiprocessing
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from daskparts import ran
from numpy.testing import assert_array_equal
from stock import store_small

from storage import DamagedStore, DatasetInfo, StorageError, ZarrRows, open_dataset, write_dataset
from storage.atomic import open_replacement, remove_leftovers, replace_synced, workspace
from storage.store import read_array

INFO = DatasetInfo("made")
X50 = np.random.default_rng(0).normal(size=(50, 3))
HALF = np.arange(50) % 2


@pytest.fixture
def path():
    """Return the path of a data set of 50 x 3 numbers in three chunks."""
    return store_small()


@pytest.fixture
def rows(path):
    """Return the rows of the data set at `path`."""
    return open_dataset(path).X


def test_what_is_written_from_one_buffer_is_read_in_ranges(tmp_path):
    X = np.random.default_rng(0).normal(size=(103, 3))
    labels, buffer = {}, np.empty((12, 3))

    def blocks():
        for part in np.array_split(X, 9):
            buffer[: len(part)] = part
            yield buffer[: len(part)]
        labels["target"] = X[:, 0].copy()

    seen = []
    write_dataset(tmp_path / "d", INFO, blocks(), labels, chunk_rows=25, on_rows=seen.append)
    data = open_dataset(tmp_path / "d")
    assert (data.X.shape, data.X.chunk_rows, data.X.ndim, len(data.X)) == ((103, 3), 25, 2, 103)
    assert seen == [25, 50, 75, 100, 103]
    for start, stop in [(0, 103), (0, 0), (24, 26), (25, 50), (102, 103), (7, 99)]:
        got = data.X.read(start, stop)
        assert_array_equal(got, X[start:stop])
        assert got.flags.c_contiguous
        assert got.flags.writeable
    for start, stop in [(-1, 3), (4, 3), (0, 104), (104, 105)]:
        with pytest.raises(IndexError, match="<= 103"):
            data.X.read(start, stop)
    assert_array_equal(data.labels["target"], X[:, 0])
    assert data.y is None
    write_dataset(tmp_path / "whole", INFO, [X], labels, chunk_rows=25)
    assert open_dataset(tmp_path / "whole").data_hash == data.data_hash
    write_dataset(tmp_path / "other", INFO, [X], {"target": -X[:, 0]}, chunk_rows=25)
    assert open_dataset(tmp_path / "other").data_hash != data.data_hash


@pytest.mark.parametrize("dtype", ["u1", "i2", ">i4", "i8", "f4", ">f8"])
def test_the_dtype_stays(tmp_path, dtype):
    X = np.arange(12).reshape(6, 2).astype(dtype)
    write_dataset(tmp_path / "d", INFO, [X[:4], X[4:]])
    got = open_dataset(tmp_path / "d").X
    assert got.dtype == np.dtype(dtype).newbyteorder("=")
    assert_array_equal(got.read(0, 6), X)


@pytest.mark.parametrize(
    ("info", "blocks", "labels", "message"),
    [
        *((INFO, blocks, {}, "no rows") for blocks in ([], [X50[:0]])),
        *((INFO, [X], {}, "two dimensions") for X in (X50[0], X50[:, :0])),
        *((INFO, [X], {}, "integers or floats") for X in (X50 > 0, X50.astype(object))),
        (INFO, [X50, X50[:, :2]], {}, "all blocks alike"),
        (INFO, [X50, X50.astype(np.float32)], {}, "all blocks alike"),
        (INFO, [np.where(X50 > 1, np.nan, X50)], {}, "NaN"),
        *((INFO, [X50], {"y": y}, r"labels\['y'\]") for y in (HALF[:-1], HALF.astype(str))),
        (INFO, [X50], {"../y": HALF}, "expected 1 to 128"),
        (DatasetInfo("m", feature_names=("a",)), [X50], {}, "`feature_names`"),
        (DatasetInfo("m", image_shape=(2, 2)), [X50], {}, "`image_shape`"),
        (DatasetInfo("m", default_label="y"), [X50], {}, "`default_label`"),
        (DatasetInfo("m", class_names={"y": ("a",)}), [X50], {}, "`class_names`"),
        (DatasetInfo("m", class_names={"y": ("a",)}), [X50], {"y": HALF}, "codes 0 to 0"),
        (DatasetInfo("m", class_names={"y": ("a",)}), [X50], {"y": HALF - 1}, "codes"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing(
    tmp_path, info, blocks, labels, message
):
    with pytest.raises(StorageError, match=message):
        write_dataset(tmp_path / "sets" / "d", info, blocks, labels)
    assert [p.name for p in (tmp_path / "sets").iterdir()] == [".lock"]


def read_all(path):
    data = open_dataset(path)
    data.X.verify()
    return data.X.read(0, len(data.X))


def test_no_chunk_of_zeros_is_left_out(tmp_path):
    write_dataset(tmp_path / "d", INFO, [np.zeros((50, 2), np.uint8)], {"y": HALF * 0})
    assert read_all(tmp_path / "d").sum() == 0
    assert (tmp_path / "d" / "X" / "c.0.0").is_file()


def test_a_replaced_store_is_not_read_through_an_old_opening(rows):
    store_small(1)
    with pytest.raises(DamagedStore, match="replaced since it was opened"):
        rows.read(0, 50)


def test_a_store_that_is_replaced_while_it_is_opened_is_opened_again(path, monkeypatch):
    steps = iter(range(100))

    def array(*given):
        if next(steps) == 0:
            store_small(1)
        return read_array(*given)

    monkeypatch.setattr("storage.dataset.read_array", array)
    opened = open_dataset(path)
    monkeypatch.undo()
    expected = open_dataset(path)
    assert opened.data_hash == expected.data_hash
    assert_array_equal(opened.labels["kind"], expected.labels["kind"])


def test_rows_pickle_small_and_are_read_by_threads_and_processes(rows):
    copy = pickle.loads(pickle.dumps(rows))
    assert copy == rows
    assert hash(copy) == hash(rows)
    assert copy.__dask_tokenize__() == rows.__dask_tokenize__()
    assert len(pickle.dumps(rows)) < 2000
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert_array_equal(pool.apply(ZarrRows.read, (rows, 5, 45)), rows.read(5, 45))
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda start: rows.read(start, start + 10), [0, 10, 20, 30, 40] * 20))
    assert_array_equal(np.concatenate(got[-5:]), rows.read(0, 50))


def test_a_newer_format_asks_for_an_upgrade(tmp_path, monkeypatch):
    monkeypatch.setattr("storage.dataset_writing.FORMAT_VERSION", 99)
    write_dataset(tmp_path / "d", INFO, [X50])
    monkeypatch.undo()
    with pytest.raises(StorageError, match="Upgrade"):
        open_dataset(tmp_path / "d")


def entries(folder):
    return sorted(p.name for p in folder.iterdir())


@contextmanager
def unchanged(path, beside=1):
    """Assert that the values of a data set stay, and that so many entries are beside it."""
    before = read_all(path)
    yield
    assert_array_equal(read_all(path), before)
    assert len(entries(path.parent)) == 1 + beside


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_an_exception_on_the_way_leaves_the_old(path, stop):
    def blocks():
        yield np.zeros((30, 3))
        raise stop("enough")

    with unchanged(path), pytest.raises(stop, match="enough"):
        write_dataset(path, INFO, blocks(), chunk_rows=10)


def test_a_failing_swap_puts_the_old_back(path, monkeypatch):
    whole = Path.rename

    def rename(self, other):
        if self.name == "payload":
            raise PermissionError(13, "no")
        return whole(self, other)

    monkeypatch.setattr(Path, "rename", rename)
    with unchanged(path), pytest.raises(StorageError, match="allow it, or use another folder"):
        store_small(1)


# Writes a data set, and kills itself before it renames what has some name.
DYING_WRITER = """
import os, signal, sys
from pathlib import Path
import numpy as np
from storage import DatasetInfo, write_dataset
path, last = Path(sys.argv[1]), sys.argv[2]
whole = Path.rename
def rename(self, other):
    return os.kill(os.getpid(), signal.SIGKILL) if self.name == last else whole(self, other)
Path.rename = rename
write_dataset(path, DatasetInfo("small"), [np.ones((50, 3))])
"""


@pytest.mark.parametrize(("last", "is_there"), [("small", True), ("payload", False)])
def test_a_killed_writer_leaves_the_old_and_the_next_clears_up(path, last, is_there):
    before = read_all(path)
    with unchanged(path, beside=1 + is_there):
        ended = ran(sys.executable, "-W", "error", "-c", DYING_WRITER, path, last)
        assert ended.returncode == -signal.SIGKILL
        assert path.exists() == is_there
    store_small(1)
    assert entries(path.parent) == [".lock", "small"]
    assert not np.array_equal(read_all(path), before)


def test_a_new_file_of_a_dead_writer_goes_and_that_of_a_living_one_stays(tmp_path):
    dying = (
        "import os, signal, sys; from pathlib import Path; from storage.atomic import *\n"
        "with open_replacement(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    for name in ("a.csv", "b.csv"):
        ran(sys.executable, "-c", dying, tmp_path / name)
    assert [each[:6] for each in entries(tmp_path)] == [".a.csv", ".b.csv"]
    with open_replacement(tmp_path / "a.csv") as living:
        replace_synced(tmp_path / "a.csv", "of another process")
        assert [each[:6] for each in entries(tmp_path)] == [".a.csv", ".b.csv", "a.csv"]
        living.write(b"of the living")
    assert (tmp_path / "a.csv").read_text() == "of the living"
    remove_leftovers(tmp_path)
    assert entries(tmp_path) == [".lock", "a.csv"]


def test_a_living_writer_is_left_alone(path):
    with workspace(path) as work:
        work.payload.mkdir()
        store_small(1)
        write_dataset(path.parent / "other", INFO, [X50])
        assert work.payload.is_dir()
    assert entries(path.parent) == [".lock", "other", "small"]
