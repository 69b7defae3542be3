"""The colours of all pictures, and the colours of weights that are drawn as an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from ism_dask._types import Array

# Colour-blind safe, by Okabe and Ito; classes beyond the colours get the next marker.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
# Classes with the next marker begin with these: ten classes have ten colours.
_FURTHER = ("#8A6FC9", "#A65F3E", "#7D8A3C", "#B03A5B")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
BLUE, RED, GREY = COLOURS[0], COLOURS[4], "#999999"
# Red and blue with white at 0; and a colour map whose lightness rises, which is colour-blind safe.
DIVERGING, SEQUENTIAL = "RdBu", "viridis"


def class_style(index: int) -> dict[str, Any]:
    """Return the colour and the marker of class number `index`, as arguments of matplotlib."""
    colours = COLOURS + _FURTHER
    marker = MARKERS[index // len(COLOURS) % len(MARKERS)]
    return {"color": colours[index % len(colours)], "marker": marker}


def largest_weight(weights: Array) -> float:
    """Return the largest absolute weight, which has the strongest colour; 1 if all are 0."""
    return float(np.abs(weights).max()) or 1.0


def weight_colours(weights: Array, largest: float) -> Array:
    """Return the colours (..., 3) of weights (...), as `draw_weight_image` draws them.

    They are red, green and blue as uint8. `largest` is the absolute weight of the strongest colour.
    """
    from matplotlib import colormaps  # noqa: PLC0415 - slow to import, and few runs have images

    shares = 0.5 + 0.5 * np.asarray(weights, dtype=float) / largest
    return np.asarray(colormaps[DIVERGING](shares, bytes=True)[..., :3])
