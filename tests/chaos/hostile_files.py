"""Files made to do harm: matrices, tables, archives, pictures."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

from flows.builtin.raw_files import load_cancer, load_colours, load_faces, read_idx, read_raw

P = ParamSpec("P")
FACE, OTHER = "faces/ann/ann_left_sad_open_4.pgm", "faces/ann/ann_up_sad_open_4.pgm"
PGM = b"P5\n32 30\n255\n" + bytes(960)
# What is made, in the folder of the test, by code that should not run.
MARKER = "was-run"


def later(use: Callable[P, object]) -> Callable[P, Callable[[], object]]:
    """Return a function that returns a call of `use`, with its arguments, for later."""
    return lambda *given, **named: partial(use, *given, **named)


class Payload:
    """Makes the marker when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (MARKER,)


PICKLED = pickle.dumps(Payload())
OBJECTS = np.array([[Payload(), 1.0, 2.0]], dtype=object)


def saved(array: np.ndarray, save: Callable[..., None] = np.save) -> bytes:
    content = io.BytesIO()
    save(content, array)
    return content.getvalue()


def npy(header: str, body: bytes = bytes(24)) -> bytes:
    """Return a .npy file with a header of our own."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def shaped(shape: object, descr: str = "<f8") -> bytes:
    return npy(f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}")


MATRICES = {
    "pickled objects": saved(OBJECTS),
    "a bare pickle": PICKLED,
    "an archive of pickled objects": saved(OBJECTS, np.savez),
    "a header that claims 1e15 rows": shaped((10**15, 3)),
    "a header that claims 1e10 rows": shaped((10**10, 3)),
    "a negative shape": shaped((-1, 3)),
    "a shape that overflows": shaped((2**62, 2**62)),
    "a header that is code": npy(f"__import__('os').mkdir({MARKER!r})"),
    "a header nested without end": npy("(" * 110),
    "a field of objects": shaped((1, 3), "|O"),
    "complex numbers": saved(np.ones((1, 3), complex)),
    "records": saved(np.zeros((1, 3), [("a", "f8")])),
    "times": saved(np.zeros((1, 3), "M8[s]")),
    "numbers cut short": saved(np.ones((4, 3)))[:-1],
    "an array of infinities": saved(np.full((1, 3), np.inf)),
}


TABLES = {
    "bytes that are no text": b"\xff\xfe\x00\x80",
    "a pickle": PICKLED,
    "a cell without end": b"1,2,3\n" + b"9" * 200_000 + b",2,3\n",
    "a quote without end": b'a,b,c\n"1,2,3\n' * 3,
    "a formula": b"a,b,c\n=cmd|' /C calc'!A0,1,2\n",
    "rows of any length": b"1,2,3\n1,2\n",
}


def member(name: str, content: bytes = PGM, **more: Any) -> bytes:
    """Return a tar archive, packed, of a good picture and one more member."""
    packed_ = io.BytesIO()
    with tarfile.open(fileobj=packed_, mode="w:gz") as archive:
        for path, data, given in ((FACE, PGM, {}), (name, content, more)):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            for key, value in given.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return packed_.getvalue()


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Return a PNG of that size, without its pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    told = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(told)


def zipped(name: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(2**24))
    return content.getvalue()


def idx(*sizes: int) -> bytes:
    return gzip.compress(struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes))


TEXT = b"a\0\0"
FACES, PIXELS, CANCER = (
    partial(read_raw, load) for load in (load_faces, load_colours, load_cancer)
)


def _digits(path: Path) -> object:
    return read_raw(read_idx, path, ndim=3)


RAW: dict[str, tuple[Callable[[Path], object], Callable[[], bytes]]] = {
    "tar: a way up": (FACES, lambda: member("../ann/ann_up_sad_open_4.pgm")),
    "tar: an absolute path": (FACES, lambda: member("/ann/ann_up_sad_open_4.pgm")),
    "tar: a link": (FACES, lambda: member("x", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
    "tar: a hard link": (FACES, lambda: member("x", b"", type=tarfile.LNKTYPE, linkname=FACE)),
    "tar: a device": (FACES, lambda: member("x", b"", type=tarfile.CHRTYPE)),
    "tar: a bomb": (FACES, lambda: member("bomb", bytes(2**26))),
    "tar: cut short": (FACES, lambda: member("y")[:-40]),
    "tar: a pickle instead": (FACES, lambda: gzip.compress(PICKLED)),
    "pgm: 1e12 pixels": (FACES, lambda: member(OTHER, b"P5\n999999 999999\n255\n")),
    "png: 1e10 pixels": (PIXELS, lambda: png(10**5, 10**5)),
    "png: 2e7 pixels": (PIXELS, lambda: png(5000, 4000)),
    "png: text without end": (
        PIXELS,
        lambda: png(4, 4, (b"zTXt", TEXT + zlib.compress(bytes(2**26)))),
    ),
    "png: pixels cut short": (PIXELS, lambda: png(4, 4)),
    "png: a pickle instead": (PIXELS, lambda: PICKLED),
    "gzip: a bomb": (_digits, lambda: gzip.compress(bytes(2**27))),
    "gzip: cut short": (_digits, lambda: idx(2, 2, 2)[:-5]),
    "zip: a bomb instead": (_digits, lambda: zipped("../a")),
    "idx: a huge header": (_digits, lambda: idx(*[2**32 - 1] * 3)),
    "idx: another kind of number": (_digits, lambda: gzip.compress(b"\0\0\x0d\3" + bytes(40))),
    "csv: a number without end": (CANCER, lambda: b"1," + b"9" * 500_000 + b",1,1,1,1,1,1,1,1,2\n"),
    "csv: a pickle instead": (CANCER, lambda: PICKLED),
}
