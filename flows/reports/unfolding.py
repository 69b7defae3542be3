"""Put an unfolding into words: its coordinates, their spectrum, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.reports.figures import MOST_ROWS
from flows.reports.fit_quality import ending_words
from flows.reports.pictures import Figure, coded, drawn, drawn_rows
from flows.reports.view import View
from flows.results.runs import UnfoldResult
from flows.text import count_noun, number, share
from ism_dask.pictures import drawing
from storage import result_arrays

# Eigenvalues in the table.
_LISTED = 5
# A column with a larger share of the variance decides about nearly all distances.
_OUTWEIGHS = 0.9
_AXIS_NAMES = ("coordinate 1", "coordinate 2")


def unfold_summary(result: UnfoldResult, view: View | None) -> Summary:
    """Return the summary of an unfolding."""
    same, total = result.same_class, sum(result.eigenvalues)
    part = "" if result.split in ("", "all") else f" ({result.split})"
    label = f"by {result.label}" if result.label else "without a label"
    rows = tuple(
        (str(axis), number(value), share(value / total))
        for axis, value in enumerate(result.eigenvalues[:_LISTED], start=1)
    )
    table = Table(say("unfolding.eigenvalues"), ("axis", "eigenvalue", "share"), rows)
    return Summary(
        subject=f"Unfolding of {result.dataset}{part}: {result.rows:,} rows, "
        f"{result.columns:,} columns, {label}, q = {result.n_components}",
        short=f"{result.dataset} unfolding q={result.n_components}",
        headline=f"distance error {result.distance_error:.3f}",
        finding=f"{result.n_components} coordinates show {share(result.share_of_axes)} of the "
        f"variance, with distances of neighbours off by {share(result.distance_error)}"
        + (f"; {share(same)} of the nearest rows have the same class" if same is not None else ""),
        facts=_facts(result),
        blocks=(
            Block("The picture", tables=(table,), pictures=tuple(_figures(result, view))),
            Block("How far to trust it", facts=_quality(result)),
        ),
    )


def _facts(result: UnfoldResult) -> tuple[Fact, ...]:
    unused = {"used": result.used_axes, "count": result.n_components}
    warnings = (say("unfolding.unused", **unused),) if unused["used"] < unused["count"] else ()
    same = "" if result.same_class is None else share(result.same_class)
    shown = share(result.share_of_axes)
    facts = (
        Fact("Distance error", f"{result.distance_error:.3f}", say("unfolding.distance_error")),
        Fact("Neighbours of the same class", same, say("unfolding.same_class")),
        Fact("Variance shown", shown, say("unfolding.variance"), warnings=warnings),
        Fact("Dependence", f"{result.hsic:.3f}", say("unfolding.dependence")),
        Fact("Seconds", f"{result.seconds:.2f}"),
    )
    return tuple(fact for fact in facts if fact.value)


def _quality(result: UnfoldResult) -> tuple[Fact, ...]:
    ended = "yes" if result.converged else "no"
    ending = () if result.converged else (f"the fit {ending_words(result.status)}",)
    parts, largest = len(result.part_sizes), result.largest_share or 0.0
    alone = result.columns > 1 and largest > _OUTWEIGHS
    facts = (
        Fact("Converged", ended, say("unfolding.known"), warnings=ending),
        Fact(
            "Largest column",
            f"{result.largest_column}, {100 * largest:.0f}%" if result.largest_column else "",
            say("unfolding.largest_column"),
            warnings=(say("unfolding.alone", column=result.largest_column),) if alone else (),
        ),
        Fact("Steps", f"{result.iterations:,}", "Of the refinement."),
        Fact("Duality gap", f"{result.duality_gap:.1e}", say("unfolding.duality_gap")),
        Fact(
            "Graph",
            f"{count_noun(result.edges, 'pair')} of neighbours, {count_noun(parts, 'part')}",
            warnings=(say("unfolding.parts", parts=parts),) if parts > 1 else (),
        ),
    )
    return tuple(fact for fact in facts if fact.value)


def _figures(result: UnfoldResult, view: View | None) -> Iterator[Figure]:
    """Yield the rows by the first two coordinates, in the colours of their label; and spectrum."""
    if view is None:
        return
    arrays, classes = result_arrays(result.run, "coordinates", "values"), None
    Z, values = arrays["coordinates"], arrays.get("values")
    chosen = np.arange(len(Z))
    if len(Z) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(Z), MOST_ROWS, replace=False))
    plane = Z[chosen, :2] if Z.shape[1] > 1 else np.column_stack([Z[chosen], np.zeros(len(chosen))])
    shown = f"{len(chosen):,} of {result.rows:,} rows by their coordinates"
    if values is not None:
        values, classes = coded(values[chosen], result.class_names, "class")
    yield drawn_rows(
        "Rows",
        f"{shown}, in the colours of {result.label}." if result.label else f"{shown}.",
        plane,
        values,
        classes,
        label=result.label,
        axis_names=_AXIS_NAMES,
    )
    eigenvalues, q = np.array(result.eigenvalues), result.n_components
    yield drawn(
        "Spectrum",
        say("unfolding.spectrum"),
        drawing.draw_variances,
        values=eigenvalues,
        q=q,
    )
