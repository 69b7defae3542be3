"""Images of a run: what components and clusters of images look like."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from storage import Dataset, picture_pixels

if TYPE_CHECKING:
    from ism_dask.estimators.clustering import ClusteringIKDR

Array = NDArray[Any]

# Rows that means are read in at a time.
_ROWS = 4096
# Pixels between images of a sheet, and of the least image height.
_GAP, _LEAST = 4, 96


def run_pictures(data: Dataset, model: ClusteringIKDR) -> dict[str, bytes]:
    """Draw what can be drawn of a run; return the content of a PNG file for each picture."""
    made = {name: draw(data, model) for name, draw in _PICTURES.items()}
    return {name: _png(image) for name, image in made.items() if image is not None}


def whole_picture(data: Dataset) -> bytes:
    """Return the picture whose colours the rows are as a PNG; nothing where there is none."""
    pixels = picture_pixels(data.info.name)
    return b"" if pixels is None else _png(Image.fromarray(pixels.astype(np.uint8), "RGB"))


def component(weights: Array, shape: tuple[int, ...]) -> bytes:
    """Draw a component (d,) of images as a PNG: grey is 0, white or black the largest weight."""
    return _png(_weights(weights, shape))


def components(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw each component of images as an image, side by side."""
    if data.image_shape is None:
        return None
    return _sheet([_weights(row, data.image_shape) for row in model.components_])


def means(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw the mean image of each cluster."""
    if data.image_shape is None:
        return None
    sums = np.zeros((model.n_clusters, data.X.shape[1]))
    for start in range(0, len(data.X), _ROWS):
        rows = data.X.read(start, min(start + _ROWS, len(data.X))).astype(np.float64)
        # A product of matrices: adding row by row takes many times as long.
        sums += np.eye(model.n_clusters)[model.labels_[start : start + len(rows)]].T @ rows
    sizes = np.bincount(model.labels_, minlength=model.n_clusters)
    full = sizes > 0
    averages = sums[full] / sizes[full, None]
    low, high = averages.min(), averages.max()
    stretched = 255.0 * (averages - low) / max(high - low, 1e-12)
    return _sheet([_grey(row, data.image_shape) for row in stretched])


def segments(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw the picture whose colours the rows are, each in the mean colour of its cluster."""
    pixels = picture_pixels(data.info.name)
    if pixels is None:
        return None
    colours, where = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    if len(colours) != len(model.labels_):
        return None
    shares = np.bincount(where.ravel(), minlength=len(colours))
    painted = np.zeros_like(colours)
    for cluster in np.unique(model.labels_):
        own = model.labels_ == cluster
        painted[own] = np.average(colours[own], axis=0, weights=shares[own]).round()
    # Without the picture itself beside it, which is too large for the page of a run.
    return Image.fromarray(painted[where.ravel()].reshape(pixels.shape).astype(np.uint8), "RGB")


_PICTURES: dict[str, Callable[[Dataset, ClusteringIKDR], Image.Image | None]] = {
    "components": components,
    "clusters": means,
    "segments": segments,
}


def _png(image: Image.Image) -> bytes:
    """Return the content of a PNG file."""
    content = BytesIO()
    image.save(content, format="PNG")
    return content.getvalue()


def _weights(weights: Array, shape: tuple[int, ...]) -> Image.Image:
    return _grey(127.5 + 127.5 * weights / np.abs(weights).max(), shape)


def _grey(values: Array, shape: tuple[int, ...]) -> Image.Image:
    """Return an image of `values` from 0 to 255, large enough to be looked at."""
    image = Image.fromarray(values.reshape(shape).clip(0, 255).astype(np.uint8), "L")
    times = -(-_LEAST // image.height)
    return image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)


def _sheet(images: list[Image.Image]) -> Image.Image:
    """Return images of one size side by side, in rows of five."""
    columns = min(5, len(images))
    width, height = images[0].width + _GAP, images[0].height + _GAP
    sheet = Image.new("L", (columns * width, -(-len(images) // columns) * height), 255)
    for index, image in enumerate(images):
        sheet.paste(image, (index % columns * width, index // columns * height))
    return sheet
