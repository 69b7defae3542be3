"""Draw an unfolding: its rows in the picture, and its spectrum."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flows.reports.figures import Figure
from flows.reports.picture_elements import draw_axes
from flows.reports.view import are_classes
from flows.results.unfolding import UnfoldResult
from ism_dask.pictures import drawing
from storage import result_arrays

if TYPE_CHECKING:
    from ism_dask.pictures.drawing import Draw

# Rows of a scatter at most, and its height in points.
_MOST_POINTS, _SCATTER_HEIGHT = 2000, 420.0
_AXIS_NAMES = ("coloredmvu0", "coloredmvu1")


def rows_figure(result: UnfoldResult) -> Figure:
    """Draw rows by the first two coordinates, in the colours of their label."""
    arrays = result_arrays(result.run, "coordinates", "values")
    Z, values = arrays["coordinates"], arrays.get("values")
    chosen = np.arange(len(Z))
    if len(Z) > _MOST_POINTS:
        chosen = np.sort(np.random.default_rng(0).choice(len(Z), _MOST_POINTS, replace=False))
    plane = Z[chosen, :2] if Z.shape[1] > 1 else np.column_stack([Z[chosen], np.zeros(len(chosen))])
    shown = f"{len(chosen):,} of {result.rows:,} rows by their coordinates"
    caption = f"{shown}, in the colours of {result.label}." if result.label else f"{shown}."
    draw = _scatter(result, plane, None if values is None else values[chosen])
    return Figure("Rows", caption, draw_axes(shown, draw, height=_SCATTER_HEIGHT))


def spectrum_figure(result: UnfoldResult) -> Figure:
    """Draw the eigenvalues of K."""
    values, q = np.array(result.eigenvalues), result.n_components
    alt = f"{len(values)} eigenvalues; the first {q} have {100 * result.share_of_axes:.1f}% of all"
    drawn = draw_axes(alt, partial(drawing.draw_variances, values=values, q=q))
    caption = (
        "The eigenvalues of K: the variance along each axis of the unfolding, times the rows. The "
        "axes of the picture are filled; what the others hold, the picture does not show."
    )
    return Figure("Spectrum", caption, drawn)


def _scatter(result: UnfoldResult, points: NDArray[Any], values: NDArray[Any] | None) -> Draw:
    """Return what draws rows (n, 2) by their values (n,), if they have some."""
    if values is None:
        return partial(_draw_points, points=points)
    if not are_classes(values):
        return partial(
            drawing.draw_numbers,
            points=points,
            values=values,
            label=result.label,
            axis_names=_AXIS_NAMES,
        )
    present, codes = np.unique(values, return_inverse=True)
    named = result.class_names
    names = [f"class {code}" if named is None else named[code] for code in present]
    return partial(
        drawing.draw_classes, points=points, codes=codes, names=names, axis_names=_AXIS_NAMES
    )


def _draw_points(ax: Any, points: NDArray[Any]) -> None:
    drawing.draw_points(ax, points, _AXIS_NAMES)
