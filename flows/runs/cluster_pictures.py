"""Draw images of a clustering: components, mean images of clusters, and a picture by clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flows.builtin.catalogue import picture_pixels
from flows.reports.pictures import enlarged, png_bytes, weights_image
from ism_dask.pictures.colours import largest_weight
from storage import Dataset

if TYPE_CHECKING:
    from ism_dask.estimators.clustering import ClusteringIKDR

Array = NDArray[Any]

# Number of rows to read at a time for the means.
_BATCH_ROWS = 4096
# Pixels between the images of a sheet.
_GAP = 4


def cluster_pictures(data: Dataset, model: ClusteringIKDR) -> dict[str, bytes]:
    """Draw all pictures that suit the data; return the content of a PNG file for each."""
    images = {name: draw(data, model) for name, draw in _PICTURES.items()}
    return {name: png_bytes(image) for name, image in images.items() if image is not None}


def whole_picture(data: Dataset) -> bytes:
    """Return the picture whose colours are the rows, as a PNG; empty if there is none."""
    pixels = picture_pixels(data.info.name)
    return b"" if pixels is None else png_bytes(Image.fromarray(pixels.astype(np.uint8), "RGB"))


def _component_images(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw the components as images, side by side; None if the rows are no images."""
    if data.image_shape is None:
        return None
    largest = largest_weight(model.components_)
    return _sheet([weights_image(row, data.image_shape, largest) for row in model.components_])


def _cluster_means(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw the mean image of each cluster; None if the rows are no images."""
    if data.image_shape is None:
        return None
    sums = np.zeros((model.n_clusters, data.X.shape[1]))
    for start in range(0, len(data.X), _BATCH_ROWS):
        rows = data.X.read(start, min(start + _BATCH_ROWS, len(data.X))).astype(np.float64)
        # One matrix product: adding row by row takes many times as long.
        sums += np.eye(model.n_clusters)[model.labels_[start : start + len(rows)]].T @ rows
    sizes = np.bincount(model.labels_, minlength=model.n_clusters)
    nonempty = sizes > 0
    averages = sums[nonempty] / sizes[nonempty, None]
    low, high = averages.min(), averages.max()
    grey = (255.0 * (averages - low) / max(high - low, 1e-12)).clip(0, 255).astype(np.uint8)
    return _sheet([enlarged(Image.fromarray(row.reshape(data.image_shape), "L")) for row in grey])


def _segmented_picture(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw the picture whose colours are the rows, each pixel in the mean colour of its cluster.

    Return None if there is no such picture.
    """
    pixels = picture_pixels(data.info.name)
    if pixels is None:
        return None
    colours, inverse = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    if len(colours) != len(model.labels_):
        return None
    counts = np.bincount(inverse.ravel(), minlength=len(colours))
    painted = np.zeros_like(colours)
    for cluster in np.unique(model.labels_):
        members = model.labels_ == cluster
        painted[members] = np.average(colours[members], axis=0, weights=counts[members]).round()
    # The original is not placed beside it: it is too large for the page of a run.
    return Image.fromarray(painted[inverse.ravel()].reshape(pixels.shape).astype(np.uint8), "RGB")


_PICTURES: Mapping[str, Callable[[Dataset, ClusteringIKDR], Image.Image | None]] = {
    "components": _component_images,
    "clusters": _cluster_means,
    "segments": _segmented_picture,
}


def _sheet(images: list[Image.Image]) -> Image.Image:
    """Return images of one size side by side, in rows of five."""
    columns = min(5, len(images))
    width, height = images[0].width + _GAP, images[0].height + _GAP
    rows = -(-len(images) // columns)
    sheet = Image.new(images[0].mode, (columns * width, rows * height), "white")
    for index, image in enumerate(images):
        sheet.paste(image, (index % columns * width, index // columns * height))
    return sheet
