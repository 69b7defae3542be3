"""Put an unfolding into words: its coordinates, their spectrum, and how far to trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows import text
from flows.reports.blocks import Block, Fact, Table
from flows.reports.view import View
from flows.results.unfolding import UnfoldResult

if TYPE_CHECKING:
    from flows.reports.figures import Figure

# Eigenvalues in the table.
_LISTED = 5
# A column with a larger share of the variance decides about nearly all distances.
_OUTWEIGHS = 0.9


def unfold_subject(result: UnfoldResult) -> str:
    """Return the data and settings of an unfolding in a line."""
    part = "" if result.split in ("", "all") else f" ({result.split})"
    label = f"by {result.label}" if result.label else "without a label"
    return (
        f"Unfolding of {result.dataset}{part}: {result.rows:,} rows, {result.columns:,} columns, "
        f"{label}, q = {result.n_components}"
    )


def unfold_short(result: UnfoldResult) -> str:
    """Return the data and settings of an unfolding in a few words."""
    return f"{result.dataset} unfolding q={result.n_components}"


def unfold_headline(result: UnfoldResult) -> str:
    """Return the main figure of an unfolding."""
    return f"distance error {result.distance_error:.3f}"


def unfold_facts(result: UnfoldResult) -> tuple[Fact, ...]:
    """Return the figures at the top of an unfolding."""
    same = "" if result.same_class is None else f"{100 * result.same_class:.1f}%"
    facts = (
        Fact(
            "Distance error",
            f"{result.distance_error:.3f}",
            "Root mean square error of the distances of neighbours, as a share of them.",
        ),
        Fact("Neighbours of the same class", same, "Of the 10 nearest rows in the picture."),
        Fact(
            "Variance shown",
            f"{100 * result.share_of_axes:.1f}%",
            "The eigenvalues of the axes of the picture, as a share of all.",
            warnings=_unused_axes(result),
        ),
        Fact("Dependence", f"{result.hsic:.3f}", "Correlation of kernels, 0 if independent."),
        Fact("Seconds", f"{result.seconds:.2f}"),
    )
    return tuple(fact for fact in facts if fact.value)


def _unused_axes(result: UnfoldResult) -> tuple[str, ...]:
    if result.used_axes == result.n_components:
        return ()
    return (
        f"{result.used_axes} of {result.n_components} axes are used: the others are 0, since none "
        "was found to raise the objective. Raise --nu to keep distances better",
    )


def unfold_blocks(result: UnfoldResult, view: View | None) -> list[Block]:
    """Return all else of an unfolding, with pictures for a page."""
    total = sum(result.eigenvalues)
    rows = tuple(
        (str(number), text.number(value), f"{100 * value / total:.1f}%")
        for number, value in enumerate(result.eigenvalues[:_LISTED], start=1)
    )
    table = Table("The largest eigenvalues of K.", ("axis", "eigenvalue", "share"), rows)
    return [
        Block(
            "The picture",
            tables=(table,),
            draw=None if view is None else lambda: _figures(result),
        ),
        Block("How far to trust it", facts=_trust(result)),
    ]


def _trust(result: UnfoldResult) -> tuple[Fact, ...]:
    ending = () if result.converged else (f"the fit {text.ending_words(result.status)}",)
    parts = len(result.part_sizes)
    apart = (
        f"where the {parts} parts of the graph lie relative to each other says little: they are "
        "joined by the shortest edges between them. Raise --neighbors",
    )
    return (
        Fact(
            "Converged",
            "yes" if result.converged else "no",
            "Known: the duality gap, and how steep the objective is at these coordinates. Not "
            "known: whether other coordinates, far from these, are better.",
            warnings=ending,
        ),
        *_scale(result),
        Fact("Steps", f"{result.iterations:,}", "Of the refinement."),
        Fact(
            "Duality gap",
            f"{result.duality_gap:.1e}",
            "Bound on what the semi-definite program lacks, as a share of its value.",
        ),
        Fact(
            "Extension error",
            f"{result.extension_error:.3f}",
            "How far rows are from where their neighbours alone would place them.",
        ),
        Fact(
            "Graph",
            f"{text.count_noun(result.edges, 'pair')} of neighbours, "
            f"{text.count_noun(parts, 'part')}",
            warnings=apart if parts > 1 else (),
        ),
    )


def _scale(result: UnfoldResult) -> tuple[Fact, ...]:
    """Return which column weighs most in distances, if they have their own units."""
    if result.largest_share is None:
        return ()
    alone = (
        f"distances are nearly those of {result.largest_column} alone. Leave --raw out, so that "
        "each column is divided by its standard deviation"
    )
    outweighs = result.columns > 1 and result.largest_share > _OUTWEIGHS
    return (
        Fact(
            "Largest column",
            f"{result.largest_column}, {100 * result.largest_share:.0f}%",
            "Its share of the variance of all columns, which have their own units.",
            warnings=(alone,) if outweighs else (),
        ),
    )


def _figures(result: UnfoldResult) -> list[Figure]:
    # Imported when pictures are drawn, which the terminal does not need.
    from flows.reports.unfolding_figures import rows_figure, spectrum_figure  # noqa: PLC0415

    return [rows_figure(result), spectrum_figure(result)]
