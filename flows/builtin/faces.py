"""Load the CMU face images: a tar of small PGM pictures, named after person and pose."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from flows.builtin.picture import decode
from flows.builtin.raw_data import RawData, bad_file, gunzip

WIDTH, HEIGHT = 32, 30
LIMIT = 2**26  # unpacked; the pictures take less than 2 MB
_PICTURE_LIMIT = 2**14

# The tree also holds pictures of other sizes and broken ones (`.bad`): they do not match.
_PICTURE = re.compile(
    r"(?P<person>[a-z0-9]+)_(?P<pose>left|right|straight|up)_"
    r"(?:neutral|happy|sad|angry)_(?:open|sunglasses)_4\.pgm"
)


def load_faces(path: Path) -> RawData:
    """Load the quarter-size pictures from a gzip tar, in memory, sorted by name.

    Returns
    -------
    RawData
        X of shape (n, 960), uint8; labels "identity" and "pose".
    """
    pictures = dict(sorted(_pictures(path)))
    if not pictures:
        raise bad_file(path, "holds no picture <person>/<person>_<pose>_..._4.pgm")
    matches = [match for match in map(_PICTURE.fullmatch, pictures) if match]
    codes, names = {}, {}
    for label, group in (("identity", "person"), ("pose", "pose")):
        classes, inverse = np.unique([match[group] for match in matches], return_inverse=True)
        names[label] = tuple(str(name) for name in classes)
        codes[label] = inverse.astype(np.int64)
    X = np.stack([_pixels(path, name, data) for name, data in pictures.items()])
    return RawData(X=X, labels=codes, class_names=names, image_shape=(HEIGHT, WIDTH))


def _pictures(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield file name and content of each quarter-size picture of the archive."""
    seen = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(gunzip(path, LIMIT)), mode="r:") as archive:
            for member in archive:
                name = _safe_member(path, member)
                if name is None:
                    continue
                content = archive.extractfile(member)
                if name in seen or content is None:
                    raise bad_file(path, f"holds {name} twice or not as a file")
                seen.add(name)
                yield name, content.read(_PICTURE_LIMIT)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise bad_file(path, f"is no whole tar archive ({error})") from error


def _safe_member(path: Path, member: tarfile.TarInfo) -> str | None:
    """Return the file name of a picture, or None for any other member.

    Raise RawFileError for a member that might harm: a link, a path out of the archive, or a file
    that is too large or misplaced.
    """
    inner = PurePosixPath(member.name)
    if inner.is_absolute() or ".." in inner.parts or not (member.isfile() or member.isdir()):
        raise bad_file(
            path, f"holds the unsafe member {member.name[:140]!r} (a link, or a way out)"
        )
    match = _PICTURE.fullmatch(inner.name)
    if not match or not member.isfile():
        return None
    if member.size > _PICTURE_LIMIT or inner.parent.name != match["person"]:
        raise bad_file(
            path, f"holds {member.name[:140]!r} of {member.size} bytes, too large or misplaced"
        )
    return inner.name


def _pixels(path: Path, name: str, data: bytes) -> NDArray[np.uint8]:
    """Decode one picture, shape (960,)."""
    pixels = decode(path, name, data, "PPM", "L")
    if pixels.shape != (HEIGHT, WIDTH):
        raise bad_file(path, f"holds {name} of shape {pixels.shape}; expected {(HEIGHT, WIDTH)}")
    return pixels.reshape(-1)
