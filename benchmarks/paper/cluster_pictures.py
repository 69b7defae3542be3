"""Pictures of the clusters of Figure 1a: mean faces, and a photograph in colours of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from PIL import Image

from flows.builtin.catalogue import DATASETS
from flows.builtin.raw_files import find_or_download, load_pixels, read_raw
from ism_dask._types import Array
from ism_dask.estimators.clusterers import ClusteringIKDR
from storage import Dataset

# Pixels between the images of a sheet, images in a line of it, and limits of their height.
_GAP, _COLUMNS, _MIN_HEIGHT, _MAX_HEIGHT = 4, 5, 96, 200


def whole_picture(data: Dataset) -> bytes:
    """Return the photograph whose colours are the rows, as a PNG; empty if there is none."""
    pixels = _pixels(data)
    return b"" if pixels is None else _png_bytes(Image.fromarray(pixels, "RGB"))


def cluster_means(data: Dataset, model: ClusteringIKDR) -> bytes:
    """Draw the mean image of each cluster of rows that are images."""
    rows, labels = data.X.read(0, len(data.X)), model.labels_
    averages = np.array([rows[labels == cluster].mean(axis=0) for cluster in np.unique(labels)])
    low, high = averages.min(), averages.max()
    grey = (255.0 * (averages - low) / max(high - low, 1e-12)).clip(0, 255).astype(np.uint8)
    shaped = grey.reshape(-1, *(data.image_shape or ()))
    factor = -(-_MIN_HEIGHT // shaped.shape[1])
    images = [Image.fromarray(each.repeat(factor, 0).repeat(factor, 1), "L") for each in shaped]
    return _sheet([images[at : at + _COLUMNS] for at in range(0, len(images), _COLUMNS)])


def sheet_of_pictures(lines: Sequence[Sequence[bytes]]) -> bytes:
    """Draw PNG pictures in lines, a photograph with sides of half the length."""
    images = [[Image.open(BytesIO(each)).convert("RGB") for each in line] for line in lines]
    small = [[each.reduce(1 + (each.height > _MAX_HEIGHT)) for each in line] for line in images]
    return _sheet(small)


def segmented(data: Dataset, model: ClusteringIKDR) -> bytes:
    """Draw the photograph whose colours are the rows, each pixel in its cluster's mean colour."""
    pixels = _pixels(data)
    if pixels is None:
        return b""
    colours, inverse = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    counts = np.bincount(inverse.ravel(), minlength=len(colours))
    painted = np.zeros_like(colours)
    for cluster in np.unique(model.labels_):
        members = model.labels_ == cluster
        painted[members] = np.average(colours[members], axis=0, weights=counts[members]).round()
    return _png_bytes(Image.fromarray(painted[inverse.ravel()].reshape(pixels.shape), "RGB"))


def _pixels(data: Dataset) -> Array | None:
    """Return the photograph (height, width, 3) of a data set, None if it is made from none.

    The stored data set has the colours only, so that the raw file is read.
    """
    if data.info.name != "flower":
        return None
    (split,) = DATASETS[data.info.name].splits.values()
    return read_raw(load_pixels, find_or_download(data.info.name, *split.raw))


def _sheet(lines: Sequence[Sequence[Image.Image]]) -> bytes:
    """Draw images in lines on white as a PNG; those of a line have the same height."""
    width = max(sum(image.width + _GAP for image in line) for line in lines)
    height = sum(line[0].height + _GAP for line in lines)
    sheet, top = Image.new(lines[0][0].mode, (width, height), "white"), 0
    for line in lines:
        left = 0
        for image in line:
            sheet.paste(image, (left, top))
            left += image.width + _GAP
        top += line[0].height + _GAP
    return _png_bytes(sheet)


def _png_bytes(image: Image.Image) -> bytes:
    """Return an image as the content of a PNG file."""
    content = BytesIO()
    image.save(content, format="PNG")
    return content.getvalue()
