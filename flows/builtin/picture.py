"""Decode small pictures from untrusted bytes, and load the distinct colours of one as rows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from flows.builtin.raw_data import RawData, bad_file, read_bytes

LIMIT = 2**24
PIXEL_LIMIT = 2**22

# Beyond its own limit on pixels, Pillow warns or raises, depending on the size.
_BAD_PICTURE = (
    OSError,
    ValueError,
    SyntaxError,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


def load_colours(path: Path) -> RawData:
    """Load the distinct colours of a PNG in sorted order.

    Returns
    -------
    RawData
        X of shape (n, 3), uint8: red, green, blue. No labels.
    """
    return RawData(X=colours_of(load_pixels(path)), feature_names=("red", "green", "blue"))


def colours_of(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the distinct colours (n, 3) of pixels (height, width, 3), sorted."""
    return np.unique(pixels.reshape(-1, 3), axis=0)


def load_pixels(path: Path) -> NDArray[np.uint8]:
    """Load the pixels of a PNG, shape (height, width, 3)."""
    return decode(path, "the picture", read_bytes(path, LIMIT), "PNG", "RGB")


def decode(path: Path, name: str, data: bytes, kind: str, mode: str) -> NDArray[np.uint8]:
    """Decode a picture; raise RawFileError for another format, or for too many pixels.

    Parameters
    ----------
    path, name : Path, str
        The raw file and the picture in it, for error messages.
    data : bytes
        The encoded picture.
    kind, mode : str
        The only format to accept ("PNG", "PPM") and the colours to convert to ("L", "RGB").

    Returns
    -------
    ndarray of shape (height, width) or (height, width, 3)
    """
    try:
        with Image.open(io.BytesIO(data), formats=(kind,)) as picture:
            small = picture.width * picture.height <= PIXEL_LIMIT
            pixels = np.asarray(picture.convert(mode)) if small else None
    except UnidentifiedImageError as error:  # its text is only the address of a buffer
        raise bad_file(path, f"holds {name}, which is no {kind} picture") from error
    except _BAD_PICTURE as error:
        raise bad_file(path, f"holds {name}, which is no whole {kind} picture ({error})") from error
    if pixels is None:
        raise bad_file(path, f"holds {name}, of more than {PIXEL_LIMIT} pixels")
    return pixels
