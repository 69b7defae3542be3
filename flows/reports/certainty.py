"""Put into words how sure W is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flows import text
from flows.reports.blocks import Block, Fact, Table
from flows.results.runs import Certainty

if TYPE_CHECKING:
    from flows.reports.figures import Figure

# A refit may fail for its resample alone; more failures than this share are worth a warning.
_FAILED = 0.1
_BY_REFITS = (
    "W was fitted again to rows drawn from the same rows with replacement. The refits vary around "
    "W as W varies around the truth, unless W has missed the truth altogether."
)
_BY_CURVATURE = (
    "From the curvature of J at W and the influence of each row. They tell how W varies from one "
    "sample of rows to another, unless W has missed the truth altogether; --bootstrap checks them."
)


def certainty_block(
    certainty: Certainty, names: Sequence[str], draw: Callable[[], Sequence[Figure]] | None
) -> Block:
    """Return the block on the certainty of W; `names` are those of the new features."""
    refits = (_refits(certainty),) if certainty.refits else ()
    return Block(
        "How sure",
        about=_BY_REFITS if refits else _BY_CURVATURE,
        facts=(_distance(certainty), _clear(certainty), *refits),
        tables=(_shares(certainty), _new_features(certainty, names)),
        draw=draw,
    )


def _distance(certainty: Certainty) -> Fact:
    meaning = (
        "The 90% interval of the distance between W and the true subspace, for standardised "
        "columns: 0 if they are the same, 1 if they are orthogonal."
    )
    low, high = certainty.standardized_interval
    value = f"{low:.2g} to {high:.2g}"
    return Fact("Distance from the truth", value, meaning)


def _clear(certainty: Certainty) -> Fact:
    count = certainty.separated
    meaning = "The intervals of their shares lie above those of all other columns."
    first = ", ".join(each.feature for each in certainty.shares[:count])
    more = count - len(certainty.shares)
    value = f"{first} and {more} more" if more > 0 else first or "none"
    return Fact("Columns clear of all others", value, meaning)


def _refits(certainty: Certainty) -> Fact:
    count, failed = certainty.refits, certainty.refits - certainty.converged
    value = f"{count:,}, all converged" if not failed else f"{count:,}, {failed:,} not converged"
    if failed <= _FAILED * count:
        return Fact("Refits", value)
    warning = (
        f"{text.count_noun(failed, 'refit')} of {count:,} did not converge, so the intervals may "
        "be too narrow or too wide"
    )
    return Fact("Refits", value, warnings=(warning,))


def _shares(certainty: Certainty) -> Table:
    rows = tuple(
        (each.feature, *(f"{100 * value:.1f}%" for value in (each.share, each.low, each.high)))
        for each in certainty.shares
    )
    caption = "The largest shares of columns in the space of the new features, with 90% intervals."
    return Table(caption, ("column", "share", "from", "to"), rows)


def _new_features(certainty: Certainty, names: Sequence[str]) -> Table:
    measured = zip(names, certainty.stability, certainty.retention, strict=True)
    rows = tuple((name, f"{alone:.2f}", f"{within:.2f}") for name, alone, within in measured)
    caption = (
        "How much of each new feature other samples of rows would show, from 0 to 1: as one "
        "feature, and within the space of all. Features with a small first and a large second "
        "number mix with each other."
    )
    return Table(caption, ("feature", "alone", "within the space"), rows)
