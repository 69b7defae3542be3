"""The figures of a run, each a picture with a title and a caption."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows import text
from flows.interface.run_pictures import component_image
from flows.reports import plots
from flows.reports.svg import Picture, Pixels
from flows.reports.view import View, are_classes
from ism_dask.records.stopping_rule import RESIDUAL

# How many new features are shown, and how many weights of each.
COMPONENTS, WEIGHTS = 12, 12
# In how many colours numeric labels are shown.
_SHADES = 8
# Title and caption of the pictures that are stored with a model.
_STORED = {
    "clusters": ("Clusters", "The mean image of each cluster that has rows, in their order."),
    "segments": ("Segments", "Each pixel in the mean colour of its cluster."),
}


@dataclass(frozen=True)
class Figure:
    """A picture with its title and its caption."""

    title: str
    caption: str
    picture: Picture


def accuracy(view: View) -> Figure:
    """Draw the accuracy of each fold of a cross-validation."""
    results, mean = view.metrics["results"], view.metrics["mean"]["accuracy"]
    drawn = plots.line_plot(
        f"Accuracy of {text.count_noun(len(results), 'fold')}, {mean:.4f} in the mean",
        [(int(each["fold"]), float(each["accuracy"])) for each in results],
        ("fold", "accuracy"),
        level=(float(mean), f"mean {mean:.4f}"),
        joined=False,
    )
    return Figure("Accuracy", "The share of held-out rows classified correctly, by fold.", drawn)


def iteration_figures(view: View) -> list[Figure]:
    """Return the figures of the iterations: the objective, and the residual or change."""
    return [figure for draw in _COURSE if (figure := draw(view))]


def result_figures(view: View) -> list[Figure]:
    """Return the figures of the result except its components: the spectrum and the rows."""
    return [figure for draw in _FINDINGS if (figure := draw(view))]


def components(view: View) -> Iterator[Figure]:
    """Yield the first components: as images if rows are images, else as ranked weights."""
    if view.model is None:
        return
    for number, value in enumerate(view.model.eigenvalues[:COMPONENTS]):
        title = f"feature_{number}"
        yield Figure(title, f"Eigenvalue {value:.4g}.", _component(view, number))


def _component(view: View, number: int) -> Picture:
    model = view.model
    largest = ", ".join(f"{name} {weight:+.2f}" for name, weight in view.ranked(number, 5))
    alt = f"Weights of feature_{number}; the largest: {largest}"
    if model is not None and model.image_shape is not None:
        return Pixels(alt, component_image(model.components[number], model.image_shape))
    return plots.ranked_bars(alt, view.ranked(number, WEIGHTS))


def stored_pictures(view: View) -> list[Figure]:
    """Return the figures of the pictures stored with the model, which needed all rows."""
    stored = ((*_STORED[name], png) for name, png in view.pictures().items() if name in _STORED)
    return [Figure(title, caption, Pixels(caption, png)) for title, caption, png in stored]


def _objective(view: View) -> Figure | None:
    """Draw J by iteration or, for a clustering, by round."""
    rounds = view.metrics.get("rounds")
    steps, unit = (rounds, "round") if rounds else (view.history, "iteration")
    values = [(k, float(each["objective"])) for k, each in enumerate(steps, start=1)]
    values = [(k, value) for k, value in values if math.isfinite(value)]
    if not values:
        return None
    start = f"from {values[0][1]:.6g} to " if len(values) > 1 else ""
    summary = f"{start}{values[-1][1]:.6g} in {text.count_noun(len(values), unit)}"
    drawn = plots.line_plot(f"Objective by {unit}: {summary}", values, (unit, "objective J"))
    return Figure("Convergence", f"The objective by {unit}, {summary}. The best W is saved.", drawn)


def _changes(view: View) -> Figure | None:
    """Draw by iteration what the stopping rule bounds: the residual or, with `tol`, the change."""
    tol = view.run.config.get("tol")
    measure, measure_title = ("change", "relative change of the eigenvalues")
    level = (tol, f"tolerance {tol:g}") if tol is not None else (RESIDUAL, f"{RESIDUAL:g}")
    if tol is None:
        measure, measure_title = "residual", "residual of W"
    pairs = [(int(each["iteration"]), float(each.get(measure, 0.0))) for each in view.history]
    points = [(k, value) for k, value in pairs if 0 < value < math.inf]
    if len(points) < 2:
        return None
    drawn = plots.line_plot(
        f"{measure_title.capitalize()} by iteration: the last is {points[-1][1]:.2g}",
        points,
        ("iteration", measure_title),
        level=level,
        logarithmic=True,
    )
    which = " of the round that was saved" if view.run.kind == "cluster" else ""
    return Figure("Settling", f"The {measure_title}, by iteration{which}.", drawn)


def _spectrum(view: View) -> Figure | None:
    """Draw the eigenvalues of W and the eigengap after them."""
    if view.model is None:
        return None
    values, gap = view.model.eigenvalues.tolist(), view.metrics.get("eigengap", math.nan)
    alt = (
        f"The {len(values)} eigenvalues that were chosen, from {values[0]:.4g} to {values[-1]:.4g}"
    )
    drawn = plots.spectrum(f"{alt}; eigengap {gap:.3g}", values, view.following)
    caption = (
        "The eigenvalues that were chosen and, pale, the next one: each is half the derivative of "
        "J by the logarithm of the scale of its feature. The wider the gap between them, the "
        "better these features are separated from others."
    )
    return Figure("Spectrum", caption, drawn)


def _scatter(view: View) -> Figure | None:
    """Draw rows by the first two new features, or by the only one and the label or cluster."""
    sample = view.model.sample if view.model else None
    if sample is None or len(sample.points) == 0:
        return None
    points, names = sample.points[:, :2], ("feature_0", "feature_1")
    if points.shape[1] < 2:
        label = "cluster" if view.run.kind == "cluster" else "label"
        points, names = np.column_stack([points, sample.values]), ("feature_0", label)
    groups = (_by_class if are_classes(sample.values) else _by_number)(view, points, sample.values)
    count, n = len(points), int(view.metrics["rows"])
    rows = f"All {n:,} rows" if count == n else f"{count:,} of {n:,} rows, drawn at random,"
    description = f"{rows} by {names[0]} and {names[1]}"
    label_name = "cluster" if view.run.kind == "cluster" else "label"
    drawn = plots.scatter(
        f"{description}, in {text.count_noun(len(groups), 'colour')}", groups, names
    )
    return Figure("Rows", f"{description}, in the colour of their {label_name}.", drawn)


def _by_class(view: View, points: NDArray[Any], values: NDArray[Any]) -> list[plots.Group]:
    return [
        plots.Group(
            view.group_name(int(value)), plots.colour(index), _pairs(points[values == value])
        )
        for index, value in enumerate(np.unique(values))
    ]


def _by_number(_view: View, points: NDArray[Any], values: NDArray[Any]) -> list[plots.Group]:
    """Return groups of rows between quantiles of their numeric labels, about equal in size."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _SHADES + 1)))
    numbers = np.searchsorted(edges[1:-1], values, side="right")
    present = np.unique(numbers)
    return [
        plots.Group(
            f"{values[numbers == number].min():.3g} to {values[numbers == number].max():.3g}",
            plots.colour_of_share(rank / max(len(present) - 1, 1)),
            _pairs(points[numbers == number]),
        )
        for rank, number in enumerate(present)
    ]


def _pairs(points: NDArray[Any]) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points]


_COURSE: tuple[Callable[[View], Figure | None], ...] = (_objective, _changes)
_FINDINGS: tuple[Callable[[View], Figure | None], ...] = (_spectrum, _scatter)
