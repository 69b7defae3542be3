"""Pictures of a run that clusters: what components and clusters look like, where rows lie."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ism_dask.estimators.clustering import ClusteringIKDR
from storage import Dataset, picture_pixels

Array = NDArray[Any]

# Rows that a scatter shows, and that means are read in at a time.
_DOTS, _ROWS = 5000, 4096
# Pixels: of a plot's sides and margin, of a dot, between images of a sheet, the least image height.
_SIDE, _MARGIN, _DOT, _GAP, _LEAST = 480, 40, 2, 4, 96
_INK, _PAPER = (40, 40, 40), (255, 255, 255)


def drawn(data: Dataset, model: ClusteringIKDR) -> dict[str, bytes]:
    """Draw what can be drawn of a run; return the content of a PNG file for each picture."""
    made = {name: draw(data, model) for name, draw in _PICTURES.items()}
    return {name: _png(image) for name, image in made.items() if image is not None}


def components(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw each component of images as an image: grey is 0, white the largest weight."""
    if data.image_shape is None:
        return None
    weights = model.components_ / np.abs(model.components_).max(axis=1, keepdims=True)
    return _sheet([_grey(127.5 + 127.5 * row, data.image_shape) for row in weights])


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


def scatter(data: Dataset, model: ClusteringIKDR) -> Image.Image | None:
    """Draw rows in the two leading new features, in the colour of their cluster."""
    if len(model.components_) < 2:
        return None
    n = len(data.X)
    chosen = np.sort(np.random.default_rng(0).choice(n, min(n, _DOTS), replace=False))
    points = np.concatenate(
        [
            model.transform(data.X.read(start, stop)[chosen[first:last] - start])[:, :2]
            for start, stop, first, last in _stretches(chosen, n)
        ]
    )
    image, draw, place = _plot(points)
    for (x, y), cluster in zip(place(points), model.labels_[chosen], strict=True):
        box = (x - _DOT, y - _DOT, x + _DOT, y + _DOT)
        draw.ellipse(box, fill=_colour(int(cluster), model.n_clusters))
    draw.text((_SIDE // 2, _SIDE - _MARGIN // 2), "feature_0", fill=_INK)
    draw.text((4, 4), "feature_1", fill=_INK)
    return image


def objective(_data: Dataset, model: ClusteringIKDR) -> Image.Image:
    """Draw J by round."""
    points = np.array([[each.number, each.objective] for each in model.rounds_], dtype=float)
    image, draw, place = _plot(points)
    placed = [tuple(point) for point in place(points)]
    draw.line(placed, fill=_INK, width=2)
    for (x, y), (number, _) in zip(placed, points, strict=True):
        draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=_INK)
        draw.text((x, _SIDE - _MARGIN // 2), f"{number:.0f}", fill=_INK)
    for index in {0, len(points) - 1}:
        x, y = placed[index]
        draw.text((x, y), f"{points[index, 1]:.5g}", fill=_INK, anchor="lb" if not index else "rt")
    draw.text((4, 4), "objective by round", fill=_INK)
    return image


_PICTURES: dict[str, Callable[[Dataset, ClusteringIKDR], Image.Image | None]] = {
    "components": components,
    "clusters": means,
    "segments": segments,
    "scatter": scatter,
    "objective": objective,
}


def _png(image: Image.Image) -> bytes:
    """Return the content of a PNG file."""
    content = BytesIO()
    image.save(content, format="PNG")
    return content.getvalue()


def _stretches(chosen: Array, n: int) -> list[tuple[int, int, int, int]]:
    """Return rows `start:stop` to read, and which of `chosen`, rising, lie there."""
    starts = range(0, n, _ROWS)
    edges = np.searchsorted(chosen, [*starts, n])
    pairs = zip(starts, edges[:-1], edges[1:], strict=True)
    return [(s, min(s + _ROWS, n), int(a), int(b)) for s, a, b in pairs if b > a]


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


def _plot(points: Array) -> tuple[Image.Image, ImageDraw.ImageDraw, Callable[[Array], Array]]:
    """Return an empty plot for points (n, 2), what draws on it, and where points go."""
    low = points.min(axis=0)
    span = np.maximum(points.max(axis=0) - low, 1e-12)

    def place(some: Array) -> Array:
        shares = (some - low) / span
        x = _MARGIN + shares[:, 0] * (_SIDE - 2 * _MARGIN)
        return np.column_stack([x, _SIDE - _MARGIN - shares[:, 1] * (_SIDE - 2 * _MARGIN)])

    image = Image.new("RGB", (_SIDE, _SIDE), _PAPER)
    draw = ImageDraw.Draw(image)
    frame = (_MARGIN // 2, _MARGIN // 2, _SIDE - _MARGIN // 2, _SIDE - _MARGIN // 2)
    draw.rectangle(frame, outline=_INK)
    return image, draw, place


def _colour(cluster: int, k: int) -> str:
    """Return a colour for one of k clusters: hues around the circle."""
    return f"hsl({360 * cluster // k}, 75%, {45 + 15 * (cluster % 2)}%)"
