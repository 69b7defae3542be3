"""Raw files of the built-in data sets: good ones, and such as are cut short or made to do harm."""

import gzip
import io
import math
import struct
import tarfile
from functools import partial

import numpy as np
import pytest
from PIL import Image
from support import PICKLED

from flows.builtin.raw_files import (
    RawFileError,
    load_cancer,
    load_colours,
    load_faces,
    read_idx,
    read_raw,
)

FACE, OTHER = "faces/ann/ann_left_sad_open_4.pgm", "faces/ann/ann_up_sad_open_4.pgm"
PGM = b"P5\n32 30\n255\n" + bytes(range(240)) * 4


def beside(picture):
    """Return a tar archive, packed, of a good picture and one more."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in ((FACE, PGM), (OTHER, picture)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def idx(*sizes, body=None, kind=8):
    head = struct.pack(f">BBBB{len(sizes)}I", 0, 0, kind, len(sizes), *sizes)
    return head + (bytes(math.prod(sizes)) if body is None else body)


FACES, PIXELS, CANCER = (
    partial(read_raw, load) for load in (load_faces, load_colours, load_cancer)
)
DIGITS = partial(read_raw, read_idx, ndim=3)


RAW = {
    "pgm: 1e12 pixels": (FACES, lambda: beside(b"P5\n999999 999999\n255\n")),
    "pgm: cut short": (FACES, lambda: beside(PGM[:-1])),
    "png: a pickle instead": (PIXELS, lambda: PICKLED),
    "gzip: nothing in it": (DIGITS, lambda: gzip.compress(b"")),
    "gzip: a bomb": (DIGITS, lambda: gzip.compress(bytes(2**27))),
    "gzip: without its end": (DIGITS, lambda: gzip.compress(idx(2, 3, 4))[:-9]),
    "idx: a huge header": (DIGITS, lambda: gzip.compress(idx(*[2**32 - 1] * 3, body=b""))),
    "idx: cut short": (DIGITS, lambda: gzip.compress(idx(2, 3, 4)[:-1])),
    "idx: more than its header says": (DIGITS, lambda: gzip.compress(idx(2, 3, 4) + b"x")),
    "csv: too few cells": (CANCER, lambda: b"1,5,1,1,1,2,1,3,1,1"),
    "csv: a page instead": (CANCER, lambda: b"<html>"),
    "csv: a number without end": (CANCER, lambda: b"1," + b"9" * 500_000 + b",1,1,1,1,1,1,1,1,2\n"),
}


def put(path, data):
    path.write_bytes(data)
    return path


def test_cancer_drops_rows_with_missing_values(tmp_path):
    text = "1,5,1,1,1,2,1,3,1,1,2\n2,5,1,1,1,2,?,3,1,1,2\r\n\n3,10,1,1,1,2,1,3,1,1,4\r\n"
    raw = load_cancer(put(tmp_path / "c.data", text.encode()))
    assert raw.X.tolist() == [[5, 1, 1, 1, 2, 1, 3, 1, 1], [10, 1, 1, 1, 2, 1, 3, 1, 1]]
    assert raw.labels["diagnosis"].tolist() == [0, 1]


@pytest.mark.parametrize("case", RAW)
def test_bad_and_hostile_files_are_named_and_leave_nothing(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)  # where code of theirs would leave its mark
    load, made = RAW[case]
    path = put(tmp_path / "raw.file", made())
    with pytest.raises(RawFileError, match=r"raw\.file cannot be read"):
        load(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("load", [load_faces, load_colours, load_cancer])
def test_empty_missing_and_unreadable_files(tmp_path, load):
    for path in (put(tmp_path / "file", b""), tmp_path / "none", tmp_path):
        with pytest.raises(RawFileError, match=str(path)):
            read_raw(load, path)


def test_colours_are_distinct_and_sorted(tmp_path):
    pixels = np.array([[[9, 1, 2], [0, 5, 5]], [[9, 1, 2], [0, 5, 4]]], np.uint8)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    assert load_colours(tmp_path / "p.png").X.tolist() == [[0, 5, 4], [0, 5, 5], [9, 1, 2]]
