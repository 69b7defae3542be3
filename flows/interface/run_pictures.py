"""Draw images of a run: components, mean images of clusters, and a picture by clusters."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flows.builtin.ingestion import picture_pixels
from ism_dask.pictures.colours import largest_weight, weight_colours
from storage import Dataset

if TYPE_CHECKING:
    from ism_dask.estimators.clustering import ClusteringIKDR

Array = NDArray[Any]

# Number of rows to read at a time for the means.
_BATCH_ROWS = 4096
# Pixels between the images of a sheet, and the smallest height of an image in pixels.
_GAP, _MIN_HEIGHT = 4, 96


def run_pictures(data: Dataset, model: ClusteringIKDR) -> dict[str, bytes]:
    """Draw all pictures that suit the data; return the content of a PNG file for each."""
    images = {name: draw(data, model) for name, draw in _PICTURES.items()}
    return {name: _png(image) for name, image in images.items() if image is not None}


def whole_picture(data: Dataset) -> bytes:
    """Return the picture whose colours are the rows, as a PNG; empty if there is none."""
    pixels = picture_pixels(data.info.name)
    return b"" if pixels is None else _png(Image.fromarray(pixels.astype(np.uint8), "RGB"))


def component_image(weights: Array, shape: tuple[int, ...], largest: float) -> bytes:
    """Draw a component (d,) of images as a PNG: red below 0 and blue above, up to +-`largest`."""
    return _png(_weights_image(weights, shape, largest))


def component_images(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw the components as images, side by side; None if the rows are no images."""
    if data.image_shape is None:
        return None
    largest = largest_weight(model.components_)
    return _sheet([_weights_image(row, data.image_shape, largest) for row in model.components_])


def cluster_means(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
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
    stretched = 255.0 * (averages - low) / max(high - low, 1e-12)
    return _sheet([_grey(row, data.image_shape) for row in stretched])


def segmented_picture(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
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


_PICTURES: dict[str, Callable[[Dataset, ClusteringIKDR], Image.Image | None]] = {
    "components": component_images,
    "clusters": cluster_means,
    "segments": segmented_picture,
}


def _png(image: Image.Image) -> bytes:
    """Return an image as the content of a PNG file."""
    content = BytesIO()
    image.save(content, format="PNG")
    return content.getvalue()


def _weights_image(weights: Array, shape: tuple[int, ...], largest: float) -> Image.Image:
    colours = weight_colours(weights, largest)
    return _enlarged(Image.fromarray(colours.reshape(*shape, 3), "RGB"))


def _grey(values: Array, shape: tuple[int, ...]) -> Image.Image:
    """Return an image of `values` from 0 to 255."""
    pixels = values.reshape(shape).clip(0, 255).astype(np.uint8)
    return _enlarged(Image.fromarray(pixels, "L"))


def _enlarged(image: Image.Image) -> Image.Image:
    """Return an image whose height is at least `_MIN_HEIGHT` pixels."""
    factor = -(-_MIN_HEIGHT // image.height)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _sheet(images: list[Image.Image]) -> Image.Image:
    """Return images of one size side by side, in rows of five."""
    columns = min(5, len(images))
    width, height = images[0].width + _GAP, images[0].height + _GAP
    rows = -(-len(images) // columns)
    sheet = Image.new(images[0].mode, (columns * width, rows * height), "white")
    for index, image in enumerate(images):
        sheet.paste(image, (index % columns * width, index // columns * height))
    return sheet
