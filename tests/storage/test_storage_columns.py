"""Columns of tables come to numbers and classes by their rules, or what is wrong is listed."""

import gzip
import pickle
import re
import unicodedata
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from stock import gappy_table

from storage import StorageError, TableError, ingest_table, list_datasets
from storage.tables.encoding import Problems
from storage.tables.formats import open_table
from storage.tables.new_rows import check_columns, encode_frame, encode_new_rows, open_new_rows
from storage.tables.schema import TableOptions, TableSchema
from storage.verify import stored_items

N = 300


def _values(source, **options):
    """Ingest a table, and return its encoded rows as a frame."""
    data = ingest_table(source, "t", force=True, **options)
    return pd.DataFrame(data.X.read(0, len(data.X)), columns=list(data.feature_names or ()))


@pytest.mark.parametrize("missing", ["drop", "mean", "indicator"])
def test_gaps_by_their_definition(missing):
    frame = gappy_table(N)
    data = ingest_table(frame, "g", label="y", missing=missing)
    levels = pd.get_dummies(frame["level"], prefix="level", prefix_sep="=").astype(float)
    levels[frame["level"].isna()] = np.nan
    expected = pd.concat([frame[[*"abcd"]], levels], axis=1)
    if missing == "drop":
        expected = expected.dropna()
    else:
        gaps = expected.isna()
        expected = expected.fillna(expected.mean())
        if missing == "indicator":
            expected["a is missing"] = gaps["a"]
            expected["level is missing"] = gaps["level=n"]
    assert data.feature_names == tuple(expected.columns)
    schema = TableSchema.from_json(data.info.table["schema"])
    assert TableSchema.from_json(schema.to_json()) == schema
    with pytest.raises(StorageError, match="of the kind 'role'"):
        TableSchema.from_json({**schema.to_json(), "features": [{"name": "a", "kind": "role"}]})
    assert schema.encoded_names == data.feature_names
    assert [feature.missing for feature in schema.features] == [43, 0, 0, 0, 28]
    assert_allclose(data.X.read(0, len(data.X)), expected.to_numpy(float), rtol=1e-12)
    assert len(data.y) == len(expected)


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


@pytest.mark.parametrize(("target", "first"), [("numbers", "age"), ("classes", "code")])
def test_target_is_that_of_the_first_label(target, first):
    frame = pd.DataFrame({"x": np.arange(30) ** 1.5, "age": np.arange(30), "code": [3, 1] * 15})
    frame = frame.assign(share=frame["x"] / 7, city=["b", "a"] * 15)
    label = (first, *(name for name in ("age", "code", "share", "city") if name != first))
    data = ingest_table(frame, "l", label=label, target=target)
    assert {*data.class_names} == {"code", "city"}
    assert data.info.default_label == first


def test_rows_left_out_leave_no_level_and_no_class():
    frame = pd.DataFrame({"x": [1.0, 2, np.nan, 4], "c": [*"abwa"], "is/it?": [*"uvzu"]})
    data = ingest_table(frame, "d", label="is/it?", missing="drop")
    assert data.feature_names == ("x", "c=a", "c=b")
    assert data.class_names == {"is_it_": ("u", "v")}
    (label,) = TableSchema.from_json(data.info.table["schema"]).labels
    assert label.sizes == (2, 1)


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
    data = ingest_table(tmp_path / "a.csv", "t", dates=True, missing="mean")
    schema = TableSchema.from_json((data.info.table or {})["schema"])
    (tmp_path / "b.csv").write_text("when;x\n01.02.2020;1\n")
    table = open_new_rows(tmp_path / "b.csv", schema)
    assert check_columns(table, schema) == ()
    (rows,) = encode_new_rows(table, schema, Problems())
    assert_array_equal(rows.X, [[1, 18293]])
    (tmp_path / "b.csv").write_text("x,when\n1,\n2,\n")  # none of them is known
    table = open_new_rows(tmp_path / "b.csv", schema)
    assert check_columns(table, schema) == ()
    (rows,) = encode_new_rows(table, schema, Problems())
    assert_array_equal(rows.X[:, 1], [18307, 18307])
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


def test_a_label_may_have_letters_of_any_alphabet(tmp_path):
    """The two spellings of ü have one name."""
    for name in ("gekündigt", unicodedata.normalize("NFD", "gekündigt"), "解約"):
        frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], name: ["ja", "nein", "ja"]})
        data = ingest_table(frame, "kunden", label=name, force=True)
        assert list(data.labels) == [unicodedata.normalize("NFC", name)]
        assert list(data.y) == [0, 1, 0]
        assert not [each for item in stored_items() for each in item.problems()]


REFUSED = {
    "gaps": ({}, {"missing": "refuse"}, r"a \(43\), level \(28\).*drop, mean or indicator"),
    "empty column": ({"x": np.nan}, {}, "'x' has no values"),
    "all rows": ({"x": [np.nan, *[1.0] * (N - 1)]}, {"label": "x"}, "x .1.*drop"),
    "names that collide": ({"level=n": 1.0}, {}, "'level=n' after encoding"),
    "indicators that collide": ({"a is missing": 1.0}, {"missing": "indicator"}, "'a is missing'"),
    "one class": ({"y": "a"}, {}, "has 1 class"),
    "texts as numbers": ({}, {"target": "numbers"}, "needs numbers"),
    "no column left": ({}, {"columns": ["y*"]}, "no column left"),
    "pattern of none": ({}, {"columns": ["a", "leve"]}, "has 'leve'; did you mean 'level'"),
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
    frame = gappy_table(N).assign(**columns)
    with pytest.raises(TableError, match=message):
        ingest_table(frame, "bad", **{"label": "y", "missing": "mean", **options})
    assert not list_datasets()


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
