"""The figures of a run, each a picture with a title and a caption."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from flows.reports.blocks import say
from flows.reports.pictures import Figure, draw_lines, drawn, height_of_rows, image_of_weights
from flows.results.runs import ClusterResult, FitResult, largest
from flows.text import count_noun, new_feature, number
from ism_dask.pictures import drawing
from storage import Model

# How many new features are shown, how many weights of each, and along how many the label is drawn;
# and the most rows in a picture.
COMPONENTS, WEIGHTS, RESPONSES, MOST_ROWS = 12, 12, 3, 1000


def components(model: Model) -> Iterator[Figure]:
    """Yield the first components: as images if rows are images, else as ranked weights."""
    strongest = drawing.largest_weight(model.components)
    for k, value in enumerate(model.eigenvalues[:COMPONENTS]):
        weights = model.components[k]
        ranked = largest(model, weights, WEIGHTS)
        first = ", ".join(f"{name} {weight:+.2f}" for name, weight in ranked[:3])
        title, caption = new_feature(k), f"Eigenvalue {number(value)}; {first}."
        if model.image_shape is not None:
            make = partial(image_of_weights, weights, model.image_shape, strongest)
            yield Figure(title, caption, make)
        else:
            names, values = zip(*ranked, strict=True)
            bars: dict[str, Any] = {"names": names, "weights": np.array(values)}
            height = height_of_rows(len(names))
            yield drawn(title, caption, drawing.draw_weights, height=height, **bars)


def course(result: FitResult | ClusterResult, model: Model | None) -> Iterator[Figure]:
    """Yield the figures of the iterations or rounds: the objective, and the residual or change."""
    if model is None:
        return
    which, measure, limit = "", result.measure, result.tolerance
    if isinstance(result, ClusterResult):
        which, note = say("figure.of_last_round"), say("figure.rounds", J=number(result.objective))
        yield from _objective([each.objective for each in result.rounds], "round", note)
        about = f"The {say('measure.movement')}, by round."
        moves, most = [each.movement for each in result.rounds], result.settings["outer_tol"]
        shown = {"measure": "movement", "limit": most}
        yield from _by_step("Settling of the rounds", about, moves, "round", **shown)
    else:
        objectives = [each["objective"] for each in model.history]
        yield from _objective(objectives, "iteration", "The best W is saved.")
    if not model.history:
        return
    values = [each.get(measure, 0.0) for each in model.history]
    last, words = values[-1], say(f"measure.{measure}")
    about = say("figure.settling", last=last, tolerance=limit, measure=words, which=which)
    if measure == "residual" and (result.residual > limit) != (last > limit):
        about += say("figure.true_residual", residual=result.residual)
    yield from _by_step("Settling", about, values, "iteration", measure=measure, limit=limit)


def _objective(values: Sequence[float], unit: str, note: str) -> Iterator[Figure]:
    """Draw J by iteration or, for a clustering, by round."""
    finite = [each for each in values if math.isfinite(each)]
    if finite:
        start = f"from {number(finite[0])} to " if len(finite) > 1 else ""
        count = count_noun(len(finite), unit)
        about = f"The objective by {unit}, {start}{number(finite[-1])} in {count}. {note}"
        yield from _by_step("Convergence", about, values, unit, draw=drawing.draw_objective)


def _by_step(
    title: str,
    caption: str,
    values: Sequence[float],
    unit: str,
    draw: Callable[..., Any] = drawing.draw_measure,
    **more: Any,
) -> Iterator[Figure]:
    """Draw the finite ones among values by iteration or round, a measure if it has several."""
    points = {k: value for k, value in enumerate(values, start=1) if math.isfinite(value)}
    if points and (draw is drawing.draw_objective or len(points) > 1):
        more |= {"numbers": list(points), "values": list(points.values()), "unit": unit}
        yield drawn(title, caption, draw, **more)


def findings(result: FitResult | ClusterResult, model: Model | None) -> Iterator[Figure]:
    """Yield the figures of the result except its components.

    They show the worth of each feature, the rows, and the label along single features.
    """
    if model is None:
        return
    yield from _by_features(result, model)
    sample = model.sample
    if sample is None or len(sample.points) == 0:
        return
    is_clustering = isinstance(result, ClusterResult)
    label, which = ("cluster", "cluster") if is_clustering else ("label", "class")
    step = -(-len(sample.points) // MOST_ROWS)
    features, values = sample.points[::step].astype(float), sample.values[::step]
    names = (new_feature(0), new_feature(1) if model.n_components > 1 else label)
    points = features[:, :2] if model.n_components > 1 else np.column_stack([features, values])
    classes = None
    if values.dtype.kind in "ui":
        present, values = np.unique(values, return_inverse=True)
        known = dict(enumerate(model.class_names or ()))
        classes = [known.get(int(each), f"{which} {each}") for each in present]
    draw: Callable[..., Any] = partial(drawing.draw_classes, codes=values, names=classes or ())
    if classes is None:
        draw = partial(drawing.draw_numbers, values=values, label="label")
    count = len(points)
    rows = f"All {count:,} rows" if count == result.rows else f"{count:,} of {result.rows:,} rows"
    about = say("figure.rows", count=rows, first=names[0], second=names[1], label=label)
    yield drawn("Rows", about, draw, height=420.0, points=points, axis_names=names)
    what = "mean of the label" if classes is None else "share of each class"
    about, draw = say("figure.response", what=what), drawing.draw_response
    for k, z in enumerate(features.T[: 0 if is_clustering else RESPONSES]):
        name = new_feature(k)
        title, names = f"Label along {name}", (name, "label")
        data: dict[str, Any] = {"z": z, "values": values, "classes": classes}
        yield drawn(title, about, draw, height=300.0, axis_names=names, **data)


def _by_features(result: FitResult | ClusterResult, model: Model) -> Iterator[Figure]:
    """Draw what 1, 2, ... new features explain or what each does; of HSIC, the eigenvalues."""
    if not result.predicts:
        values, gap = model.eigenvalues, result.eigengap
        next_value = float(values[-1] - gap) if math.isfinite(gap) else None
        is_leading = next_value is None or gap >= 0
        about = say("figure.spectrum") if is_leading else say("figure.not_leading")
        draw = drawing.draw_spectrum
        yield drawn("Spectrum", about, draw, values=values, next_value=next_value)
    elif result.dimensions:
        yield drawn(
            "Explained by 1, 2, ... new features",
            say("chosen.explained"),
            draw_lines,
            places=[each.q for each in result.dimensions],
            lines={"explained": [each.explained for each in result.dimensions]},
            axis_names=("number of new features", "share of the label"),
            chosen=len(result.eigenvalues),
        )
    elif result.contributions:
        J, every = result.objective, result.contributions
        alone, lost = [each.alone * J for each in every], [each.lost * J for each in every]
        yield drawn(
            "J of each new feature",
            say("figure.contributions", J=number(J)),
            draw_lines,
            places=range(1, model.n_components + 1),
            lines={"J of it alone": alone, "what J loses without it": lost},
            axis_names=("new feature", "J"),
        )
