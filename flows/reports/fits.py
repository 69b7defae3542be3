"""Put fits and clusterings into words: what was found, what was chosen, and how sure W is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flows.reports import figures
from flows.reports.blocks import Block, Fact, Summary, Table, say
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
# Columns that the first sentence on clusters names, and the share of the variance between the
# clusters above which a column tells them apart.
_NAMED, _APART = 3, 0.5


def fit_summary(result: FitResult, view: View | None) -> Summary:
    """Return the summary of a fit."""
    model = view.model if view else None
    trust, figures_of_fit = fit_quality(result), _fit_facts(result)
    top = _answers(result, trust) if result.predicts else figures_of_fit
    return Summary(
        subject=data_subject("W of all rows of", result),
        short=data_in_short(result),
        headline=f"J {number(result.objective)}",
        finding=_fit_finding(result),
        facts=top,
        blocks=(
            Block("What was found", pictures=tuple(figures.findings(result, model))),
            features_block(result, model),
            *_dimensions(result),
            *_selection(result),
            *([] if result.certainty is None else [certainty_block(result.certainty)]),
            Block(
                "How it went",
                facts=figures_of_fit if result.predicts else (),
                pictures=tuple(figures.course(result, model)),
            ),
            Block("How far to trust it", facts=trust),
        ),
    )


def cluster_summary(result: ClusterResult, view: View | None) -> Summary:
    """Return the summary of a clustering."""
    model = view.model if view else None
    agreement = ", ".join(f"{value:.2f} with {name}" for name, value in result.nmi.items())
    words = f"{count_noun(result.n_clusters, 'cluster')} of {result.rows:,} rows"
    found = f"{words} agree {agreement} (NMI, from 0 to 1)" if agreement else words
    columns = ("round", "objective", "affinity", "change", "turn of W", "iterations")
    rounds = tuple(
        (
            str(k),
            *map(number, (each.objective, each.affinity, each.change, each.turn)),
            str(each.iterations),
        )
        for k, each in enumerate(result.rounds, start=1)
    )
    J = number(result.objective)
    return Summary(
        subject=data_subject("Clusters of", result),
        short=f"{result.dataset} {result.kernel} k={result.n_clusters}",
        headline=f"NMI {max(result.nmi.values()):.3f}" if agreement else f"J {J}",
        finding="; ".join(filter(None, (found, _separation(result)))),
        facts=(
            *(Fact(f"NMI with {name}", f"{value:.3f}") for name, value in result.nmi.items()),
            Fact("Clusters", f"{result.n_clusters:,}", warnings=_one_column(result)),
            Fact("Objective J", J, "Of the last W."),
            Fact("Rounds", f"{len(result.rounds):,}"),
            Fact("Seconds", f"{result.seconds:.2f}"),
        ),
        blocks=(
            _clusters(result),
            Block("What was found", pictures=tuple(figures.findings(result, model))),
            features_block(result, model),
            Block("How it went", pictures=tuple(figures.course(result, model))),
            Block(
                "Rounds",
                tables=(Table(say("clusters.rounds"), columns, rounds),),
                detail=True,
            ),
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
    tried = result.selection.tried[:1] if result.selection else ()
    if not result.predicts:
        words = f"{features} depend{s} on {label} with J = {number(result.objective)} (HSIC)"
    elif tried:
        unseen = f"{share(tried[0].explained)} +- {share(tried[0].error)}"
        words = f"{features} explain{s} {unseen} of {label} in rows that W has not seen"
    else:
        words = f"{features} explain{s} {share(result.objective)} of {label} in the rows of the fit"
    if result.certainty is None:
        return words
    low, high = result.certainty.standardized_interval
    return f"{words}; W is {low:.2g} to {high:.2g} from the truth, where 1 is a right angle"


def _answers(result: FitResult, trust: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the four figures of a fit by prediction that need no mathematics."""
    tried = result.selection.tried[:1] if result.selection else ()
    unseen = f"{share(tried[0].explained)} +- {share(tried[0].error)}" if tried else "not known"
    doubts = result.certainty.doubts if result.certainty else ()
    others = result.selection is not None and result.selection.other_maximum > 0
    is_sure = not (doubts or others or any(each.warnings for each in trust))
    return (
        Fact("Explained in unseen rows", unseen, say("answers.unseen")),
        Fact("Rows", f"{result.rows:,}", say("answers.rows")),
        Fact("New features", f"{len(result.eigenvalues):,}", say("answers.features")),
        Fact("Sure", "yes" if is_sure else "no", say("answers.sure")),
    )


def _fit_facts(result: FitResult) -> tuple[Fact, ...]:
    """Return the figures at the top of a fit."""
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


def _separation(result: ClusterResult) -> str:
    """Return which columns tell the clusters apart most, in words; empty if none is known."""
    names = [each.feature for each in result.separating[:_NAMED]]
    if len(names) < 2:
        return f"{names[0]} tells them apart" if names else ""
    return f"{', '.join(names[:-1])} and {names[-1]} tell them apart most"


def _one_column(result: ClusterResult) -> tuple[str, ...]:
    """Return a warning if the clusters are the levels of one column of text."""
    apart = [each.feature for each in result.separating if each.share > _APART]
    columns = {feature.partition("=")[0] for feature in apart}
    if len(columns) != 1 or "=" not in apart[0]:
        return ()
    return (say("clusters.one_column", column=columns.pop()),)


def _clusters(result: ClusterResult) -> Block:
    sizes = tuple((str(cluster), f"{size:,}") for cluster, size in enumerate(result.sizes))
    tables = [Table(say("clusters.sizes"), ("cluster", "rows"), sizes)]
    if result.separating:
        apart = tuple((each.feature, share(each.share)) for each in result.separating)
        tables.append(Table(say("clusters.separating"), ("column", "share"), apart))
    if result.nmi:
        agreement = tuple((name, f"{value:.3f}") for name, value in result.nmi.items())
        tables.append(Table(say("clusters.agreement"), ("label", "NMI"), agreement))
    return Block("Clusters", tables=tuple(tables))


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
    facts = (
        Fact("Distance from the truth", f"{low:.2g} to {high:.2g}", say("certainty.distance")),
        Fact("Columns clear of all others", first, say("certainty.clear")),
        *(Fact("Doubt", each) for each in certainty.doubts),
    )
    names = [each.feature for each in shares]
    intervals = [(each.share, each.low, each.high) for each in shares]
    rows = tuple((name, *map(share, each)) for name, each in zip(names, intervals, strict=True))
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
            Table(say("certainty.shares"), ("column", "share", "from", "to"), rows),
            Table(say("certainty.stability"), ("feature", "alone", "within the space"), stability),
        ),
        pictures=(picture,),
    )


def features_block(result: FitResult | ClusterResult, model: Model | None) -> Block:
    """Return the block on the weights of the new features; without a model, without pictures."""
    table = _new_features(result)
    if model is None:
        return Block("New features", tables=(table,))
    images, more = model.image_shape is not None, len(table.rows) - figures.COMPONENTS
    shares = largest(model, subspace_shares(model.components), _SHARES)
    rows = tuple((name, share(value)) for name, value in shares)
    about = say("features.pixels" if images else "features.columns")
    if more > 0:
        about += say("features.more", shown=figures.COMPONENTS, more=more)
    return Block(
        "New features",
        about=about,
        tables=(table, Table(say("features.shares"), ("column", "share"), rows)),
        pictures=tuple(figures.components(model)),
        style="images" if images else "weights",
    )


def _new_features(result: FitResult | ClusterResult) -> Table:
    shares = result.contributions
    caption = say("features.largest")
    columns: tuple[str, ...] = ("feature", "largest weights (standardised)", "eigenvalue")
    weights = (", ".join(f"{w.feature} {w.weight:+.2f}" for w in each) for each in result.loadings)
    rows: list[tuple[str, ...]] = [
        (new_feature(k), words, number(value))
        for k, (words, value) in enumerate(zip(weights, result.eigenvalues, strict=False))
    ]
    if shares is not None:
        caption += say("features.contributions")
        columns = (*columns, "J alone", "J lost")
        rows = [
            (*row, f"{100 * each.alone:.0f}%", f"{100 * each.lost:.0f}%")
            for row, each in zip(rows, shares, strict=False)
        ]
    return Table(f"{caption}.", columns, tuple(rows), left=2)


def _dimensions(result: FitResult) -> list[Block]:
    """Return what each number of new features explains, if the fit has chosen the number."""
    tried = result.dimensions
    if not tried:
        return []
    rows = tuple(
        (
            f"{each.q} (chosen)" if each.q == result.n_components else f"{each.q}",
            share(each.explained),
            number(each.gain) if each.q > 1 else "",
            number(each.needed_gain) if each.q > 1 else "",
        )
        for each in tried
    )
    gain = drawn(
        "Gain by q",
        say("chosen.gain"),
        figures.draw_by_number,
        numbers=[each.q for each in tried[1:]],  # the first one has no gain
        lines={
            "gain": [each.gain for each in tried[1:]],
            "gain that is needed": [each.needed_gain for each in tried[1:]],
        },
        unit="number of new features q",
        quantity="gain of log evidence per row",
        chosen=len(result.eigenvalues),
    )
    table = Table(say("chosen.dimensions"), ("q", "explained", "gain", "needed"), rows)
    return [Block("How many new features", tables=(table,), pictures=(gain,), detail=True)]


def _selection(result: FitResult) -> list[Block]:
    """Return what a fit by prediction chose, and the trials that unseen rows have judged."""
    chosen = result.selection
    if chosen is None:
        return []
    facts = [
        Fact("Start", chosen_start(chosen, result.status)),
        Fact("Width", number(chosen.width)),
        Fact("Ridge", number(chosen.ridge)),
        Fact("Target", chosen.target, say(f"chosen.{chosen.target}")),
    ]
    if chosen.other_maximum:
        angle = f"as good, at an angle with the sine {chosen.other_maximum:.2f}"
        facts.append(Fact("Other features", angle, say("chosen.other")))
    rows = tuple(
        (each.start, _setting(each.width), _setting(each.ridge), share(each.explained))
        for each in chosen.tried
    )
    table = Table(say("chosen.trials"), ("start", "width", "ridge", "explained"), rows)
    tables = (table,) if rows else ()
    return [Block("What was chosen", about=say("chosen.how"), facts=tuple(facts), tables=tables)]


def _setting(value: float | None) -> str:
    """Return the width or the ridge of a trial; a start has none."""
    return "the start" if value is None else number(value)


def chosen_start(chosen: Selection, status: str) -> str:
    """Return the name of the start of a fit by prediction, and whether W is the start itself."""
    if not chosen.tried:
        return "not judged by unseen rows"
    if status == Status.START.value:
        return f"{chosen.tried[0].start}, kept"
    climbed = [each.start for each in chosen.tried if each.width is not None]
    return climbed[0] if climbed else chosen.tried[0].start
