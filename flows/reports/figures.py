"""The figures of a run, each a picture with a title and a caption."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from flows.reports.blocks import say
from flows.reports.pictures import (
    Figure,
    coded,
    drawn,
    drawn_rows,
    height_of_rows,
    png_bytes,
    weights_image,
)
from flows.reports.view import largest
from flows.results.runs import ClusterResult, FitResult
from flows.text import count_noun, new_feature, number
from ism_dask.pictures import drawing
from storage import Model

# How many new features are shown, how many weights of each, and along how many the label is drawn;
# and the most rows in a picture.
COMPONENTS, WEIGHTS, RESPONSES, MOST_ROWS = 12, 12, 3, 1000


def components(model: Model) -> Iterator[Figure]:
    """Yield the first components: as images if rows are images, else as ranked weights."""
    for k, value in enumerate(model.eigenvalues[:COMPONENTS]):
        ranked = largest(model, model.components[k], WEIGHTS)
        first = ", ".join(f"{name} {weight:+.2f}" for name, weight in ranked[:3])
        title, caption = new_feature(k), f"Eigenvalue {number(value)}; {first}."
        if model.image_shape is not None:
            yield Figure(title, caption, partial(_component_png, model, k))
        else:
            names, values = zip(*ranked, strict=True)
            bars = {"names": names, "weights": np.array(values)}
            height = height_of_rows(len(names))
            yield drawn(title, caption, drawing.draw_weights, height=height, **bars)


def _component_png(model: Model, k: int) -> bytes:
    strongest = drawing.largest_weight(model.components)
    return png_bytes(weights_image(model.components[k], model.image_shape or (), strongest))


def course(result: FitResult | ClusterResult, model: Model | None) -> Iterator[Figure]:
    """Yield the figures of the iterations or rounds: the objective, and the residual or change."""
    if model is None:
        return
    measure, tolerance = result.measure, result.tolerance
    values = [float(each.get(measure, 0.0)) for each in model.history]
    which = say("figure.of_last_round") if isinstance(result, ClusterResult) else ""
    if isinstance(result, ClusterResult) and result.rounds:
        yield from _rounds(result)
    else:
        objectives = [float(each["objective"]) for each in model.history]
        yield from _objective(objectives, "iteration", "The best W is saved.")
    if not values:
        return
    last = values[-1]
    shown = {"measure": say(f"measure.{measure}"), "which": which}
    about = say("figure.settling", last=last, tolerance=tolerance, **shown)
    if measure == "residual" and (result.residual > tolerance) != (last > tolerance):
        about += say("figure.true_residual", residual=result.residual)
    shown = {"unit": "iteration", "measure": measure}
    yield from _measure("Settling", about, values, **shown, limit=tolerance)


def _rounds(result: ClusterResult) -> Iterator[Figure]:
    note = say("figure.rounds", J=number(result.objective))
    yield from _objective([each.objective for each in result.rounds], "round", note)
    limit = result.settings.get("outer_tol")
    if limit is not None:
        moves = [max(each.change, each.turn) for each in result.rounds]
        about = f"The {say('measure.movement')}, by round."
        shown = {"unit": "round", "measure": "movement"}
        yield from _measure("Settling of the rounds", about, moves, **shown, limit=limit)


def _objective(values: Sequence[float], unit: str, note: str) -> Iterator[Figure]:
    """Draw J by iteration or, for a clustering, by round."""
    points = {k: value for k, value in enumerate(values, start=1) if math.isfinite(value)}
    if not points:
        return
    heights = list(points.values())
    start = f"from {number(heights[0])} to " if len(points) > 1 else ""
    about = f"The objective by {unit}, {start}{number(heights[-1])} in "
    yield drawn(
        "Convergence",
        f"{about}{count_noun(len(points), unit)}. {note}",
        drawing.draw_objective,
        numbers=list(points),
        values=heights,
        unit=unit,
    )


def _measure(
    title: str, caption: str, values: Sequence[float], *, unit: str, measure: str, limit: float
) -> Iterator[Figure]:
    """Draw a measure of convergence by iteration or round, unless it has one value or none."""
    points = {k: value for k, value in enumerate(values, start=1) if 0 < value < math.inf}
    if len(points) > 1:
        yield drawn(
            title,
            caption,
            drawing.draw_measure,
            numbers=list(points),
            values=list(points.values()),
            unit=unit,
            measure=measure,
            limit=float(limit),
        )


def _spectrum(result: FitResult | ClusterResult, model: Model) -> Iterator[Figure]:
    """Draw the eigenvalues of a fit by dependence, with the next one."""
    values, gap = model.eigenvalues, result.eigengap
    next_value = float(values[-1] - gap) if math.isfinite(gap) else None
    draw = drawing.draw_spectrum
    yield drawn("Spectrum", say("figure.spectrum"), draw, values=values, next_value=next_value)


def _by_features(result: FitResult | ClusterResult, model: Model) -> Iterator[Figure]:
    """Draw what 1, 2, ... new features explain if a fit by prediction tried these, else each."""
    if result.dimensions:
        yield drawn(
            "Explained by 1, 2, ... new features",
            say("chosen.explained"),
            draw_by_number,
            numbers=[each.q for each in result.dimensions],
            lines={"explained": [each.explained for each in result.dimensions]},
            unit="number of new features",
            quantity="share of the label",
            chosen=len(result.eigenvalues),
        )
    elif result.contributions:
        alone, lost = (
            [getattr(each, name) * result.objective for each in result.contributions]
            for name in ("alone", "lost")
        )
        yield drawn(
            "J of each new feature",
            say("figure.contributions", J=number(result.objective)),
            draw_by_number,
            numbers=range(1, model.n_components + 1),
            lines={"J of it alone": alone, "what J loses without it": lost},
            unit="new feature",
            quantity="J",
        )


def draw_by_number(
    ax: Any,
    numbers: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    *,
    unit: str,
    quantity: str,
    chosen: int | None = None,
) -> drawing.Entries | None:
    """Draw one quantity or two by a whole number, and which number was chosen."""
    styles = ({"color": drawing.BLUE, "marker": "o"}, {"color": drawing.RED, "marker": "s"})
    for (name, values), style in zip(lines.items(), styles, strict=False):
        ax.plot(numbers, values, label=name, ls="-" if style is styles[0] else "--", **style)
    if chosen is not None:
        ax.axvline(chosen, color=drawing.GREY, ls=":")
        unit = f"{unit} (dotted: {chosen}, chosen)"
    drawing.name_whole_numbers(ax, unit, quantity, numbers)
    return drawing.labelled(ax) if len(lines) > 1 else None


def findings(result: FitResult | ClusterResult, model: Model | None) -> Iterator[Figure]:
    """Yield the figures of the result except its components.

    They show the worth of each feature, the rows, and the label along single features.
    """
    if model is None:
        return
    yield from _by_features(result, model) if result.predicts else _spectrum(result, model)
    sample = model.sample
    if sample is None or len(sample.points) == 0:
        return
    is_clustering = isinstance(result, ClusterResult)
    label, which = ("cluster", "cluster") if is_clustering else ("label", "class")
    step = -(-len(sample.points) // MOST_ROWS)
    features, values = sample.points[::step].astype(float), sample.values[::step]
    points = features[:, :2]
    if points.shape[1] < 2:
        points = np.column_stack([points, values])
    values, classes = coded(values, model.class_names, which)
    names = (new_feature(0), new_feature(1) if model.n_components > 1 else label)
    count = len(points)
    rows = f"All {count:,} rows" if count == result.rows else f"{count:,} of {result.rows:,} rows"
    yield drawn_rows(
        "Rows",
        say("figure.rows", count=rows, first=names[0], second=names[1], label=label),
        points,
        values,
        classes,
        label="label",
        axis_names=names,
    )
    if is_clustering:
        return
    what = "mean of the label" if classes is None else "share of each class"
    for k, z in enumerate(features.T[:RESPONSES]):
        yield drawn(
            f"Label along {new_feature(k)}",
            say("figure.response", what=what),
            drawing.draw_response,
            height=300.0,
            z=z,
            values=values,
            classes=classes,
            axis_names=(new_feature(k), "label"),
        )
