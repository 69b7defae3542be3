"""The figures of a run, each a picture with a title and a caption."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flows import text
from flows.interface.run_pictures import component_image
from flows.reports.picture_elements import Picture, Pixels, draw_axes
from flows.reports.view import View, are_classes
from flows.results.runs import Certainty, DimensionTried
from ism_dask.pictures import drawing
from ism_dask.pictures.colours import largest_weight

if TYPE_CHECKING:
    from ism_dask.pictures.drawing import Draw

# How many new features are shown, and how many weights of each.
COMPONENTS, WEIGHTS = 12, 12
# Along how many new features the label is drawn.
RESPONSES = 3
# Heights in points of a scatter plot, of a bar, of the axis below the bars, and of a response.
_SCATTER_HEIGHT, _BAR_HEIGHT, _AXIS_HEIGHT = 420.0, 22.0, 50.0
_RESPONSE_HEIGHT = 300.0
# What the stopping rules bound, in words.
_MEASURES = {
    "residual": "residual of W",
    "change": "relative change of the eigenvalues",
    "movement": "larger of the change of the embedding's eigenvalues and the turn of W",
}
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
    drawn = draw_axes(
        f"Accuracy of {text.count_noun(len(results), 'fold')}, {mean:.4f} in the mean",
        partial(
            drawing.draw_accuracy,
            folds=[int(each["fold"]) for each in results],
            values=[float(each["accuracy"]) for each in results],
            mean=float(mean),
        ),
    )
    return Figure("Accuracy", "The share of held-out rows classified correctly, by fold.", drawn)


def dimensions(tried: Sequence[DimensionTried], chosen: int) -> list[Figure]:
    """Draw what is explained, and what each new feature gains, by their number."""
    numbers = [each.q for each in tried]
    which = f"with {numbers[0]} to {numbers[-1]} new features; {chosen} was chosen"
    shares = draw_axes(
        f"Share of the label that is explained {which}",
        partial(
            drawing.draw_dimension_shares,
            numbers=numbers,
            explained=[each.explained for each in tried],
            chosen=chosen,
        ),
    )
    gains = draw_axes(
        f"Log evidence per row that the last feature gains {which}",
        partial(
            drawing.draw_dimension_gains,
            numbers=numbers,
            gains=[each.gain for each in tried],
            needed=[each.needed_gain for each in tried],
            chosen=chosen,
        ),
    )
    about = "The share of the label that is explained, each row predicted by the others."
    caption = "What each feature gains, and from which gain on it is taken."
    return [Figure("Explained by q", about, shares), Figure("Gain by q", caption, gains)]


def iteration_figures(view: View) -> list[Figure]:
    """Return the figures of the iterations: the objective, and the residual or change."""
    return [figure for draw in _COURSE if (figure := draw(view))]


def result_figures(view: View) -> list[Figure]:
    """Return the figures of the result except its components: spectrum, rows, and responses."""
    return [figure for draw in _FINDINGS if (figure := draw(view))] + _responses(view)


def components(view: View) -> Iterator[Figure]:
    """Yield the first components: as images if rows are images, else as ranked weights."""
    if view.model is None:
        return
    draw = _bars if view.model.image_shape is None else _image
    names = view.model.get_feature_names_out()
    for number, value in enumerate(view.model.eigenvalues[:COMPONENTS]):
        largest = ", ".join(f"{name} {weight:+.2f}" for name, weight in view.ranked(number, 5))
        alt = f"Weights of {names[number]}; the largest: {largest}"
        yield Figure(names[number], f"Eigenvalue {text.number(value)}.", draw(alt, view, number))


def share_intervals(certainty: Certainty) -> Figure:
    """Draw the largest shares of columns with their intervals."""
    shares = certainty.shares
    drawn = draw_axes(
        "Shares of the columns in the space of the new features, with 90% intervals",
        partial(
            drawing.draw_shares,
            names=[each.feature for each in shares],
            intervals=np.array([(each.share, each.low, each.high) for each in shares]).T,
            clear=min(certainty.separated, len(shares)),
        ),
        height=_BAR_HEIGHT * len(shares) + _AXIS_HEIGHT,
    )
    caption = "Dots are the shares in W, lines their 90% intervals over refits to resampled rows."
    return Figure("Shares of the columns", caption, drawn)


def _bars(alt: str, view: View, number: int) -> Picture:
    names, weights = zip(*view.ranked(number, WEIGHTS), strict=True)
    return draw_axes(
        alt,
        partial(drawing.draw_weights, names=names, weights=np.array(weights)),
        height=_BAR_HEIGHT * len(weights) + _AXIS_HEIGHT,
    )


def _image(alt: str, view: View, number: int) -> Picture:
    assert view.model is not None
    assert view.model.image_shape is not None
    weights = view.model.components
    image = component_image(weights[number], view.model.image_shape, largest_weight(weights))
    return Pixels(alt, image)


def stored_pictures(view: View) -> list[Figure]:
    """Return the figures of the pictures stored with the model, which needed all rows."""
    stored = (
        (*_STORED[name], png) for name, png in view.stored_pictures().items() if name in _STORED
    )
    return [Figure(title, caption, Pixels(caption, png)) for title, caption, png in stored]


def _objective(view: View) -> Figure | None:
    """Draw J by iteration or, for a clustering, by round."""
    rounds = view.metrics.get("rounds")
    steps, unit = (rounds, "round") if rounds else (view.history, "iteration")
    values = [(k, float(each["objective"])) for k, each in enumerate(steps, start=1)]
    values = [(k, value) for k, value in values if math.isfinite(value)]
    if not values:
        return None
    start = f"from {text.number(values[0][1])} to " if len(values) > 1 else ""
    summary = f"{start}{text.number(values[-1][1])} in {text.count_noun(len(values), unit)}"
    numbers, heights = zip(*values, strict=True)
    drawn = draw_axes(
        f"Objective by {unit}: {summary}",
        partial(drawing.draw_objective, numbers=numbers, values=heights, unit=unit),
    )
    best = (
        "Each round has another Gamma, so that J may fall. Under its own embedding, the last W has "
        f"J = {text.number(float(view.metrics['objective']))}."
        if rounds
        else "The best W is saved."
    )
    return Figure("Convergence", f"The objective by {unit}, {summary}. {best}", drawn)


def _round_changes(view: View) -> Figure | None:
    """Draw by round of a clustering how much W or the embedding moved."""
    rounds, limit = view.metrics.get("rounds"), view.run.config.get("outer_tol")
    if not rounds or limit is None:
        return None
    values = [(k, max(each["change"], each["turn"])) for k, each in enumerate(rounds, start=1)]
    drawn = _measure(values, "round", "movement", float(limit))
    caption = f"The {_MEASURES['movement']}, by round."
    return None if drawn is None else Figure("Settling of the rounds", caption, drawn)


def _changes(view: View) -> Figure | None:
    """Draw by iteration what the tolerance bounds, the residual or the change, and its limit."""
    measure, limit = str(view.metrics["measure"]), float(view.metrics["tolerance"])
    values = [(int(each["iteration"]), float(each.get(measure, 0.0))) for each in view.history]
    drawn = _measure(values, "iteration", measure, limit)
    cluster = view.run.kind == "cluster"
    which = " of the last round, under the embedding before" if cluster else ""
    if drawn is None:
        return None
    last = f"the last is {values[-1][1]:.2g}, the tolerance {limit:.2g}"
    caption = f"The {_MEASURES[measure]}, by iteration{which}: {last}."
    residual = float(view.metrics["residual"])
    if measure == "residual" and (residual > limit) != (values[-1][1] > limit):
        caption += f" Under the true kernel, which decides, the residual is {residual:.2g}."
    return Figure("Settling", caption, drawn)


def _measure(
    values: Sequence[tuple[int, float]], unit: str, measure: str, limit: float
) -> Picture | None:
    """Draw a measure of convergence by iteration or round, unless it has one value or none."""
    points = [(k, value) for k, value in values if 0 < value < math.inf]
    if len(points) < 2:
        return None
    numbers, heights = zip(*points, strict=True)
    name = _MEASURES[measure]
    return draw_axes(
        f"{name[0].upper()}{name[1:]} by {unit}: the last is {heights[-1]:.2g}",
        partial(
            drawing.draw_measure,
            numbers=numbers,
            values=heights,
            unit=unit,
            measure=measure,
            limit=limit,
        ),
    )


def _spectrum(view: View) -> Figure | None:
    """Draw the eigenvalues of W and the eigengap after them."""
    if view.model is None:
        return None
    values, gap = view.model.eigenvalues, view.metrics.get("eigengap", math.nan)
    alt = (
        f"The {len(values)} eigenvalues that were chosen, from {text.number(values[0])} to "
        f"{text.number(values[-1])}"
    )
    drawn = draw_axes(
        f"{alt}; eigengap {text.number(gap)}",
        partial(drawing.draw_spectrum, values=values, next_value=view.next_eigenvalue),
    )
    caption = (
        "The eigenvalues that were chosen and, hollow, the next one: each is half the derivative "
        "of J by the logarithm of the scale of its feature. The wider the gap between them, the "
        "better these features are separated from others."
    )
    return Figure("Spectrum", caption, drawn)


def _scatter(view: View) -> Figure | None:
    """Draw rows by the first two new features, or by the only one and the label or cluster."""
    sample = view.model.sample if view.model else None
    if view.model is None or sample is None or len(sample.points) == 0:
        return None
    points, new_names = sample.points[:, :2], view.model.get_feature_names_out()
    label_name = "cluster" if view.run.kind == "cluster" else "label"
    if points.shape[1] < 2:
        points = np.column_stack([points, sample.values])
    names = (new_names[0], new_names[1] if len(new_names) > 1 else label_name)
    count, n = len(points), int(view.metrics["rows"])
    rows = f"All {n:,} rows" if count == n else f"{count:,} of {n:,} rows, drawn at random,"
    description = f"{rows} by {names[0]} and {names[1]}"
    coloured = _by_class if are_classes(sample.values) else _by_number
    colours, draw = coloured(view, points, sample.values, names)
    drawn = draw_axes(f"{description}, in {colours}", draw, height=_SCATTER_HEIGHT)
    return Figure("Rows", f"{description}, in the colour of their {label_name}.", drawn)


def _responses(view: View) -> list[Figure]:
    """Draw the label along each of the first new features of a fit."""
    sample = view.model.sample if view.model else None
    if view.model is None or sample is None or view.run.kind != "fit" or not len(sample.points):
        return []
    values, classes, what = sample.values, None, "mean of the label"
    if are_classes(values):
        present, values = np.unique(values, return_inverse=True)
        classes, what = [view.group_name(int(each)) for each in present], "share of each class"
    caption = f"The {what} along this feature alone, whatever the others are, with a 90% band."
    figures = []
    names = view.model.get_feature_names_out()[:RESPONSES]
    for name, z in zip(names, sample.points.T.astype(float), strict=False):
        arguments = {"z": z, "values": values, "classes": classes, "axis_names": (name, "label")}
        draw = partial(drawing.draw_response, **arguments)
        drawn = draw_axes(f"The {what} along {name}", draw, height=_RESPONSE_HEIGHT)
        figures.append(Figure(f"Label along {name}", caption, drawn))
    return figures


def _by_class(
    view: View, points: NDArray[Any], values: NDArray[Any], axis_names: tuple[str, str]
) -> tuple[str, Draw]:
    """Return the colours of the rows in words, and what draws them."""
    present, codes = np.unique(values, return_inverse=True)
    names = [view.group_name(int(value)) for value in present]
    draw = partial(
        drawing.draw_classes, points=points, codes=codes, names=names, axis_names=axis_names
    )
    return text.count_noun(len(present), "colour"), draw


def _by_number(
    _view: View, points: NDArray[Any], values: NDArray[Any], axis_names: tuple[str, str]
) -> tuple[str, Draw]:
    """Return the colours of the rows in words, and what draws them."""
    draw = partial(
        drawing.draw_numbers, points=points, values=values, label="label", axis_names=axis_names
    )
    return f"colours from {values.min():.4g} to {values.max():.4g}", draw


_COURSE: tuple[Callable[[View], Figure | None], ...] = (_objective, _round_changes, _changes)
_FINDINGS: tuple[Callable[[View], Figure | None], ...] = (_spectrum, _scatter)
