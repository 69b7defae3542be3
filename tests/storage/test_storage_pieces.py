"""Tables that several processes store: the same bits as at one go."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from stock import gappy_table, random_table, write_table

from storage import TableError, ingest_table, open_dataset
from storage.tables.formats import open_table
from storage.tables.sources import map_in_order, threads_of_this_process

# What a test may lower, so that a few rows fill a piece of a table or a chunk.
PIECE_ROWS = "storage.tables.sources._PIECE_ROWS"
CHUNK_BYTES = "storage.dataset_writing.CHUNK_BYTES"


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
        write_table(gappy_table(rows, part), parts / f"part-{part}.{suffix}")
    progress = lambda share, _: seen.append(share)  # noqa: E731
    data = ingest_table(parts, "far", executor=executor, progress=progress, **options)
    here = ingest_table(parts, "here", **options)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    if missing == "drop":
        assert data.data_hash == here.data_hash
    else:
        assert_allclose(data.X.read(0, 283), here.X.read(0, 283), rtol=1e-13)
    assert open_dataset("far").data_hash == data.data_hash
    if suffix == "csv":
        write_table(random_table(20, 9).assign(a="many"), parts / "part-9.csv")
        with pytest.raises(TableError, match="part-9"):
            ingest_table(parts, "wrong", label="y", executor=executor)


def test_processes_open_the_files_of_matrices_in_pieces(tmp_path, executor, monkeypatch):
    values = np.random.default_rng(0).normal(size=(2, 400, 3))
    paths = [tmp_path / f"{name}.npy" for name in "ab"]
    for path, part in zip(paths, values, strict=True):
        np.save(path, part)
    # The rows themselves do not travel.
    assert len(pickle.dumps(open_table(paths))) < values[0].nbytes / 4
    monkeypatch.setattr(PIECE_ROWS, 7)
    monkeypatch.setattr(CHUNK_BYTES, 200)
    table = open_table(paths)
    assert len(table.parts) == 2 * 58
    here, far = ingest_table(paths, "here"), ingest_table(paths, "far", executor=executor)
    assert here.data_hash == far.data_hash
    for data in (here, far):
        assert_array_equal(data.X.read(0, 800), values.reshape(800, 3))


def test_an_error_ends_the_work_and_a_slow_caller_is_not_run_ahead_of():
    begun = []

    def work(number):
        begun.append(number)
        if number == 40:
            raise ValueError("the fortieth")

    with threads_of_this_process() as threads:
        results = map_in_order(threads, work, range(10_000), 10)
        for taken in range(1, 41):
            next(results)
            assert max(begun) < taken + 10
        with pytest.raises(ValueError, match="the fortieth"):
            next(results)
    assert max(begun) < 51
