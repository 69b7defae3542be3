"""Put fits and clusterings into words: what was found, what was chosen, and how sure W is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flows.reports import figures
from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.reports.fit_quality import as_sentence, fit_quality
from flows.reports.pictures import drawn, height_of_rows
from flows.results.runs import (
    Certainty,
    ClusterResult,
    CrossvalResult,
    ExplainedRow,
    FitResult,
    Selection,
    largest,
)
from ism_dask.linalg.subspaces import subspace_shares
from ism_dask.pictures import drawing
from ism_dask.records.fit_report import FEW, SCALES
from ism_dask.status import Status
from ism_dask.words import count_noun, new_feature, number, share
from storage import Model

# Columns in the table of the largest shares, and the title of the column of weights.
_SHARES, _WEIGHTS = 10, "largest weights (standardised)"
# Smaller p-values are shown as less than this: the tail of the test is not known that far.
_LEAST_PVALUE = 1e-5
# The most columns in the table of a row.
_ROW_COLUMNS = 20
# Columns that the first sentence on clusters names, and the share of the variance between the
# clusters above which a column tells them apart.
_NAMED, _APART = 3, 0.5


def fit_summary(result: FitResult, model: Model | None) -> Summary:
    """Return the summary of a fit."""
    trust, numbers = fit_quality(result), _fit_facts(result)
    selection, certainty = result.selection, result.certainty
    unseen = ""
    if selection is not None and selection.tried:
        best = selection.tried[0]
        unseen = f"{share(best.explained)} +- {share(best.error)}"
    facts = numbers
    if selection is not None and result.converged and not (unseen or certainty):
        trust = (*trust, Fact("Judged", "no", warnings=(say("quality.unjudged"),)))
    if selection is not None:
        # The four figures that need no mathematics.
        doubts = certainty is not None and certainty.doubts
        warned = any(each.warnings for each in trust)
        is_sure = not (doubts or selection.other_maximum > 0 or warned)
        facts = (
            Fact("Explained in unseen rows", unseen or "not known", say("answers.unseen")),
            Fact("Rows", f"{result.rows:,}", say("answers.rows")),
            Fact("New features", f"{len(result.eigenvalues):,}", say("answers.features")),
            Fact("Sure", "yes" if is_sure else "no", say("answers.sure")),
        )
    pictures = tuple(figures.course(result, model))
    return Summary(
        subject=data_subject("W of all rows of", result),
        short=data_in_short(result),
        headline=f"J {number(result.objective)}",
        finding=_fit_finding(result, unseen),
        facts=facts,
        blocks=(
            Block("What was found", pictures=tuple(figures.findings(result, model))),
            features_block(result, model),
            _rows(result),
            *([_dimensions(result)] if result.dimensions else []),
            *([] if selection is None else [_selection(selection, result.status)]),
            *([] if certainty is None else [certainty_block(certainty)]),
            Block("How it went", facts=numbers if facts != numbers else (), pictures=pictures),
            Block("How far to trust it", facts=trust),
        ),
    )


def cluster_summary(result: ClusterResult, model: Model | None) -> Summary:
    """Return the summary of a clustering."""
    J = number(result.objective)
    agreement = ", ".join(f"{value:.2f} with {name}" for name, value in result.nmi.items())
    words = f"{count_noun(result.n_clusters, 'cluster')} of {result.rows:,} rows"
    found = f"{words} agree {agreement} (NMI, from 0 to 1)" if agreement else words
    names = [each.feature for each in result.separating[:_NAMED]]
    if len(names) == 1:
        found += f"; {names[0]} tells them apart"
    elif names:
        found += f"; {', '.join(names[:-1])} and {names[-1]} tell them apart most"
    # Clusters may be the levels of one column of texts.
    of = {each.column for each in result.separating if each.share > _APART}
    column = of.pop() if len(of) == 1 else ""
    warnings = (say("clusters.one_column", column=column),) if column else ()
    sizes = tuple((str(cluster), f"{size:,}") for cluster, size in enumerate(result.sizes))
    clusters = [Table(say("clusters.sizes"), ("cluster", "rows"), sizes)]
    if result.separating:
        shares = tuple((each.feature, share(each.share)) for each in result.separating)
        clusters.append(Table(say("clusters.separating"), ("column", "share"), shares))
    return Summary(
        subject=data_subject("Clusters of", result),
        short=f"{result.dataset} {result.kernel} k={result.n_clusters}",
        headline=f"NMI {max(result.nmi.values()):.3f}" if agreement else f"J {J}",
        finding=found,
        facts=(
            *(
                Fact(f"NMI with {name}", f"{value:.3f}", say("clusters.agreement"))
                for name, value in result.nmi.items()
            ),
            Fact("Clusters", f"{result.n_clusters:,}", warnings=warnings),
            Fact("Objective J", J, "Of the last W."),
            Fact("Rounds", f"{len(result.rounds):,}"),
            Fact("Seconds", f"{result.seconds:.2f}"),
        ),
        blocks=(
            Block("Clusters", tables=tuple(clusters)),
            Block("What was found", pictures=tuple(figures.findings(result, model))),
            features_block(result, model),
            _rows(result),
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


def _fit_finding(result: FitResult, unseen: str) -> str:
    """Return what a fit has found, with how sure it is, in a sentence without its end."""
    label, q = result.label or "the label", len(result.eigenvalues)
    features, s = count_noun(q, "new feature"), "s" * (q == 1)
    if not result.predicts:
        words = f"{features} depend{s} on {label} with J = {number(result.objective)} (HSIC)"
    elif unseen:
        words = f"{features} explain{s} {unseen} of {label} in rows that W has not seen"
    else:
        words = f"{features} explain{s} {share(result.objective)} of {label} in the rows of the fit"
    if result.certainty is None:
        return words
    low, high = result.certainty.standardized_interval
    return f"{words}; W is {low:.2g} to {high:.2g} from the truth, where 1 is a right angle"


def _fit_facts(result: FitResult) -> tuple[Fact, ...]:
    """Return the figures of a fit for readers who know what J is."""
    few, avoided = result.few_columns, result.avoided
    facts = list(objective(result.objective, predicts=result.predicts))
    if few is not None:
        value = f"{few.used:,} of {result.columns:,}, {share(few.share_of_objective)} of J"
        facts.append(Fact("Columns used", value, say("objective.few_columns")))
    if not result.predicts:
        facts.append(Fact("Eigengap", number(result.eigengap)))
    if avoided is not None:
        name = f"Dependence on {result.settings.get('avoid') or 'what is avoided'}"
        value = f"{avoided.new_features:.3f}, of all features {avoided.features:.3f}"
        facts.append(Fact(name, value, say("objective.avoided", n_rows=avoided.n_rows)))
    facts.append(Fact("Iterations", f"{result.iterations:,}"))
    return (*facts, Fact("Seconds", f"{result.seconds:.2f}"))


def objective(value: float, *, predicts: bool) -> tuple[Fact, Fact]:
    """Return J as a fact, and the criterion, which says what it means."""
    name, what = ("prediction", "the share explained") if predicts else ("dependence", "HSIC")
    meaning = say(f"objective.{name}")
    return Fact("Objective J", number(value), meaning), Fact("Criterion", f"{name}: J is {what}")


def certainty_block(certainty: Certainty) -> Block:
    """Return the block on the certainty of W."""
    low, high = certainty.standardized_interval
    shares, clear = certainty.shares, certainty.separated
    first, more = ", ".join(each.feature for each in shares[:clear]), clear - len(shares)
    first = f"{first} and {more} more" if more > 0 else first or "none"
    doubts = tuple(map(as_sentence, certainty.doubts))
    facts = (
        Fact("Distance from the truth", f"{low:.2g} to {high:.2g}", say("certainty.distance")),
        Fact("Columns clear of all others", first, say("certainty.clear")),
        Fact("Doubts", f"{len(doubts) or 'none'}", warnings=doubts),
    )
    names = [each.feature for each in shares]
    intervals = [(each.share, each.low, each.high) for each in shares]
    least = f"< {_LEAST_PVALUE:g}"
    pvalues = [f"{each.pvalue:.2g}" if each.pvalue >= _LEAST_PVALUE else least for each in shares]
    rows = tuple(
        (name, *map(share, cells), pvalue)
        for name, cells, pvalue in zip(names, intervals, pvalues, strict=True)
    )
    picture = drawn(
        "Shares of the columns",
        say("certainty.drawn"),
        drawing.draw_shares,
        height=height_of_rows(len(names)),
        names=names,
        intervals=np.array(intervals).T,
        clear=min(clear, len(names)),
    )
    found = zip(certainty.stability, certainty.retention, strict=True)
    stability = tuple(
        (new_feature(k), *(f"{each:.2f}" for each in row)) for k, row in enumerate(found)
    )
    return Block(
        "How sure",
        about=say("certainty.curvature"),
        facts=facts,
        tables=(
            Table(say("certainty.shares"), ("column", "share", "from", "to", "adjusted p"), rows),
            Table(say("certainty.stability"), ("feature", "alone", "within the space"), stability),
        ),
        pictures=(picture,),
    )


def features_block(result: FitResult | ClusterResult, model: Model | None) -> Block:
    """Return the block on the weights of the new features; without a model, without pictures."""
    caption, columns = say("features.largest"), ["feature", _WEIGHTS, "eigenvalue"]
    weights = (", ".join(f"{w.feature} {w.weight:+.2f}" for w in each) for each in result.loadings)
    rows = [
        (new_feature(k), words, number(value))
        for k, (words, value) in enumerate(zip(weights, result.eigenvalues, strict=False))
    ]
    cells: Sequence[tuple[str, ...]] = rows
    if result.contributions is not None:
        caption += say("features.contributions")
        columns += ["J alone", "J lost"]
        cells = [
            (*row, f"{each.alone:.0%}", f"{each.lost:.0%}")
            for row, each in zip(rows, result.contributions, strict=False)
        ]
    tables = [Table(f"{caption}.", tuple(columns), tuple(cells), left=2)]
    if model is None:
        return Block("New features", tables=tuple(tables))
    images, more = model.image_shape is not None, len(rows) - figures.COMPONENTS
    about = say("features.pixels" if images else "features.columns")
    if more > 0:
        about += say("features.more", shown=figures.COMPONENTS, more=more)
    if not isinstance(result, FitResult) or result.certainty is None:
        # Else another table has them with their intervals.
        shares = largest(model, subspace_shares(model.components), _SHARES)
        named = tuple((name, share(value)) for name, value in shares)
        tables.append(Table(say("features.shares"), ("column", "share"), named))
    return Block(
        "New features",
        about=about,
        tables=tuple(tables),
        pictures=tuple(figures.components(model)),
        style="images" if images else "weights",
    )


def _rows(result: FitResult | ClusterResult) -> Block:
    """Return why two rows of a run are where they are, if its record says so."""
    captions = (say("rows.nearest"), say("rows.farthest"))
    tables = [row_table(*each) for each in zip(result.explained, captions, strict=False)]
    about = say("rows.about") if tables else ""
    return Block("Why is this row here?", about, tables=tuple(tables), detail=True)


def row_table(explained: ExplainedRow, caption: str) -> Table:
    """Return what the columns of a row add to its new features."""
    new, shown = np.array(explained.new_features), explained.columns[:_ROW_COLUMNS]
    lines = [(each.feature, number(each.value), np.array(each.added)) for each in shown]
    if others := explained.n_columns - len(shown):
        lines.append((count_noun(others, "other"), "", new - sum(added for *_, added in lines)))
    *rows, foot = (
        (name, value, *(f"{each + 0.0:+.3g}" for each in added))  # + 0.0: no "-0"
        for name, value, added in [*lines, (f"row {explained.row}", "", new)]
    )
    names = ("column", "value", *map(new_feature, range(len(new))))
    return Table(caption, names, tuple(rows), (foot,))


def _dimensions(result: FitResult) -> Block:
    """Return what each number of new features explains, of a fit that has chosen the number."""
    rows = tuple(
        (
            f"{each.q} (chosen)" if each.q == result.n_components else f"{each.q}",
            share(each.explained),
            number(each.gain) if each.q > 1 else "",
            number(each.needed_gain) if each.q > 1 else "",
        )
        for each in result.dimensions
    )
    table = Table(say("chosen.dimensions"), ("q", "explained", "gain", "needed"), rows)
    return Block("How many new features", tables=(table,), detail=True)


def _selection(chosen: Selection, status: str) -> Block:
    """Return what a fit by prediction chose, and the trials that unseen rows have judged."""
    facts = [
        Fact("Start", chosen_start(chosen, status)),
        Fact("Width", number(chosen.width)),
        Fact("Ridge", number(chosen.ridge)),
        Fact("Target", chosen.target, say(f"chosen.{chosen.target}")),
    ]
    if chosen.other_maximum:
        angle = f"as good, at an angle with the sine {chosen.other_maximum:.2f}"
        facts.append(Fact("Other features", angle, warnings=(say("chosen.other"),)))
    rows = tuple(
        (each.start, _setting(each.width), _setting(each.ridge), share(each.explained))
        for each in chosen.tried
    )
    table = Table(say("chosen.trials"), ("start", "width", "ridge", "explained"), rows)
    tables = (table,) if rows else ()
    return Block("What was chosen", about=say("chosen.how"), facts=tuple(facts), tables=tables)


def _setting(value: float | None) -> str:
    """Return the width or the ridge of a trial; a start has none."""
    return "the start" if value is None else number(value)


def chosen_start(chosen: Selection, status: str) -> str:
    """Return the name of the start of a fit by prediction, and whether W is the start itself."""
    if not chosen.tried:
        return "not judged by unseen rows"
    if status == Status.START.value:
        return f"{chosen.tried[0].start}, kept"
    climbed = [
        each.start
        for each in chosen.tried
        if each.width is not None and each.start not in (SCALES, FEW)
    ]
    return climbed[0] if climbed else chosen.tried[0].start
