"""Raw files that are cut short, foreign or hostile."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hostile_raw import FACE, PGM, RAW, idx, member, tar_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from flows.builtin.raw_files import (
    RawFileError,
    load_cancer,
    load_colours,
    load_faces,
    load_mnist,
    read_raw,
)


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_idx_round_trip(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8)
    images = put(tmp_path / "i.gz", gzip.compress(idx(2, 3, 4, body=pixels.tobytes())))
    digits = put(tmp_path / "l.gz", gzip.compress(idx(2, body=b"\3\7")))
    raw = load_mnist(images, digits)
    np.testing.assert_array_equal(raw.X, pixels.reshape(2, 12))
    assert (raw.labels["digit"].tolist(), raw.image_shape) == ([3, 7], (3, 4))


def test_cancer_drops_rows_with_missing_values(tmp_path: Path) -> None:
    text = "1,5,1,1,1,2,1,3,1,1,2\n2,5,1,1,1,2,?,3,1,1,2\r\n\n3,10,1,1,1,2,1,3,1,1,4\r\n"
    raw = load_cancer(put(tmp_path / "c.data", text.encode()))
    assert raw.X.tolist() == [[5, 1, 1, 1, 2, 1, 3, 1, 1], [10, 1, 1, 1, 2, 1, 3, 1, 1]]
    assert raw.labels["diagnosis"].tolist() == [0, 1]


def test_faces_are_sorted_and_others_ignored(tmp_path: Path) -> None:
    content = tar_of(
        member("faces", b"", type=tarfile.DIRTYPE),
        member("faces/zoe/zoe_up_sad_sunglasses_4.pgm"),
        member(FACE),
        member("faces/ann/ann_left_sad_open_2.pgm", b"another size"),
        member("faces/ann/ann_up_sad_open_4.pgm.bad", b"broken"),
    )
    raw = load_faces(put(tmp_path / "f.tar.gz", content))
    assert raw.X.shape == (2, 960)
    assert raw.class_names == {"identity": ("ann", "zoe"), "pose": ("left", "up")}
    assert raw.labels["pose"].tolist() == [0, 1]
    np.testing.assert_array_equal(raw.X[0], np.frombuffer(PGM, np.uint8, offset=13))


@pytest.mark.parametrize("case", RAW)
def test_bad_and_hostile_files_are_named_and_leave_nothing(tmp_path: Path, case: str) -> None:
    load, made = RAW[case]
    path = put(tmp_path / "raw.file", made())
    with pytest.raises(RawFileError, match=r"raw\.file cannot be read"):
        load(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("load", [load_faces, load_colours, load_cancer])
def test_empty_missing_and_unreadable_files(tmp_path: Path, load: Callable[[Path], object]) -> None:
    for path in (put(tmp_path / "file", b""), tmp_path / "none", tmp_path):
        with pytest.raises(RawFileError, match=str(path)):
            read_raw(load, path)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(cut=st.integers(0, 2000), flip=st.integers(0, 2000), bit=st.integers(0, 7))
def test_any_cut_or_flip_of_a_tar_loads_or_is_a_raw_file_error(
    tmp_path: Path, cut: int, flip: int, bit: int
) -> None:
    data = bytearray(gzip.decompress(tar_of(member(FACE))))
    data[flip] ^= 1 << bit
    path = put(tmp_path / "g.tar.gz", gzip.compress(bytes(data[: len(data) - cut]), 1))
    try:
        assert read_raw(load_faces, path).X.shape == (1, 960)
    except RawFileError as error:
        assert "g.tar.gz" in str(error)  # noqa: PT017


def test_colours_are_distinct_and_sorted(tmp_path: Path) -> None:
    pixels = np.array([[[9, 1, 2], [0, 5, 5]], [[9, 1, 2], [0, 5, 4]]], np.uint8)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    assert load_colours(tmp_path / "p.png").X.tolist() == [[0, 5, 4], [0, 5, 5], [9, 1, 2]]
