"""Decode small pictures from untrusted bytes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from storage.loaders.base import bad_file

PIXEL_LIMIT = 2**22

# Beyond its own limit on pixels, Pillow warns or raises, depending on the size.
_BAD_PICTURE = (
    OSError,
    ValueError,
    SyntaxError,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


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
