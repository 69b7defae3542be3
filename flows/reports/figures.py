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
from ism_dask.pictures import drawing
from ism_dask.words import count_noun, new_feature, number
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
    which, unit, note = "", "iteration", "The best W is saved."
    objectives = [each["objective"] for each in model.history]
    if isinstance(result, ClusterResult):
        which, unit = say("figure.of_last_round"), "round"
        note = say("figure.rounds", J=number(result.objective))
        objectives = [each.objective for each in result.rounds]
    if finite := _finite(objectives):
        numbers, values = [*finite], [*finite.values()]
        start = f"from {number(values[0])} to " if len(values) > 1 else ""
        count = count_noun(len(values), unit)
        about = f"The objective by {unit}, {start}{number(values[-1])} in {count}. {note}"
        points: dict[str, Any] = {"numbers": numbers, "values": values, "unit": unit}
        yield drawn("Convergence", about, drawing.draw_objective, **points)
    if isinstance(result, ClusterResult):
        moves = [each.movement for each in result.rounds]
        about = f"The {say('measure.movement')}, by round."
        shown = {"measure": "movement", "limit": result.settings["outer_tol"]}
        yield from _settling("Settling of the rounds", about, moves, "round", **shown)
    if not model.history:
        return
    measure, limit = result.measure, result.tolerance
    values = [each.get(measure, 0.0) for each in model.history]
    last, words = values[-1], say(f"measure.{measure}")
    about = say("figure.settling", last=last, tolerance=limit, measure=words, which=which)
    if measure == "residual" and (result.residual > limit) != (last > limit):
        about += say("figure.true_residual", residual=result.residual)
    yield from _settling("Settling", about, values, "iteration", measure=measure, limit=limit)


def _settling(
    title: str, caption: str, values: Sequence[float], unit: str, **shown: Any
) -> Iterator[Figure]:
    """Draw a measure and its limit by iteration or round, if it has several finite values."""
    if len(finite := _finite(values)) > 1:
        shown |= {"numbers": [*finite], "values": [*finite.values()], "unit": unit}
        yield drawn(title, caption, drawing.draw_measure, **shown)


def _finite(values: Sequence[float]) -> dict[int, float]:
    """Return the finite ones among values, by their numbers from 1."""
    return {k: value for k, value in enumerate(values, start=1) if math.isfinite(value)}


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
    # Pictures show the first of several labels.
    label = getattr(result, "label", "cluster").partition(",")[0] or "label"
    which = "cluster" if is_clustering else "class"
    step = -(-len(sample.points) // MOST_ROWS)
    features = sample.points[::step].astype(float)
    values = sample.values[::step].reshape(len(features), -1)[:, 0]
    names = (new_feature(0), new_feature(1) if model.n_components > 1 else label)
    points = features[:, :2] if model.n_components > 1 else np.column_stack([features, values])
    classes = None
    if values.dtype.kind in "ui":
        present, values = np.unique(values, return_inverse=True)
        known = dict(enumerate(model.class_names or ()))
        classes = [known.get(int(each), f"{which} {each}") for each in present]
    draw: Callable[..., Any] = partial(drawing.draw_classes, codes=values, names=classes or ())
    if classes is None:
        draw = partial(drawing.draw_numbers, values=values, label=label)
    count = len(points)
    rows = f"All {count:,} rows" if count == result.rows else f"{count:,} of {result.rows:,} rows"
    about = say("figure.rows", count=rows, first=names[0], second=names[1], label=label)
    yield drawn("Rows", about, draw, height=420.0, points=points, axis_names=names)
    what = f"mean of {label}" if classes is None else "share of each class"
    about, draw = say("figure.response", what=what), drawing.draw_response
    for k, z in enumerate(features.T[: 0 if is_clustering else RESPONSES]):
        name = new_feature(k)
        title, names = f"{label} along {name}", (name, label)
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
