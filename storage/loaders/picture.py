"""The colours of a picture as a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from storage.loaders.base import RawData, read_bytes
from storage.loaders.images import decode

LIMIT = 2**24


def load_colours(path: Path) -> RawData:
    """Load the distinct colours of a PNG in sorted order.

    Returns
    -------
    RawData
        X of shape (n, 3), uint8: red, green, blue. No labels.
    """
    pixels = decode(path, "the picture", read_bytes(path, LIMIT), "PNG", "RGB")
    return RawData(
        X=np.unique(pixels.reshape(-1, 3), axis=0), feature_names=("red", "green", "blue")
    )
