"""Tables that grow, and tables that several processes store: the same bits as at one go."""

import pickle
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal
from stock import random_table, write_table

from storage import StorageError, TableError, ingest_table, open_dataset
from storage.tables.formats import open_table
from storage.tables.side_by_side import map_in_order, threads_of_this_process
from storage.tables.sources import Part
from storage.verify import stored_items

# What a test may lower, so that a few rows fill a piece of a table or a chunk.
PIECE_ROWS = "storage.tables.sources._PIECE_ROWS"
CHUNK_BYTES = "storage.dataset_writing.CHUNK_BYTES"


def _gappy(rows, seed):
    frame = random_table(rows, seed)
    frame.loc[::7, "a"] = np.nan
    return frame


@pytest.fixture
def small_chunks(monkeypatch):
    """Let a few rows fill a chunk, and a few others a batch."""
    monkeypatch.setattr(CHUNK_BYTES, 1024)
    monkeypatch.setattr("storage.tables.sources._BATCH_BYTES", 1)


@pytest.fixture
def reads(monkeypatch, tmp_path):
    """Return a list that takes the name of each file whose rows are read."""
    names, whole = [], Part.batches

    def batches(self, columns):
        if not self.description.startswith(str(tmp_path / "home")):  # a copy
            names.append(Path(self.description).stem)
        return whole(self, columns)

    monkeypatch.setattr(Part, "batches", batches)
    return names


def _check_same(data, other):
    assert data.data_hash == other.data_hash
    assert_array_equal(data.X.read(0, len(data.X)), other.X.read(0, len(other.X)))
    assert_array_equal(data.labels["y"], other.labels["y"])
    assert _schema_but_sums(data) == _schema_but_sums(other)


def _schema_but_sums(data):
    """Return the schema with rounded sums: in another order these differ in their last bits."""
    schema = data.info.table["schema"]
    features = [{**each, "total": round(each["total"], 10)} for each in schema["features"]]
    return {**schema, "features": features}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("sizes", [(7, 5), (301, 40, 1)])
def test_only_new_files_are_read(tmp_path, reads, sizes, suffix):
    grown = tmp_path / "grown"
    for part, rows in enumerate(sizes):
        # Every part has all levels and classes.
        all_levels = random_table(4, 90).assign(level=list("nsns"), y=["no", "yes"] * 2)
        frame = pd.concat([all_levels, random_table(rows, part)])
        write_table(frame, grown / f"part-{part}.{suffix}")
        reads.clear()
        data = ingest_table(grown, "grown", label="y", missing="drop", force=True)
        assert set(reads) == {f"part-{part}"}
        shutil.copytree(grown, tmp_path / "whole", dirs_exist_ok=True)
        whole = ingest_table(tmp_path / "whole", f"whole-{part}", label="y", missing="drop")
        _check_same(data, whole)
        (stored,) = [each for each in stored_items() if each.name == "grown"]
        assert not [*stored.problems()]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("change", [{"level": "west"}, {"y": "perhaps"}, {}])
def test_rows_are_stored_anew_where_the_old_ones_would_differ(tmp_path, change):
    """A new level or class changes the encoding; a gap filled by the mean changes with it."""
    grown = tmp_path / "grown"
    write_table((random_table if change else _gappy)(200, 0), grown / "part-0.parquet")
    first = ingest_table(grown, "grown", label="y", missing="mean")
    write_table(random_table(90, 1).assign(**change), grown / "part-1.parquet")
    data = ingest_table(grown, "grown", label="y", missing="mean", force=True)
    shutil.copytree(grown, tmp_path / "whole")
    whole = ingest_table(tmp_path / "whole", "whole", label="y", missing="mean")
    assert len(data.X) == 290
    assert_allclose(data.X.read(0, 290), whole.X.read(0, 290), rtol=1e-13)
    assert data.feature_names == whole.feature_names
    assert data.class_names == whole.class_names
    assert len(first.X) == 200


def test_a_changed_or_missing_file_is_no_growth(tmp_path, reads):
    grown = tmp_path / "grown"
    for part in range(3):
        write_table(random_table(100, part), grown / f"part-{part}.parquet")
    ingest_table(grown, "grown", label="y")
    write_table(random_table(101, 7), grown / "part-1.parquet")
    write_table(random_table(50, 3), grown / "part-3.parquet")
    reads.clear()
    assert len(ingest_table(grown, "grown", label="y", force=True).X) == 351
    assert set(reads) == {f"part-{part}" for part in range(4)}
    (grown / "part-0.parquet").unlink()
    assert len(ingest_table(grown, "grown", label="y", force=True).X) == 251
    # Without force, what was stored stays.
    write_table(random_table(60, 4), grown / "part-4.parquet")
    with pytest.raises(StorageError, match="is stored already"):
        ingest_table(grown, "grown", label="y")


@pytest.fixture(scope="module")
def executor():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize(("suffix", "missing"), [("parquet", "drop"), ("csv", "mean")])
def test_processes_store_the_same_bits(tmp_path, executor, monkeypatch, suffix, missing):
    monkeypatch.setattr(CHUNK_BYTES, 1024)
    monkeypatch.setattr(PIECE_ROWS, 100)
    parts, seen, options = tmp_path / "parts", [], {"label": "y", "missing": missing}
    for part, rows in enumerate((230, 0, 3, 50)):
        write_table(_gappy(rows, part), parts / f"part-{part}.{suffix}")
    progress = lambda share, _: seen.append(share)  # noqa: E731
    data = ingest_table(parts, "far", executor=executor, progress=progress, **options)
    here = ingest_table(parts, "here", **options)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    if missing == "drop":
        _check_same(data, here)
    else:
        assert_allclose(data.X.read(0, 283), here.X.read(0, 283), rtol=1e-13)
    assert open_dataset("far").data_hash == data.data_hash
    if suffix == "csv":
        write_table(random_table(20, 9).assign(a="many"), parts / "part-9.csv")
        with pytest.raises(TableError, match="part-9"):
            ingest_table(parts, "wrong", label="y", executor=executor)


SAVES = {
    ".npy": np.save,
    ".npz": np.savez,
    ".zarr": lambda path, values: zarr.create_array(path, data=values),
    ".h5": lambda path, values: h5py.File(path, "w").create_dataset("v", data=values),
}


@pytest.mark.parametrize("suffix", SAVES)
def test_processes_open_the_files_of_matrices_in_pieces(tmp_path, executor, monkeypatch, suffix):
    monkeypatch.setattr(PIECE_ROWS, 7)
    monkeypatch.setattr(CHUNK_BYTES, 200)
    values = np.random.default_rng(0).normal(size=(2, 400, 3))
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path, part in zip(paths, values, strict=True):
        SAVES[suffix](path, part)
    table = open_table(paths)
    assert len(table.pieces()) == 2 * (1 if suffix == ".npz" else 58)
    here, far = ingest_table(paths, "here"), ingest_table(paths, "far", executor=executor)
    assert here.data_hash == far.data_hash
    for data in (here, far):
        assert_array_equal(data.X.read(0, 800), values.reshape(800, 3))
    # The rows themselves do not travel.
    assert len(pickle.dumps(table)) < values[0].nbytes / 4


def test_results_come_in_order_and_errors_end_the_work():
    begun = []

    def work(number):
        begun.append(number)
        time.sleep(0.002 * (number % 3))
        if number == 40:
            raise ValueError("the fortieth")
        return number**2

    with threads_of_this_process() as threads:
        assert list(map_in_order(threads, work, range(30))) == [k**2 for k in range(30)]
        begun.clear()
        with pytest.raises(ValueError, match="the fortieth"):
            list(map_in_order(threads, work, range(10_000), lambda: 10))
        # The ten that were begun at most when the fortieth failed: 40 to 49.
        assert max(begun) < 50
        # A slow caller is not run ahead of.
        begun.clear()
        results = map_in_order(threads, begun.append, range(10_000), lambda: 10)
        for taken in range(1, 31):
            next(results)
            time.sleep(0.002)
            assert max(begun) < taken + 10
        results.close()
    assert max(begun) < 40
