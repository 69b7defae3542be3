"""Matrices in files: read without trust, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flows.errors import FlowError, SettingsError
from flows.runs.matrix_files import Matrix, columns_in_order, read_matrix, write_matrix

NUMBERS = np.random.default_rng(0).normal(size=(5, 3))
NAMES = ("supervisedikdr0", "supervisedikdr1", "supervisedikdr2")


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "A.CSV"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_written_is_read(tmp_path: Path, name: str, dtype: type) -> None:
    values = NUMBERS.astype(dtype)
    write_matrix(tmp_path / name, values, NAMES)
    write_matrix(tmp_path / name, values, NAMES)
    np.testing.assert_array_equal(read_matrix(tmp_path / name).values, values)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_header_is_told_from_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\ufeffa,"b, or c"\n1,2\n3,4\n', encoding="utf-8")
    assert read_matrix(path).columns == ("a", "b, or c")
    path.write_text("1,2\n3,4\n", encoding="utf-8-sig")
    found = read_matrix(path)
    assert found.columns is None
    np.testing.assert_array_equal(found.values, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither names nor numbers"),
        ("a,1\n1,2\n", "neither names nor numbers: it has 'a'"),
        ("1,,3\n1,2,3\n", "neither names nor numbers: it has ''"),
        ("a,b\n", "shape"),
        ("a,b\n1,2,3\n", "names 2 columns, its rows have 3"),
        ("1,2\n3\n", "cannot read"),
        ("a,b\n1,x\n", "'x'"),
        ("1,2\n3,nan\n", "NaN or infinity in 1 places, the first in row 2, column 2"),
    ],
)
def test_a_bad_csv_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FlowError, match=message):
        read_matrix(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([{}, 1], dtype=object), "Python objects"),
        (np.arange(3), r"shape \(3,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.array([["a", "b"]]), "real numbers"),
        (np.ones((2, 2), complex), "real numbers"),
        (np.array([[1.0, np.inf]]), "row 1, column 2"),
    ],
)
def test_a_bad_npy_says_what(tmp_path: Path, array: np.ndarray, message: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(FlowError, match=message):
        read_matrix(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"not an array")
    with pytest.raises(FlowError, match="magic"):
        read_matrix(tmp_path / "a.npy")
    with pytest.raises(FlowError, match="No such file"):
        read_matrix(tmp_path / "b.csv")
    with pytest.raises(SettingsError, match=r"ends in \.csv or \.npy"):
        read_matrix(tmp_path / "a.pkl")


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_matrix(path, NUMBERS, NAMES)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_matrix(path, np.array([[object()]]), NAMES)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    for wrong in (tmp_path / "none" / "a.csv", path / "a.csv"):
        with pytest.raises(FlowError, match="cannot write"):
            write_matrix(wrong, NUMBERS, NAMES)


def test_columns_are_taken_by_name() -> None:
    matrix = Matrix(NUMBERS, ("b", "c", "a"))
    np.testing.assert_array_equal(columns_in_order(matrix, ("a", "b", "c")), NUMBERS[:, [2, 0, 1]])
    assert columns_in_order(matrix, None) is NUMBERS
    assert columns_in_order(Matrix(NUMBERS), ("a", "b", "c")) is NUMBERS
    with pytest.raises(FlowError, match="missing 'd', unknown 'a'"):
        columns_in_order(matrix, ("b", "c", "d"))
    with pytest.raises(FlowError, match="missing 'b'"):
        columns_in_order(Matrix(NUMBERS, ("a", "a", "c")), ("a", "b", "c"))
