"""Load the distinct colours of a picture as a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from storage.loaders.base import RawData, read_bytes
from storage.loaders.picture_decoding import decode

LIMIT = 2**24


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
