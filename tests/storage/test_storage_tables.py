"""Tables in every format, on disk and on S3, come to the same rows, or are refused by name."""

import gzip
import os
from dataclasses import asdict
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from stock import gappy_table, write_table

from storage import StorageError, TableError, ingest_table, list_datasets, open_dataset
from storage.tables.formats import open_table

N = 300


def _frame(seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": np.arange(N),
            "age": rng.integers(18, 90, N),
            "income": rng.normal(size=N),
            "region": rng.choice(["north", "south", "east"], N),
            "member": rng.random(N) > 0.5,
            "churned": rng.choice(["no", "yes"], N),
        }
    )


def _assert_comes_to(source, frame):
    """Ingest a source of sales, and compare what is stored with the frame."""
    data = ingest_table(source, "sales", label="churned", keep=["id"])
    expected = pd.get_dummies(frame[["age", "income", "region", "member"]], prefix_sep="=")
    assert set(data.feature_names) == set(expected.columns)
    assert_array_equal(data.X.read(0, N), expected[list(data.feature_names)].to_numpy(float))
    assert data.class_names == {"churned": ("no", "yes")}
    assert_array_equal(data.y, frame["churned"] == "yes")
    assert open_dataset("sales").data_hash == data.data_hash


# The files that have the rows in order, each as many, and what is read of their folder.
FILES = {
    "csv": (["sales.csv"], ["sales.csv"]),
    "parquet": (["sales.parquet"], ["sales.parquet"]),
    "feather": (["sales.feather"], ["sales.feather"]),
    "folder": (["part-0.parquet", "part-1.parquet", "part-2.parquet"], [""]),
    "packed folder": (["1.csv.gz", "2.csv.gz"], [""]),
    # In the order of the list, whatever the names of the files.
    "list": (["b.csv", "a.csv"], ["b.csv", "a.csv"]),
    "glob": (["a-1.parquet", "a-2.parquet"], ["a-*.parquet"]),
}


@pytest.mark.parametrize("place", ["disk", "S3"])
@pytest.mark.parametrize("kind", FILES)
def test_files_of_every_format_come_to_the_same_rows_from_every_place(kind, place, tmp_path, lake):
    frame, folder = _frame(), tmp_path / "sales"
    names, sources = FILES[kind]
    # An index, which a feather file cannot have, is no feature.
    rows = frame if kind == "feather" else frame.set_axis([5] * N)
    size = N // len(names)
    for number, name in enumerate(names):
        write_table(rows[number * size : (number + 1) * size], folder / name)
    (folder / "_SUCCESS").touch()
    (folder / ".part.crc").touch()
    if place == "S3":
        fsspec.filesystem("s3").put(str(folder), lake, recursive=True)
        folder = f"{lake}/sales"
    paths = [f"{folder}/{each}".rstrip("/") for each in sources]
    _assert_comes_to(paths if len(paths) > 1 else paths[0], frame)


def _with_categories(frame):
    return pl.from_pandas(frame).with_columns(pl.col("region").cast(pl.Categorical))


def _made(make, value, path):
    """Return a source of a value: what is made of it, or the path to which it is written."""
    made = make(value, path)
    return path if path.exists() else made


FRAMES = {
    "pandas": lambda frame, _: frame,
    "polars": lambda frame, _: pl.from_pandas(frame),
    "polars lazy": lambda frame, _: pl.from_pandas(frame).lazy(),
    "polars categories": lambda frame, _: _with_categories(frame),
    "polars.parquet": lambda frame, path: _with_categories(frame).write_parquet(path),
    "reader": lambda frame, _: pa.Table.from_pandas(frame, preserve_index=False).to_reader(),
    "xarray": lambda frame, _: xr.Dataset.from_dataframe(frame),
    "dask": lambda frame, _: pytest.importorskip("dask.dataframe").from_pandas(frame, 3),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_library_come_to_the_same_rows(kind, tmp_path):
    frame = _frame()
    _assert_comes_to(_made(FRAMES[kind], frame, tmp_path / kind), frame)


MATRICES = {
    "m.npy": lambda X, path: np.save(path, X),
    "columns.npy": lambda X, path: np.save(path, np.asfortranarray(X)),
    "array": lambda X, _: X,
    "big endian": lambda X, _: X.astype(">f4"),
    "xarray": lambda X, _: xr.DataArray(X, dims=("row", "column")),
    "dask": lambda X, _: pytest.importorskip("dask.array").from_array(X, chunks=(20, 2)),
}


@pytest.mark.parametrize("kind", MATRICES)
def test_matrices_have_numbered_columns(kind, tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    data = ingest_table(_made(MATRICES[kind], X, tmp_path / kind), "m", label="column_3")
    assert data.X.dtype == np.float32
    assert data.feature_names == ("column_0", "column_1", "column_2")
    assert_array_equal(data.X.read(0, 50), X[:, :3])
    assert_array_equal(data.y, X[:, 3].astype(float))


def test_a_matrix_may_have_names_and_masked_numbers():
    X = np.random.default_rng(1).normal(size=(50, 3))
    names = {"column": ["age", "income", "visits"]}
    frame = xr.DataArray(X, dims=("row", "column"), coords=names)
    assert ingest_table(frame, "m").feature_names == ("age", "income", "visits")
    with pytest.raises(TableError, match=r"column_2 \(1\)"):
        ingest_table(np.ma.masked_greater(np.arange(12.0).reshape(4, 3), 10.0), "n")


def test_folders_are_columns_and_with_leading_zeros_texts(tmp_path, monkeypatch):
    monkeypatch.setattr("storage.tables.sources._PIECE_ROWS", 1)
    for folder in ("r=01/s=7", "r=1/s=7", "r=2/s=8"):
        path = tmp_path / "t" / folder / "a.parquet"
        path.parent.mkdir(parents=True)
        pa.parquet.write_table(pa.table({"x": [1.0, 2.0]}), path, row_group_size=1)
    data = ingest_table(tmp_path / "t", "t")
    assert data.feature_names == ("x", "r=01", "r=1", "r=2", "s")
    expected = np.repeat(np.c_[np.eye(3), [7, 7, 8]], 2, axis=0)
    assert_array_equal(data.X.read(0, 6)[:, 1:], expected)
    # No column of the files themselves is read.
    alone = ingest_table(tmp_path / "t", "alone", columns=["s"])
    assert_array_equal(alone.X.read(0, 6), expected[:, 3:])


def test_the_size_of_batches_and_pieces_changes_nothing(monkeypatch):
    frame, options = gappy_table(N), {"label": "y", "missing": "mean", "force": True}
    whole = ingest_table(frame, "w", **options)
    for size in (1, 7, 64, 299):
        monkeypatch.setattr("storage.tables.formats.batch_rows", lambda _, size=size: size)
        monkeypatch.setattr("storage.tables.sources._PIECE_ROWS", size)
        assert len(open_table(frame).parts) == np.ceil(N / size)
        # The rows of a frame stay in this process, whatever the executor.
        small = ingest_table(frame, "s", executor=object(), **options)
        assert_allclose(small.X.read(0, N), whole.X.read(0, N), rtol=1e-14)
        assert_array_equal(small.y, whole.y)


def test_a_second_ingest_of_the_same_files_reads_nothing(tmp_path):
    path = write_table(_frame(), tmp_path / "sales.csv")
    first = ingest_table(path, label="churned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("storage.tables.planning.scan_part", None)
        again = ingest_table(path, label="churned")
    assert again.data_hash == first.data_hash
    with pytest.raises(StorageError, match="with other options; replace it with --force"):
        ingest_table(path, label="churned", drop=["id"])
    assert open_dataset("sales").data_hash == first.data_hash
    changed = ingest_table(path, label="churned", drop=["id"], force=True)
    assert changed.X.shape[1] == first.X.shape[1] - 1


def test_parts_have_the_same_columns_and_types(tmp_path):
    (tmp_path / "1.csv").write_text("x,c,n\n")
    (tmp_path / "2.csv").write_text("x,c,n\n1,True,\n")
    (tmp_path / "3.csv").write_text("x,c,n\n2.5,maybe,7\n")
    data = ingest_table(tmp_path, "t", missing="mean")
    assert data.feature_names == ("x", "c=True", "c=maybe", "n")
    assert_array_equal(data.X.read(0, 2)[:, 0], [1.0, 2.5])
    (tmp_path / "4.csv").write_text("x,c,n\nmany,no,8\n")
    with pytest.raises(TableError, match=r"'x' is string in .*4.csv and .* in .*2.csv"):
        ingest_table(tmp_path, "bad", force=True)
    for part, columns in enumerate((["x", "z"], ["x"])):
        pd.DataFrame(1.0, [0], columns).to_parquet(tmp_path / f"part-{part}.parquet")
    with pytest.raises(TableError, match=r"part-0.parquet has the column 'z', which .*part-1"):
        ingest_table(f"{tmp_path}/*.parquet", "bad")


def test_a_change_is_seen_though_listings_are_cached(lake, tmp_path):
    address = f"{lake}/sales.parquet"
    _frame().to_parquet(address)
    table = open_table(address)
    before = table.versions()
    assert before == open_table(address).versions()
    assert before[0].path == address
    assert before[0].version
    _frame(seed=1).to_parquet(address, storage_options={"use_listings_cache": False})
    assert table.versions() != before
    assert ingest_table(address, "sales", label="churned").info.table["files"] == [
        asdict(open_table(address).versions()[0])
    ]
    # Credentials are read from the environment and stored nowhere.
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    stored = [path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert stored
    assert not any(secret in content for content in stored)


def test_a_first_line_may_be_long(tmp_path):
    wide = ",".join(f"column {number:0400}" for number in range(4000))
    (tmp_path / "wide.csv").write_text(f"{wide}\n{wide}\n")
    assert len(open_table(tmp_path / "wide.csv").schema) == 4000


LATE = b"x,y\n" + b"1,a\n" * 2**20 + b"oops,b\n"
LONG = b"x,y\n" + b"1,a\n" * 2**19 + b"2,\xe4\n"
LINE = b"1," * 5_000_000


def _part_without_a_line(folder):
    folder.mkdir()
    (folder / "1.csv").write_text("x,c\n1,a\n")
    (folder / "2.csv").touch()


def _part_whose_name_is_not_utf8(folder):
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xe9.csv")).write_text("x,y\n1,2\n")


def _text_that_is_not_utf8(path):
    text = pa.array([b"\xe9", b"tea"] * 20).cast(pa.string(), safe=False)
    pa.parquet.write_table(pa.table({"x": range(40), "drink": text}), path)


def _texts_that_lie_elsewhere_in_memory(path):
    """Write a file that is used as it is, and would show, or touch, memory not its own."""
    offsets = np.arange(41, dtype=np.int32) * 10_000_000
    offsets[-1] = 3  # the only one that Arrow compares
    text = pa.StringArray.from_buffers(40, pa.py_buffer(offsets), pa.py_buffer(b"tea"))
    table = pa.table({"x": range(40), "drink": text})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", lambda _: None, "there is no file"),
        ("a.docx", b"PK", "expected .arrow, .csv"),
        ("a", b"x,y\n", "a has the suffix ''; expected"),
        ("a.xlsx", b"PK", "a.xlsx is a spreadsheet; save it as CSV"),
        pytest.param("a.csv", LONG, "not UTF-8; name its .* --encoding cp1252", id="long"),
        ("empty", Path.mkdir, "no file that can be read"),
        ("x.zarr", Path.mkdir, r"holds arrays.*ingest_table\(array, name\)"),
        *((f"x.{name}", b"", "holds arrays") for name in ("npz", "h5", "hdf5")),
        ("a.parquet", b"PAR1 nothing", "cannot read .*a.parquet"),
        ("a.csv", b"x,x,y\n1,2,a\n3,4,b\n", "multiple columns named x"),
        ("a.csv", b"x,y\n1,a\n2\n", "cannot read .*a.csv"),
        ("a.csv.gz", gzip.compress(b"x,y\n1,a\n2,b\n", mtime=0)[:-9], "cannot read .*a.csv.gz: "),
        pytest.param("a.csv", LATE, "'x' has 'oops' among numbers; correct", id="late"),
        ("a.csv", b"x,y\n", "has no rows"),
        ("a.csv", b"\n", "is empty"),
        ("a.csv", gzip.compress(b"x,y\n1,a\n", mtime=0), "packed by gzip; add .gz to its name"),
        ("a.csv", b"PK\x03\x04\x14", "ZIP archive, as workbooks of Excel are; save its table"),
        ("a.csv", b"x;y\n1;2;3\n", r"has one column, 'x;y': another mark.*--delimiter"),
        ("a.csv", b",y\n1,a\n", r"column 1 of .* has no name.*index=False"),
        ("a.npy", b"\x93NUMPY\x01\x00", "a.npy"),
        pytest.param("a.csv", LINE, r"first line of .*a\.csv is longer than 4 MiB", id="line"),
        ("pipe.csv", os.mkfifo, "is no file, but a pipe or device"),
        ("parts", _part_without_a_line, r"cannot read [^:]*: \S+2.csv: CSV parse error: Empty"),
        ("parts", _part_whose_name_is_not_utf8, r"\\udce9\.csv' is not UTF-8; rename it"),
        ("a.parquet", _text_that_is_not_utf8, "the column 'drink' has text that is not UTF-8"),
        ("a.feather", _texts_that_lie_elsewhere_in_memory, r"a\.feather"),
    ],
)
def test_files_that_cannot_be_read_are_named(name, content, message, tmp_path):
    path = tmp_path / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    with pytest.raises(TableError, match=message):
        ingest_table(path, "bad")
    assert not list_datasets()


def test_a_text_in_another_encoding_is_not_shown_whole(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,ä\n2,b\n" * 1000)
    with pytest.raises(TableError, match="some of its text is not ascii; name") as caught:
        ingest_table(tmp_path / "a.csv", label="y", encoding="ascii")
    assert len(str(caught.value)) < 300


def test_what_is_not_on_s3_is_named(lake, monkeypatch):
    with pytest.raises(TableError, match=r"there is no file or folder .*/none\.csv"):
        ingest_table(f"{lake}/none.csv", "none")
    once = {"retries": {"total_max_attempts": 1}}
    nobody = {"endpoint_url": "http://127.0.0.1:9", "config_kwargs": once}
    monkeypatch.setitem(fsspec.config.conf, "s3", nobody)
    with pytest.raises(TableError, match="cannot read"):
        ingest_table(f"{lake}/none.csv", "none")
