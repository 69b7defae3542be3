"""Put fits into words: what was found, what was chosen, and how sure W is."""

from __future__ import annotations

import numpy as np

from flows.reports import figures
from flows.reports.blocks import Block, Fact, Summary, Table
from flows.reports.fit_quality import fit_quality
from flows.reports.pictures import drawn, height_of_rows
from flows.reports.view import View, largest
from flows.results.runs import Certainty, ClusterResult, CrossvalResult, FitResult, Selection
from flows.text import count_noun, new_feature, number, share
from ism_dask.linalg.subspaces import subspace_shares
from ism_dask.pictures import drawing
from ism_dask.status import Status
from storage import Model

# Columns in the table of the largest shares.
_SHARES = 10
# A refit may fail for its resample alone; more failures than this share are worth a warning.
_FAILED = 0.1
_TARGETS = {"mean": "the label itself", "law": "functions of the label, on which its law depends"}
HOW_CHOSEN = (
    "The width is a multiple of the kernel's own, the ridge a share of the mean kernel of a row "
    "with itself."
)
_OF_PIXELS = (
    "Each new feature is a weighted sum of pixels, which are named by row and column from 0: blue "
    "weighs above zero, red below, white not at all; all images have one scale."
)
_OF_COLUMNS = (
    "Each new feature is a weighted sum of the standardised old ones. The largest weights, ranked; "
    "blue above zero, red below."
)
_BY_REFITS = (
    "W was fitted again to rows drawn from the same rows with replacement. The refits vary around "
    "W as W varies around the truth, unless W has missed the truth altogether."
)
_BY_CURVATURE = (
    "From the curvature of J at W and the influence of each row. They tell how W varies from one "
    "sample of rows to another, unless W has missed the truth altogether; --bootstrap checks them."
)


def fit_summary(result: FitResult, view: View | None) -> Summary:
    """Return the summary of a fit."""
    model = view.model if view else None
    return Summary(
        run=result.run,
        kind=result.command,
        subject=data_subject("W of all rows of", result),
        short=data_in_short(result),
        headline=f"J {number(result.objective)}",
        finding=_fit_finding(result),
        facts=_fit_facts(result),
        blocks=(
            Block("What was found", pictures=tuple(figures.findings(result, model))),
            features_block(result, model),
            *_dimensions(result),
            *_selection(result),
            *([] if result.certainty is None else [certainty_block(result.certainty)]),
            Block("How it went", pictures=tuple(figures.course(result, model))),
            Block("How far to trust it", facts=fit_quality(result)),
        ),
    )


def data_subject(title: str, result: FitResult | ClusterResult | CrossvalResult) -> str:
    """Return the data and settings of a run in a line."""
    part = "" if result.split in ("", "all") else f" ({result.split})"
    q = result.n_components
    return (
        f"{title} {result.dataset}{part}: {result.rows:,} rows, {result.columns:,} columns, "
        f"{result.kernel} kernel, q {'chosen by each fold' if q is None else f'= {q}'}"
    )


def data_in_short(result: FitResult | CrossvalResult) -> str:
    """Return the data and settings of a run in a few words."""
    q = "" if result.n_components is None else f" q={result.n_components}"
    return f"{result.dataset} {result.kernel}{q}"


def _fit_finding(result: FitResult) -> str:
    """Return what a fit has found, with how sure it is, in a sentence without its end."""
    label, q = result.label or "the label", len(result.eigenvalues)
    features, s = count_noun(q, "new feature"), "s" * (q == 1)
    held_out = {each.q: each.explained for each in result.dimensions or ()}.get(q)
    if not result.predicts:
        words = f"{features} depend{s} on {label} with J = {number(result.objective)} (HSIC)"
    elif held_out is None:
        words = f"{features} explain{s} {share(result.objective)} of {label} in the rows of the fit"
    else:
        words = f"{features} explain{s} {share(held_out)} of {label}, each row by the others"
    if result.certainty is None:
        return words
    low, high = result.certainty.standardized_interval
    return f"{words}; W is {low:.2g} to {high:.2g} from the truth, where 1 is a right angle"


def _fit_facts(result: FitResult) -> tuple[Fact, ...]:
    """Return the figures at the top of a fit."""
    few, avoided = result.few_columns, result.avoided
    facts = list(objective(result.objective, predicts=result.predicts))
    if few is not None:
        value = f"{few.used:,} of {result.columns:,}, {share(few.share_of_objective)} of J"
        meaning = "J of W on these columns, as a share of that on all."
        facts.append(Fact("Columns used", value, meaning))
    if not result.predicts:
        facts.append(Fact("Eigengap", number(result.eigengap)))
    if avoided is not None:
        facts.append(
            Fact(
                f"Dependence on {result.settings.get('avoid') or 'what is avoided'}",
                f"{avoided.new_features:.3f}, of all features {avoided.features:.3f}",
                f"HSIC correlations on {avoided.n_rows:,} rows of the fit; 0 if independent. On "
                "other rows it can be larger.",
            )
        )
    facts.append(Fact("Iterations", f"{result.iterations:,}"))
    return (*facts, Fact("Seconds", f"{result.seconds:.2f}"))


def objective(value: float, *, predicts: bool) -> tuple[Fact, Fact]:
    """Return J as a fact, and the criterion, which says what it means."""
    if predicts:
        criterion = "prediction: J is the share explained"
        meaning = (
            "The share of the label that a kernel ridge regression on the new features explains, "
            "from 0 to 1, by its regularised loss on the rows of the fit."
        )
    else:
        criterion = "dependence: J is HSIC"
        meaning = "The Hilbert-Schmidt independence criterion of the new features and the label."
    return Fact("Objective J", number(value), meaning), Fact("Criterion", criterion)


def certainty_block(certainty: Certainty) -> Block:
    """Return the block on the certainty of W."""
    low, high = certainty.standardized_interval
    shares, clear = certainty.shares, certainty.separated
    first = ", ".join(each.feature for each in shares[:clear])
    more = clear - len(shares)
    facts = (
        Fact(
            "Distance from the truth",
            f"{low:.2g} to {high:.2g}",
            "The 90% interval of the distance between W and the true subspace, for standardised "
            "columns: 0 if they are the same, 1 if they are orthogonal.",
        ),
        Fact(
            "Columns clear of all others",
            f"{first} and {more} more" if more > 0 else first or "none",
            "The intervals of their shares lie above those of all other columns.",
        ),
        *_refits(certainty),
    )
    intervals = Table(
        "The largest shares of columns in the space of the new features, with 90% intervals.",
        ("column", "share", "from", "to"),
        tuple((each.feature, *map(share, (each.share, each.low, each.high))) for each in shares),
    )
    stability = Table(
        "How much of each new feature other samples of rows would show, from 0 to 1: as one "
        "feature, and within the space of all. Features with a small first and a large second "
        "number mix with each other.",
        ("feature", "alone", "within the space"),
        tuple(
            (new_feature(k), f"{alone:.2f}", f"{within:.2f}")
            for k, (alone, within) in enumerate(
                zip(certainty.stability, certainty.retention, strict=True)
            )
        ),
    )
    return Block(
        "How sure",
        about=_BY_REFITS if certainty.refits else _BY_CURVATURE,
        facts=facts,
        tables=(intervals, stability),
        pictures=(
            drawn(
                "Shares of the columns",
                "Dots are the shares in W, lines their 90% intervals.",
                drawing.draw_shares,
                height=height_of_rows(len(shares)),
                names=[each.feature for each in shares],
                intervals=np.array([(each.share, each.low, each.high) for each in shares]).T,
                clear=min(clear, len(shares)),
            ),
        ),
    )


def _refits(certainty: Certainty) -> tuple[Fact, ...]:
    count, failed = certainty.refits, certainty.refits - certainty.converged
    warning = (
        f"{count_noun(failed, 'refit')} of {count:,} did not converge, so the intervals may be too "
        "narrow or too wide"
    )
    value = f"{count:,}, {f'{failed:,} not' if failed else 'all'} converged"
    fact = Fact("Refits", value, warnings=(warning,) if failed > _FAILED * count else ())
    return (fact,) if count else ()


def features_block(result: FitResult | ClusterResult, model: Model | None) -> Block:
    """Return the block on the weights of the new features; without a model, without pictures."""
    table = _new_features(result)
    if model is None:
        return Block("New features", tables=(table,))
    images, more = model.image_shape is not None, len(table.rows) - figures.COMPONENTS
    shares = largest(model, subspace_shares(model.components), _SHARES)
    table_of_shares = Table(
        "The columns with the largest shares in the space of all new features, however the single "
        "new features are rotated in it.",
        ("column", "share"),
        tuple((name, share(value)) for name, value in shares),
    )
    return Block(
        "New features",
        about=(_OF_PIXELS if images else _OF_COLUMNS)
        + (f" The first {figures.COMPONENTS} are shown, {more} more are stored." * (more > 0)),
        tables=(table, table_of_shares),
        pictures=tuple(figures.components(model)),
        style="images" if images else "weights",
    )


def _new_features(result: FitResult | ClusterResult) -> Table:
    shares = result.contributions
    caption = "The largest weights of each new feature"
    columns: tuple[str, ...] = ("feature", "largest weights (standardised)", "eigenvalue")
    # A list of runs has no loadings: they are read with the model.
    rows: list[tuple[str, ...]] = [
        (
            new_feature(k),
            ", ".join(f"{each.feature} {each.weight:+.2f}" for each in loadings),
            number(value),
        )
        for k, (value, loadings) in enumerate(
            zip(result.eigenvalues, result.loadings, strict=False)
        )
    ]
    if shares is not None:
        caption += ", with J of it alone and by how much J falls without it, as shares of J"
        columns = (*columns, "J alone", "J lost")
        rows = [
            (*row, f"{100 * each.alone:.0f}%", f"{100 * each.lost:.0f}%")
            for row, each in zip(rows, shares, strict=False)
        ]
    return Table(f"{caption}.", columns, tuple(rows), left=2)


def _dimensions(result: FitResult) -> list[Block]:
    """Return what each number of new features explains, if the fit has chosen the number."""
    tried, chosen = result.dimensions, len(result.eigenvalues)
    if not tried:
        return []
    numbers = [each.q for each in tried]
    rows = tuple(
        (
            f"{each.q} (chosen)" if each.q == result.n_components else f"{each.q}",
            share(each.explained),
            number(each.gain) if each.q > 1 else "",
            number(each.needed_gain) if each.q > 1 else "",
        )
        for each in tried
    )
    caption = (
        "The share of the label that q new features explain, each row predicted by the others, and "
        "the log evidence per row that the last of them gains; it is taken from the needed gain on."
    )
    return [
        Block(
            "How many new features",
            tables=(Table(caption, ("q", "explained", "gain", "needed"), rows),),
            pictures=(
                drawn(
                    "Explained by q",
                    "The share of the label that is explained, each row predicted by the others.",
                    drawing.draw_dimension_shares,
                    numbers=numbers,
                    explained=[each.explained for each in tried],
                    chosen=chosen,
                ),
                drawn(
                    "Gain by q",
                    "What each feature gains, and from which gain on it is taken.",
                    drawing.draw_dimension_gains,
                    numbers=numbers,
                    gains=[each.gain for each in tried],
                    needed=[each.needed_gain for each in tried],
                    chosen=chosen,
                ),
            ),
            detail=True,
        )
    ]


def _selection(result: FitResult) -> list[Block]:
    """Return what a fit by prediction chose, and the trials that unseen rows have judged."""
    chosen = result.selection
    if chosen is None:
        return []
    facts = [
        Fact("Start", chosen_start(chosen, result.status)),
        Fact("Width", number(chosen.width)),
        Fact("Ridge", number(chosen.ridge)),
        Fact("Target", chosen.target, f"Predicted is {_TARGETS[chosen.target]}."),
    ]
    if chosen.other_maximum:
        meaning = "Another start led to them, and rows do not tell which are better."
        angle = f"as good, at an angle with the sine {chosen.other_maximum:.2f}"
        facts.append(Fact("Other features", angle, meaning))
    rows = tuple(
        (
            each.start,
            *(
                "the start" if value is None else number(value)
                for value in (each.width, each.ridge)
            ),
            share(each.explained),
        )
        for each in chosen.tried
    )
    caption = "The best trials, by the share of the label that unseen rows explain."
    tables = (Table(caption, ("start", "width", "ridge", "explained"), rows),) if rows else ()
    return [Block("What was chosen", about=HOW_CHOSEN, facts=tuple(facts), tables=tables)]


def chosen_start(chosen: Selection, status: str) -> str:
    """Return the name of the start of a fit by prediction, and whether W is the start itself."""
    if not chosen.tried:
        return "not judged by unseen rows"
    if status == Status.START.value:
        return f"{chosen.tried[0].start}, kept"
    climbed = [each.start for each in chosen.tried if each.width is not None]
    return climbed[0] if climbed else chosen.tried[0].start
