"""Tables in every format and on S3 come to the same rows, and what cannot be read is named."""

import gzip
import os
import pickle
import re
import unicodedata
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import boto3
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
from stock import write_table

from storage import StorageError, TableError, ingest_table, list_datasets, open_dataset
from storage.tables.encoding import Problems
from storage.tables.formats import open_table
from storage.tables.new_rows import check_columns, encode_frame, encode_new_rows, open_new_rows
from storage.tables.schema import TableOptions, TableSchema
from storage.verify import stored_items

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


def _gappy(seed=0):
    frame = _frame(seed)
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "region"] = None
    return frame


def _file(frame, path):
    write_table(frame, path)
    return path


def _csv(frame, folder, name="sales.csv"):
    return _file(frame, folder / name)


def _folder(frame, folder):
    for part in range(3):
        rows = frame.iloc[part * 100 : (part + 1) * 100].set_axis([5] * 100)
        rows.to_parquet(folder / f"part-{part}.parquet")  # with an index, which is no feature
    (folder / "_SUCCESS").touch()
    (folder / ".part.crc").touch()
    return folder


def _halves(frame, folder):
    return [_csv(frame.iloc[:150], folder, "a-1.csv"), _csv(frame.iloc[150:], folder, "a-2.csv")]


def _glob(frame, folder):
    _halves(frame, folder)
    return str(folder / "a-*.csv")


def _arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def _with_categories(frame):
    return pl.from_pandas(frame).with_columns(pl.col("region").cast(pl.Categorical))


def _file_of_polars(frame, path):
    _with_categories(frame).write_parquet(path)
    return path


FORMATS = {
    "csv": _csv,
    "parquet": lambda frame, folder: _file(frame, folder / "sales.parquet"),
    "feather": lambda frame, folder: _file(frame, folder / "sales.feather"),
    "folder": _folder,
    # In the order of the list, whatever the names of the files.
    "list": lambda frame, folder: _halves(frame.iloc[np.r_[150:N, :150]], folder)[::-1],
    "glob": _glob,
    "pandas": lambda frame, _: frame,
    "polars": lambda frame, _: pl.from_pandas(frame),
    "polars lazy": lambda frame, _: pl.from_pandas(frame).lazy(),
    "polars categories": lambda frame, _: _with_categories(frame),
    "polars parquet": lambda frame, folder: _file_of_polars(frame, folder / "sales.parquet"),
    "reader": lambda frame, _: _arrow(frame).to_reader(),
    "xarray": lambda frame, _: xr.Dataset.from_dataframe(frame),
    "dask": lambda frame, _: pytest.importorskip("dask.dataframe").from_pandas(frame, 3),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_comes_to_the_same_rows(kind, tmp_path):
    frame = _frame()
    source = FORMATS[kind](frame, tmp_path)
    data = ingest_table(source, "sales", label="churned", keep=["id"])
    expected = pd.get_dummies(frame[["age", "income", "region", "member"]], prefix_sep="=")
    assert set(data.feature_names) == set(expected.columns)
    assert_array_equal(data.X.read(0, N), expected[list(data.feature_names)].to_numpy(float))
    assert data.class_names == {"churned": ("no", "yes")}
    assert_array_equal(data.y, frame["churned"] == "yes")
    assert open_dataset("sales").data_hash == data.data_hash


# Each returns its value, or writes a file.
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
    source = MATRICES[kind](X, tmp_path / kind)
    if (tmp_path / kind).exists():
        source = tmp_path / kind
    data = ingest_table(source, "m", label="column_3")
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


@pytest.mark.parametrize("missing", ["drop", "mean", "indicator"])
def test_gaps_by_their_definition(missing):
    frame = _gappy()
    data = ingest_table(frame, "g", label="churned", drop=["id"], missing=missing)
    dummies = pd.get_dummies(frame["region"], prefix="region", prefix_sep="=").astype(float)
    dummies[frame["region"].isna()] = np.nan
    columns = [frame[["age", "income"]], dummies, frame[["member"]]]
    expected = pd.concat(columns, axis=1).astype(float)
    if missing == "drop":
        expected = expected.dropna()
    else:
        gaps = expected.isna()
        expected = expected.fillna(expected.mean())
        if missing == "indicator":
            expected["age is missing"] = gaps["age"]
            expected["region is missing"] = gaps["region=east"]
    assert data.feature_names == tuple(expected.columns)
    schema = TableSchema.from_json(data.info.table["schema"])
    assert TableSchema.from_json(schema.to_json()) == schema
    assert schema.encoded_names == data.feature_names
    assert [feature.missing for feature in schema.features] == [43, 0, 28, 0]
    assert_allclose(data.X.read(0, len(data.X)), expected.to_numpy(float), rtol=1e-12)
    assert len(data.y) == len(expected)


def test_the_size_of_batches_and_pieces_changes_nothing(monkeypatch):
    frame, options = _gappy(), {"label": "churned", "missing": "mean", "force": True}
    whole = ingest_table(frame, "w", **options)
    for size in (1, 7, 64, 299):
        monkeypatch.setattr("storage.tables.formats.batch_rows", lambda _, size=size: size)
        monkeypatch.setattr("storage.tables.sources._PIECE_ROWS", size)
        assert len(open_table(frame).parts) == np.ceil(N / size)
        # The rows of a frame stay in this process, whatever the executor.
        small = ingest_table(frame, "s", executor=object(), **options)
        assert_allclose(small.X.read(0, N), whole.X.read(0, N), rtol=1e-14)
        assert_array_equal(small.y, whole.y)


@pytest.mark.parametrize(
    ("values", "target", "classes"),
    [
        (["b", "a", "b"], "auto", ("a", "b")),
        ([True, False, True], "auto", ("false", "true")),
        ([3, 1, 3], "auto", ("1", "3")),
        ([3, 1, 3], "numbers", None),
        ([0.5, 1, 2], "auto", None),
        (list(range(30)), "classes", tuple(map(str, range(30)))),
    ],
)
def test_labels_are_classes_or_numbers(values, target, classes):
    frame = pd.DataFrame({"x": np.arange(len(values)) ** 1.5, "y": values})
    data = ingest_table(frame, "l", label="y", target=target)
    if classes is None:
        assert_array_equal(data.y, np.asarray(values, dtype=float))
    else:
        names = [str(value).lower() for value in values]
        assert [data.class_names["y"][code] for code in data.y] == names
        assert data.class_names["y"] == classes


REFUSED = {
    "gaps": ({}, {"missing": "refuse"}, r"age \(43\), region \(28\).*drop, mean or indicator"),
    "dates": ({"when": pd.Timestamp("2020-01-01")}, {}, "'when' holds dates"),
    "empty column": ({"x": np.nan}, {}, "'x' has no values"),
    "all rows": ({"x": [np.nan, *[1.0] * (N - 1)]}, {"label": "x"}, "x .1.*drop"),
    "names that collide": ({"region=north": 1.0}, {}, "'region=north' after encoding"),
    "indicators that collide": ({"age is missing": 1.0}, {"missing": "indicator"}, "'age is mis"),
    "one class": ({"y": "a"}, {"label": "y"}, "has 1 class"),
    "texts as numbers": ({}, {"target": "numbers"}, "needs numbers"),
    "no column left": ({}, {"columns": ["churn*"]}, "no column left"),
    "pattern of none": ({}, {"columns": ["age", "regio"]}, "has 'regio'; did you mean 'region'"),
    "periods": ({"x": pd.period_range("2020", periods=N)}, {}, "'x' holds values of .*period"),
    "wrong option": ({}, {"missing": "zero"}, "expected one of refuse"),
    "two characters": ({}, {"delimiter": "ab"}, "is 'ab'; expected one character"),
    "marks alike": ({}, {"delimiter": ",", "decimal": ","}, "is not the mark of decimals"),
    "no such decimals": ({}, {"decimal": ";"}, "`decimal` is ';'"),
    "no such encoding": ({}, {"encoding": "klingon"}, "`encoding` is 'klingon'; expected one such"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_named(case):
    columns, options, message = REFUSED[case]
    frame = _gappy().assign(**columns)
    with pytest.raises(TableError, match=message):
        ingest_table(frame, "bad", **{"label": "churned", "missing": "mean", **options})
    assert not list_datasets()


LATE = b"x,y\n" + b"1,a\n" * 2**20 + b"oops,b\n"
LONG = b"x,y\n" + b"1,a\n" * 2**19 + b"2,\xe4\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "there is no file"),
        ("a.docx", b"PK", "expected .arrow, .csv"),
        ("a", b"x,y\n", "a has the suffix ''; expected"),
        ("a.xlsx", b"PK", "a.xlsx is a spreadsheet; save it as CSV"),
        pytest.param("a.csv", LONG, "not UTF-8; name its .* --encoding cp1252", id="long"),
        ("empty/", None, "no file that can be read"),
        ("x.zarr/", None, r"holds arrays.*ingest_table\(array, name\)"),
        *((f"x.{name}", b"", "holds arrays") for name in ("npz", "h5", "hdf5")),
        ("a.parquet", b"PAR1 nothing", "cannot read .*a.parquet"),
        ("a.csv", b"x,x,y\n1,2,a\n3,4,b\n", "multiple columns named x"),
        ("a.csv", b"x,y\n1,a\n2\n", "cannot read .*a.csv"),
        ("a.csv.gz", gzip.compress(b"x,y\n1,a\n2,b\n", mtime=0)[:-9], "cannot read .*a.csv.gz: "),
        ("a.csv", b"x,y\n1,a\noops,b\n", "'oops'"),
        pytest.param("a.csv", LATE, "'x' has 'oops' among numbers; correct", id="late"),
        ("a.csv", b"x,y\n", "has no rows"),
        ("a.csv", b"\n", "is empty"),
        ("a.csv", gzip.compress(b"x,y\n1,a\n", mtime=0), "packed by gzip; add .gz to its name"),
        ("a.csv", b"PK\x03\x04\x14", "ZIP archive, as workbooks of Excel are; save its table"),
        ("a.csv", b"x;y\n1;2;3\n", r"has one column, 'x;y': another mark.*--delimiter"),
        ("a.csv", b",y\n1,a\n", r"column 1 of .* has no name.*index=False"),
        ("a.npy", b"\x93NUMPY\x01\x00", "a.npy"),
    ],
)
def test_files_that_cannot_be_read_are_named(name, content, message, tmp_path):
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(TableError, match=message):
        ingest_table(path, "bad", label="y")
    assert not list_datasets()


def test_a_text_in_another_encoding_is_not_shown_whole(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,ä\n2,b\n" * 1000)
    with pytest.raises(TableError, match="some of its text is not ascii; name") as caught:
        ingest_table(tmp_path / "a.csv", label="y", encoding="ascii")
    assert len(str(caught.value)) < 300


def test_a_second_ingest_of_the_same_files_reads_nothing(tmp_path):
    path = _csv(_frame(), tmp_path)
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


def _values(source, **options):
    """Ingest a table, and return its encoded rows as a frame."""
    data = ingest_table(source, "t", force=True, **options)
    return pd.DataFrame(data.X.read(0, len(data.X)), columns=list(data.feature_names or ()))


def test_rows_left_out_leave_no_level_and_no_class():
    frame = pd.DataFrame({"x": [1.0, 2, np.nan, 4], "c": [*"abwa"], "is/it?": [*"uvzu"]})
    data = ingest_table(frame, "d", label="is/it?", missing="drop")
    assert data.feature_names == ("x", "c=a", "c=b")
    assert data.class_names == {"is_it_": ("u", "v")}
    (label,) = TableSchema.from_json(data.info.table["schema"]).labels
    assert label.sizes == (2, 1)


def test_a_part_without_a_line_is_named(tmp_path):
    (tmp_path / "1.csv").write_text("x,c\n1,a\n")
    (tmp_path / "2.csv").write_text("")
    with pytest.raises(TableError, match=r"cannot read [^:]*: \S+2.csv: CSV parse error: Empty"):
        ingest_table(tmp_path, "t")


def test_parts_have_the_same_columns_and_types(tmp_path):
    (tmp_path / "1.csv").write_text("x,c,n\n")
    (tmp_path / "2.csv").write_text("x,c,n\n1,True,\n")
    (tmp_path / "3.csv").write_text("x,c,n\n2.5,maybe,7\n")
    values = _values(tmp_path, missing="mean")
    assert_array_equal(values["x"], [1.0, 2.5])
    assert list(values) == ["x", "c=True", "c=maybe", "n"]
    (tmp_path / "4.csv").write_text("x,c,n\nmany,no,8\n")
    with pytest.raises(TableError, match=r"'x' is string in .*4.csv and .* in .*2.csv"):
        ingest_table(tmp_path, "bad", force=True)
    for part, columns in enumerate((["x", "z"], ["x"])):
        pd.DataFrame(1.0, [0], columns).to_parquet(tmp_path / f"part-{part}.parquet")
    with pytest.raises(TableError, match=r"part-0.parquet has the column 'z', which .*part-1"):
        ingest_table(f"{tmp_path}/*.parquet", "bad")


PEOPLE = [("größe", "born", "city"), ("1,5", "01.02.2020", "Köln"), ("2,25", "29.02.2020", "Ulm")]


def _written(delimiter, decimal=","):
    return "".join(delimiter.join(row) + "\n" for row in PEOPLE).replace(",", decimal)


WRITTEN = {
    "semicolons": ("a.csv", _written(";").encode(), {}, "separated by semicolons"),
    "tabs": ("a.csv", _written("\t").encode(), {"delimiter": "tab"}, "decimals have commas"),
    "bars": ("a.csv", _written("|", decimal=".").encode(), {}, "separated by bars"),
    "a byte order mark": ("a.csv", _written(";").encode("utf-8-sig"), {}, "semicolons"),
    "Latin-1": ("a.csv", _written(";").encode("latin-1"), {}, "the encoding is cp1252"),
    "UTF-16": ("a.tsv", _written("\t").encode("utf-16"), {}, "the encoding is utf-16"),
    "no mark": ("a.tsv", _written("\t").encode("utf-16-le"), {}, "the encoding is utf-16-le"),
    "the other": ("a.tsv", _written("\t").encode("utf-16-be"), {}, "the encoding is utf-16-be"),
    "packed": ("a.csv.gz", gzip.compress(_written(";").encode("cp1252")), {}, "cp1252"),
    "as it is given": (
        "a.csv",
        _written("~").encode("cp1250"),
        {"delimiter": "~", "decimal": ",", "encoding": "cp1250"},
        "separated by '~'",
    ),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_text_files_as_people_write_them(case, tmp_path):
    name, content, options, note = WRITTEN[case]
    (tmp_path / name).write_bytes(content)
    table = open_table(tmp_path / name, TableOptions(**options))
    assert note in table.note
    # Workers of a cluster get the parts pickled.
    part = pickle.loads(pickle.dumps(table.parts[0]))
    (batch,) = part.batches(["größe", "city"])
    assert batch.to_pylist()[0] == {"größe": 1.5, "city": "Köln"}
    values = _values(tmp_path / name, dates=True, **options)
    assert list(values) == ["größe", "born", "city=Köln", "city=Ulm"]
    assert_array_equal(values, [[1.5, 18293, 1, 0], [2.25, 18321, 0, 1]])


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        # Commas stay where they are no decimals.
        ('x,c\n1.5,"Ulm;b"\n2,"a,5"\n', {}, {"x": [1.5, 2], "c=Ulm;b": [1, 0], "c=a,5": [0, 1]}),
        # A first line of numbers is a row, but not as pandas numbers the columns of a frame.
        ("1,2.5\n3,4\n", {}, {"column_0": [1, 3], "column_1": [2.5, 4]}),
        ("0,1\n1,2.5\n3,4.0\n", {}, {"0": [1, 3], "1": [2.5, 4]}),
        # So is one with texts that come again below it.
        ("1,a\n2,b\n3,a\n", {"label": "column_1"}, {"column_0": [1, 2, 3]}),
        # A line break in quotes is no row, wherever a block ends.
        ("c,x\n" + '"no\nrth",7\n' * 40, {}, {"c=no\nrth": [1] * 40, "x": [7] * 40}),
        # An empty text is a gap, and another one is not.
        (
            "x,c\n1,NA\n2,\n3,b\n",
            {"missing": "mean"},
            {"x": [1, 2, 3], "c=NA": [1, 0.5, 0], "c=b": [0, 0.5, 1]},
        ),
        ("x_1,x_2,z\n1,3,1\n2,5,2\n", {"columns": "x_*"}, {"x_1": [1, 2], "x_2": [3, 5]}),
        ("x [m],z\n1,3\n2,5\n", {"columns": "x [m]"}, {"x [m]": [1, 2]}),
    ],
)
def test_texts_are_read_as_they_are_meant(tmp_path, monkeypatch, text, options, expected):
    monkeypatch.setattr("storage.tables.text_files._BLOCK_BYTES", 64)
    (tmp_path / "a.csv").write_text(text)
    values = _values(tmp_path / "a.csv", **options)
    assert values.to_dict("list") == expected


TIMES = {
    "dates": (pa.array([18293], pa.date32()), 18293),
    "dates in milliseconds": (pa.array([18293 * 86_400_000], pa.date64()), 18293),
    "timestamps": (pa.array([18293 * 86_400 + 43_200], pa.timestamp("s")), 18293.5),
    "with a zone": (pa.array([18293 * 86_400_000_000], pa.timestamp("us", "Asia/Tokyo")), 18293),
    "times of the day": (pa.array([21_600], pa.time32("s")), 0.25),
    "durations": (pa.array([172_800_000_000_000], pa.duration("ns")), 2),
}


@pytest.mark.parametrize("case", TIMES)
def test_dates_are_days_on_request(case):
    times, days = TIMES[case]
    table = pa.table({"x": [1.0, 2.0], "when": pa.concat_arrays([times, pa.nulls(1, times.type)])})
    with pytest.raises(TableError, match=r"'when' holds dates.*: read dates as days with --dates"):
        ingest_table(table, "t")
    values = _values(table, dates=True, missing="mean")
    assert_array_equal(values["when"], [days, days])
    data = ingest_table(table, "l", label="when", dates=True, missing="drop")
    assert_array_equal(data.y, [days])


def test_new_rows_have_dates_too(tmp_path):
    (tmp_path / "a.csv").write_text("x,when\n1,2020-02-01\n2,2020-02-29\n")
    data = ingest_table(tmp_path / "a.csv", "t", dates=True)
    schema = TableSchema.from_json((data.info.table or {})["schema"])
    (tmp_path / "b.csv").write_text("when;x\n01.02.2020;1\n")
    table = open_new_rows(tmp_path / "b.csv", schema)
    assert check_columns(table, schema) == ()
    (rows,) = encode_new_rows(table, schema, Problems())
    assert_array_equal(rows.X, [[1, 18293]])
    wrong = pd.DataFrame({"x": [1.0], "when": ["soon"]})
    with pytest.raises(TableError, match=r"has .*string in 'when', which was a date"):
        encode_frame(wrong, schema)


@pytest.mark.parametrize(
    ("column", "expected", "target"),
    [
        (pa.array([2**60, 1]), [2.0**60, 1.0], "numbers"),
        (pa.array([Decimal("1.00"), Decimal("2.00")]), [1.0, 2.0], "classes"),
        (pa.array(np.array([1.5, 2.0], np.float16)), [1.5, 2.0], "numbers"),
    ],
    ids=["beyond 2^53", "decimals", "half floats"],
)
def test_numbers_of_every_type(column, expected, target):
    data = ingest_table(pa.table({"x": column, "y": column}), "n", label="y", target=target)
    assert_array_equal(data.X.read(0, 2)[:, 0], expected)
    assert_array_equal(data.y, [0, 1] if target == "classes" else expected)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz"])
def test_a_folder_of_parts_is_the_same_as_on_disk(lake, tmp_path, suffix):
    (tmp_path / "parts").mkdir()
    for part in range(3):
        frame, name = _frame(part), f"parts/{part}.{suffix}"
        write = frame.to_parquet if suffix == "parquet" else frame.to_csv
        write(tmp_path / name, index=False)
        boto3.client("s3").upload_file(str(tmp_path / name), lake.removeprefix("s3://"), name)
    expected = ingest_table(tmp_path / "parts", "near", label="churned")
    for address in (f"{lake}/parts", f"{lake}/parts/*.{suffix}"):
        data = ingest_table(address, "far", label="churned")
        assert data.feature_names == expected.feature_names
        assert data.data_hash == expected.data_hash
        assert_array_equal(data.X.read(0, len(data.X)), expected.X.read(0, len(expected.X)))
    # Credentials are read from the environment and stored nowhere.
    stored = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert stored
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    assert not any(secret in path.read_bytes() for path in stored)


def test_a_change_is_seen_though_listings_are_cached(lake):
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


def test_what_is_not_there_is_named(lake, monkeypatch):
    with pytest.raises(TableError, match=r"there is no file or folder .*/none\.csv"):
        ingest_table(f"{lake}/none.csv", "none")
    once = {"retries": {"total_max_attempts": 1}}
    nobody = {"endpoint_url": "http://127.0.0.1:9", "config_kwargs": once}
    monkeypatch.setitem(fsspec.config.conf, "s3", nobody)
    with pytest.raises(TableError, match="cannot read"):
        ingest_table(f"{lake}/none.csv", "none")


def test_all_problems_of_a_table_are_listed_at_once():
    frame = pd.DataFrame(
        {
            "free": [f"text {number}" for number in range(60)],
            "mixed": ["?", *map(str, range(59))],
            "when": pd.Timestamp("2020-01-01"),
            "huge": [np.inf, *range(59)],
            "gap": [np.nan, *range(59)],
            "y": np.arange(60.0),
            "w": [-1.0] * 60,
        }
    )
    with pytest.raises(TableError) as caught:
        ingest_table(frame, "t", label="y", weights="w")
    for words in (
        "'when' holds dates",
        "'free' has 60 different texts",
        "'mixed' has numbers, and texts such as '?'",
        "leave a cell without a number empty",
        "'huge' is infinite in 1 of 60 rows",
        "values are missing in some of 60 rows: gap (1); accept that",
        "'y' has more than 20 different whole numbers",
        "the weights 'w' go from -1 to -1",
    ):
        assert words in str(caught.value)
    with pytest.raises(TableError, match=r"`label` has 'z'; `drop` has 'fre'; did you mean 'free'"):
        ingest_table(frame, "t", label="z", drop="fre")


@pytest.mark.parametrize(
    ("values", "decimal"),
    [
        (("1,234", "2,500", "900"), None),
        (("5%", "12 %", "7"), None),
        (("$7.00", "12 €", "-3 €"), None),
        (("1 200", "1\u00a0300", "900"), None),
        (("1.234.567,5", "3,5", "0"), None),
        # Thousands have points where decimals have commas.
        (("1.234", "2.500", "900"), ","),
    ],
)
def test_numbers_with_marks_are_not_taken_for_texts(tmp_path, values, decimal):
    table = pd.DataFrame({"x": [1, 2, 3] * 20, "price": list(values) * 20, "y": list("ab") * 30})
    table.to_csv(tmp_path / "t.csv", index=False, sep=";" if decimal else ",")
    expected = f"'price' has numbers, and texts such as {values[0]!r}"
    with pytest.raises(TableError, match=re.escape(expected)):
        ingest_table(tmp_path / "t.csv", label="y", decimal=decimal)
    with pytest.raises(TableError, match=re.escape(expected)):
        ingest_table(tmp_path / "t.csv", label="price", decimal=decimal)
    data = ingest_table(tmp_path / "t.csv", label="price", target="classes", decimal=decimal)
    assert set(data.class_names["price"]) == set(values)


def test_files_that_are_no_tables_say_why(tmp_path):
    pipe, line = tmp_path / "pipe.csv", tmp_path / "line.csv"
    os.mkfifo(pipe)
    line.write_bytes(b"1," * 5_000_000)
    for path, message in (
        (pipe, "is no file, but a pipe or device"),
        (line, r"first line of .*line\.csv is longer than 4 MiB"),
    ):
        with pytest.raises(TableError, match=message):
            ingest_table(path)
    wide = ",".join(f"column {number:0400}" for number in range(4000))
    (tmp_path / "wide.csv").write_text(f"{wide}\n{wide}\n")
    assert len(open_table(tmp_path / "wide.csv").schema) == 4000


def test_a_label_may_have_letters_of_any_alphabet(tmp_path):
    """The two spellings of ü have one name."""
    for name in ("gekündigt", unicodedata.normalize("NFD", "gekündigt"), "解約"):
        frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], name: ["ja", "nein", "ja"]})
        data = ingest_table(frame, "kunden", label=name, force=True)
        assert list(data.labels) == [unicodedata.normalize("NFC", name)]
        assert list(data.y) == [0, 1, 0]
        assert not [each for item in stored_items() for each in item.problems()]


def test_a_file_in_a_folder_whose_name_is_not_utf8_is_named(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xe9.csv")).write_text("x,y\n1,2\n")
    with pytest.raises(TableError, match=r"\\udce9\.csv' is not UTF-8; rename it"):
        ingest_table(folder)


def test_text_of_a_parquet_file_that_is_not_utf8_is_an_error_of_its_column(tmp_path):
    text = pa.array([b"\xe9", b"tea"] * 20).cast(pa.string(), safe=False)
    pa.parquet.write_table(pa.table({"x": range(40), "drink": text}), tmp_path / "drinks.parquet")
    with pytest.raises(TableError, match="the column 'drink' has text that is not UTF-8"):
        ingest_table(tmp_path / "drinks.parquet")


def test_texts_of_a_feather_file_that_lie_elsewhere_in_memory_are_an_error(tmp_path):
    """Such a file is used as it is, and would show, or touch, memory that is not its own."""
    offsets = np.arange(41, dtype=np.int32) * 10_000_000
    offsets[-1] = 3  # the only one that Arrow compares
    text = pa.StringArray.from_buffers(40, pa.py_buffer(offsets), pa.py_buffer(b"tea"))
    table = pa.table({"x": range(40), "drink": text})
    path = tmp_path / "drinks.feather"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    with pytest.raises(TableError, match=r"drinks\.feather"):
        ingest_table(path)
