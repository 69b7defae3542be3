"""Load MNIST's IDX files: a magic number, the dimensions, then the bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flows.builtin.raw_data import RawData, bad_file, gunzip

LIMIT = 2**26  # MNIST's largest file unpacks to 47 MB
_UNSIGNED_BYTE = 8


def load_mnist(images_path: Path, labels_path: Path) -> RawData:
    """Load one split of MNIST.

    Parameters
    ----------
    images_path, labels_path : Path
        gzip IDX files of n images and of n labels.

    Returns
    -------
    RawData
        X of shape (n, 784), uint8; label "digit".
    """
    images = read_idx(images_path, ndim=3)
    digits = read_idx(labels_path, ndim=1)
    if len(images) != len(digits):
        raise bad_file(labels_path, f"holds {len(digits)} labels for {len(images)} images")
    if digits.size and digits.max() > 9:
        raise bad_file(labels_path, f"holds the label {digits.max()}; expected 0 to 9")
    return RawData(
        X=images.reshape(len(images), -1),
        labels={"digit": digits.astype(np.int64)},
        class_names={"digit": tuple("0123456789")},
        image_shape=images.shape[1:],
    )


def read_idx(path: Path, ndim: int) -> NDArray[np.uint8]:
    """Return the array in a gzip IDX file of unsigned bytes with `ndim` dimensions."""
    data = gunzip(path, LIMIT)
    header = 4 + 4 * ndim
    magic = bytes([0, 0, _UNSIGNED_BYTE, ndim])
    if data[:4] != magic or len(data) < header:
        raise bad_file(
            path, f"starts with {data[:4].hex() or 'nothing'}; expected the IDX magic {magic.hex()}"
        )
    shape = struct.unpack(f">{ndim}I", data[4:header])
    if len(data) != header + math.prod(shape):
        raise bad_file(path, f"unpacks to {len(data)} bytes, which do not fill the shape {shape}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
