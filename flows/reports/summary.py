"""Build the summary of a run: the one place that puts its figures into words.

A figure that is added here appears on the terminal, in the Markdown page, in the HTML report and
in the JSON of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from flows import text
from flows.reports.accuracy import crossval_blocks, crossval_facts
from flows.reports.blocks import Block, Fact, Summary, Table
from flows.reports.certainty import certainty_block
from flows.reports.provenance import provenance
from flows.reports.selection import objective, selection_of_fit
from flows.reports.trust import cluster_trust, fit_trust, new_feature_names
from flows.reports.unfolding import (
    unfold_blocks,
    unfold_facts,
    unfold_headline,
    unfold_short,
    unfold_subject,
)
from flows.reports.view import View
from flows.results.base import RunResult
from flows.results.paper import TablesResult
from flows.results.runs import (
    ClusterResult,
    CrossvalResult,
    FitResult,
    Round,
)
from flows.results.unfolding import UnfoldResult

# Columns in the table of the largest shares.
_SHARES = 10


@dataclass(frozen=True)
class _Kind:
    """How to put the results of one kind of run into words.

    Attributes
    ----------
    subject, short : callable
        Return the data and settings of the run: `subject` in a line, `short` in a few words.
    headline, facts : callable
        `headline` returns the main figure in words, `facts` the figures at the top.
    blocks : callable
        Return all else of a result, and of its saved run if a view of it is given.
    """

    subject: Callable[[Any], str]
    short: Callable[[Any], str]
    headline: Callable[[Any], str]
    facts: Callable[[Any], tuple[Fact, ...]]
    blocks: Callable[[Any, View | None], list[Block]]


def summarise(result: RunResult, view: View | None = None) -> Summary:
    """Return the summary of a result; with the view of its saved run, all that a page shows."""
    kind = _KINDS[type(result)]
    blocks = kind.blocks(result, view)
    if view is not None:
        blocks += provenance(result, view.run)
    return Summary(
        run=result.run,
        kind=result.command,
        subject=kind.subject(result),
        facts=kind.facts(result),
        blocks=tuple(blocks),
    )


def summary_of(view: View) -> Summary:
    """Return the summary of a saved run; raise a FlowError if it has no record of a known kind."""
    return summarise(view.result, view)


def in_short(result: RunResult) -> tuple[str, str]:
    """Return the data and settings of a run in a few words, and its main figure."""
    kind = _KINDS[type(result)]
    return kind.short(result), kind.headline(result)


def log_line(result: RunResult) -> str:
    """Return what the log says of a result: its run, data, settings and all main figures."""
    kind = _KINDS[type(result)]
    facts = ", ".join(f"{fact.name} {fact.value}" for fact in kind.facts(result))
    return f"{result.run}: {kind.subject(result)}: {facts}"


def card_line(result: RunResult) -> str:
    """Return what the card of a run says: its name, data, main figure and number of warnings."""
    warnings = len(summarise(result).warnings)
    words = (
        result.run,
        *in_short(result),
        text.count_noun(warnings, "warning") if warnings else "",
    )
    return ", ".join(filter(None, words))


def _drawing() -> ModuleType:
    # Imported when pictures are drawn, which the terminal does not need.
    from flows.reports import figures  # noqa: PLC0415

    return figures


def _fit_facts(result: FitResult) -> tuple[Fact, ...]:
    fitted = result.fitted
    gap = () if fitted.predicts else (Fact("Eigengap", text.number(fitted.eigengap)),)
    return (
        *objective(fitted.objective, predicts=fitted.predicts),
        *_few_columns(result),
        *gap,
        *_avoided(result),
        Fact("Iterations", f"{fitted.ending.iterations:,}"),
        Fact("Seconds", f"{fitted.ending.seconds:.2f}"),
    )


def _few_columns(result: FitResult) -> tuple[Fact, ...]:
    few = result.fitted.few_columns
    if few is None:
        return ()
    value = f"{few.used:,} of {result.columns:,}, {100 * few.share_of_objective:.1f}% of J"
    return (Fact("Columns used", value, "J of W on these columns, as a share of that on all."),)


def _avoided(result: FitResult) -> tuple[Fact, ...]:
    """Return what is left of the dependence on the label to avoid, if there is one."""
    avoided = result.fitted.avoided
    if avoided is None:
        return ()
    label = result.settings.get("avoid") or "what is avoided"
    return (
        Fact(
            f"Dependence on {label}",
            f"{avoided.new_features:.3f}, of all features {avoided.features:.3f}",
            f"HSIC correlations on {avoided.n_rows:,} rows of the fit; 0 if independent. On other "
            "rows it can be larger.",
        ),
    )


def _fit_blocks(result: FitResult, view: View | None) -> list[Block]:
    return [
        *_pictures_of_result(view),
        _features(result, view),
        *_dimensions(result),
        *selection_of_fit(result),
        *_certainty(result, view),
        *_course(view),
        Block("How far to trust it", facts=fit_trust(result)),
    ]


def _dimensions(result: FitResult) -> list[Block]:
    """Return what each number of new features explains, if the fit has chosen the number."""
    tried = result.fitted.dimensions
    if not tried:
        return []
    rows = tuple(
        (
            f"{each.q} (chosen)" if each.q == result.n_components else f"{each.q}",
            f"{100 * each.explained:.1f}%",
            text.number(each.gain) if each.q > 1 else "",
            text.number(each.needed_gain) if each.q > 1 else "",
        )
        for each in tried
    )
    caption = (
        "The share of the label that q new features explain, each row predicted by the others, and "
        "the log evidence per row that the last of them gains; it is taken from the needed gain on."
    )
    table = Table(caption, ("q", "explained", "gain", "needed"), rows)
    return [
        Block(
            "How many new features",
            tables=(table,),
            draw=lambda: _drawing().dimensions(tried, len(result.fitted.eigenvalues)),
            detail=True,
        )
    ]


def _certainty(result: FitResult, view: View | None) -> list[Block]:
    """Return what refits tell of W, if there were some."""
    certainty = result.certainty
    if certainty is None:
        return []
    draw = None if view is None else lambda: [_drawing().share_intervals(certainty)]
    return [certainty_block(certainty, new_feature_names(result), draw)]


def _cluster_facts(result: ClusterResult) -> tuple[Fact, ...]:
    return (
        *(Fact(f"NMI with {name}", f"{value:.3f}") for name, value in result.nmi.items()),
        Fact("Clusters", f"{result.n_clusters:,}"),
        Fact(
            "Objective J",
            text.number(result.fitted.objective),
            "Of the last W.",
        ),
        Fact("Rounds", f"{len(result.rounds):,}"),
        Fact("Seconds", f"{result.fitted.ending.seconds:.2f}"),
    )


def _cluster_blocks(result: ClusterResult, view: View | None) -> list[Block]:
    return [
        _clusters(result, view),
        *_pictures_of_result(view),
        _features(result, view),
        *_course(view),
        _rounds(result),
        Block("How far to trust it", facts=cluster_trust(result)),
    ]


def _clusters(result: ClusterResult, view: View | None) -> Block:
    sizes = tuple((str(number), f"{size:,}") for number, size in enumerate(result.sizes))
    agreement = tuple((name, f"{value:.3f}") for name, value in result.nmi.items())
    caption = "Agreement with known labels, from 0 to 1 (normalised mutual information)."
    tables = [Table("Rows of each cluster.", ("cluster", "rows"), sizes)]
    if agreement:
        tables.append(Table(caption, ("label", "NMI"), agreement))
    return Block(
        "Clusters",
        tables=tuple(tables),
        draw=None if view is None else lambda: _drawing().stored_pictures(view),
        files=tuple(result.pictures.values()),
    )


def _rounds(result: ClusterResult) -> Block:
    columns = ("round", "objective", "affinity", "change", "turn of W", "iterations")
    rows = tuple(_round_cells(k, each) for k, each in enumerate(result.rounds, start=1))
    table = Table("W and the embedding in turns.", columns, rows)
    return Block("Rounds", tables=(table,), detail=True)


def _round_cells(number: int, each: Round) -> tuple[str, ...]:
    measured = map(text.number, (each.objective, each.affinity, each.change, each.turn))
    return str(number), *measured, str(each.iterations)


def _pictures_of_result(view: View | None) -> list[Block]:
    if view is None:
        return []
    return [Block("What was found", draw=lambda: _drawing().result_figures(view))]


def _course(view: View | None) -> list[Block]:
    if view is None:
        return []
    return [Block("How it went", draw=lambda: _drawing().iteration_figures(view))]


def _features(result: FitResult | ClusterResult, view: View | None) -> Block:
    table = _new_features(result)
    if view is None or view.model is None:
        return Block("New features", tables=(table,))
    tables = (table, _importances(view))
    images = view.model.image_shape is not None
    about = (
        "Each new feature is a weighted sum of pixels, which are named by row and column from 0: "
        "blue weighs above zero, red below, white not at all; all images have one scale."
        if images
        else "Each new feature is a weighted sum of the standardised old ones. The largest "
        "weights, ranked; blue above zero, red below."
    )
    return Block(
        "New features",
        about=about,
        tables=tables,
        draw=lambda: list(_drawing().components(view)),
        style="images" if images else "weights",
        drawable=len(table.rows),
    )


def _new_features(result: FitResult | ClusterResult) -> Table:
    fitted = result.fitted
    rows = tuple(
        (
            name,
            ", ".join(f"{each.feature} {each.weight:+.2f}" for each in loadings),
            text.number(value),
        )
        for name, value, loadings in zip(
            new_feature_names(result), fitted.eigenvalues, fitted.loadings, strict=True
        )
    )
    columns = ("feature", "largest weights (standardised)", "eigenvalue")
    if fitted.contributions is None:
        return Table("The largest weights of each new feature.", columns, rows, left=2)
    shares = [
        (f"{100 * each.alone:.0f}%", f"{100 * each.lost:.0f}%") for each in fitted.contributions
    ]
    caption = (
        "The largest weights of each new feature, with J of it alone and by how much J falls "
        "without it, as shares of J."
    )
    return Table(
        caption,
        (*columns, "J alone", "J lost"),
        tuple((*row, *more) for row, more in zip(rows, shares, strict=True)),
        left=2,
    )


def _importances(view: View) -> Table:
    rows = tuple((name, f"{100 * share:.1f}%") for name, share in view.largest_shares(_SHARES))
    caption = (
        "The columns with the largest shares in the space of all new features, however the single "
        "new features are rotated in it."
    )
    return Table(caption, ("column", "share"), rows)


def _data_subject(title: str) -> Callable[[FitResult | ClusterResult | CrossvalResult], str]:
    def subject(result: FitResult | ClusterResult | CrossvalResult) -> str:
        part = "" if result.split in ("", "all") else f" ({result.split})"
        return (
            f"{title} {result.dataset}{part}: {result.rows:,} rows, {result.columns:,} columns, "
            f"{result.kernel} kernel, q {_q_words(result)}"
        )

    return subject


def _q_words(result: FitResult | ClusterResult | CrossvalResult) -> str:
    return "chosen by each fold" if result.n_components is None else f"= {result.n_components}"


def _with_q(result: FitResult | CrossvalResult) -> str:
    q = "" if result.n_components is None else f" q={result.n_components}"
    return f"{result.dataset} {result.kernel}{q}"


def _with_k(result: ClusterResult) -> str:
    return f"{result.dataset} {result.kernel} k={result.n_clusters}"


def _nmi(result: ClusterResult) -> str:
    if not result.nmi:
        return _objective(result)
    return f"NMI {max(result.nmi.values()):.3f}"


def _objective(result: FitResult | ClusterResult) -> str:
    return f"J {text.number(result.fitted.objective)}"


def _accuracy(result: CrossvalResult) -> str:
    return f"accuracy {result.mean.accuracy:.3f}"


def _paper_subject(_result: TablesResult) -> str:
    return (
        'Tables 4 and 5 and Figures 1a and 1b of "Solving Interpretable Kernel Dimension '
        'Reduction" (NeurIPS 2019), measured again beside the published values'
    )


def _paper_headline(result: TablesResult) -> str:
    if not result.cells:
        return f"lines and pictures {len(result.others)}"
    return text.count_noun(len(result.cells), "cell")


def _paper_facts(result: TablesResult) -> tuple[Fact, ...]:
    cells, others = result.cells, Fact("Lines and pictures", f"{len(result.others):,}")
    if not cells:
        return (others,)
    return (
        Fact("Cells", f"{len(cells):,}"),
        Fact("Folds", f"{sum(cell.folds for cell in cells):,}"),
        others,
        Fact("Cells with something lost", f"{sum(bool(cell.lost) for cell in cells):,}"),
    )


def _paper_blocks(result: TablesResult, _view: View | None) -> list[Block]:
    from flows.reports import paper_tables  # noqa: PLC0415 - it imports the drawing code

    tables = [block for blocks in paper_tables.tables(result).values() for block in blocks]
    return [*tables, *paper_tables.figure_blocks(result)]


_KINDS: Mapping[type[RunResult], _Kind] = {
    FitResult: _Kind(
        _data_subject("W of all rows of"), _with_q, _objective, _fit_facts, _fit_blocks
    ),
    ClusterResult: _Kind(
        _data_subject("Clusters of"), _with_k, _nmi, _cluster_facts, _cluster_blocks
    ),
    CrossvalResult: _Kind(
        _data_subject("Cross-validation of"),
        _with_q,
        _accuracy,
        crossval_facts,
        crossval_blocks,
    ),
    UnfoldResult: _Kind(unfold_subject, unfold_short, unfold_headline, unfold_facts, unfold_blocks),
    TablesResult: _Kind(
        _paper_subject, lambda _: "paper", _paper_headline, _paper_facts, _paper_blocks
    ),
}
