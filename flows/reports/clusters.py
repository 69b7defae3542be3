"""Put clusterings into words: their clusters, the rounds, and the new features they show in."""

from __future__ import annotations

from flows.reports import figures
from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.reports.fit_quality import fit_quality
from flows.reports.fits import data_subject, features_block
from flows.reports.view import View
from flows.results.runs import ClusterResult
from flows.text import count_noun, number


def cluster_summary(result: ClusterResult, view: View | None) -> Summary:
    """Return the summary of a clustering."""
    model = view.model if view else None
    agreement = ", ".join(f"{value:.2f} with {name}" for name, value in result.nmi.items())
    words = f"{count_noun(result.n_clusters, 'cluster')} of {result.rows:,} rows"
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
        run=result.run,
        kind=result.command,
        subject=data_subject("Clusters of", result),
        short=f"{result.dataset} {result.kernel} k={result.n_clusters}",
        headline=f"NMI {max(result.nmi.values()):.3f}" if agreement else f"J {J}",
        finding=f"{words} agree {agreement} (NMI, from 0 to 1)" if agreement else words,
        facts=(
            *(Fact(f"NMI with {name}", f"{value:.3f}") for name, value in result.nmi.items()),
            Fact("Clusters", f"{result.n_clusters:,}"),
            Fact("Objective J", J, "Of the last W."),
            Fact("Rounds", f"{len(result.rounds):,}"),
            Fact("Seconds", f"{result.seconds:.2f}"),
        ),
        blocks=(
            _clusters(result, view),
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


def _clusters(result: ClusterResult, view: View | None) -> Block:
    sizes = tuple((str(cluster), f"{size:,}") for cluster, size in enumerate(result.sizes))
    tables = [Table(say("clusters.sizes"), ("cluster", "rows"), sizes)]
    if result.nmi:
        agreement = tuple((name, f"{value:.3f}") for name, value in result.nmi.items())
        tables.append(Table(say("clusters.agreement"), ("label", "NMI"), agreement))
    return Block(
        "Clusters",
        tables=tuple(tables),
        pictures=tuple(figures.stored_pictures(view)) if view else (),
        files=tuple(result.pictures.values()),
    )
