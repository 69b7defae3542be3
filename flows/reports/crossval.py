"""Put a cross-validation into words: its accuracy beside baselines, its folds and confusions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from flows.reports.blocks import Block, Fact, Summary, Table, say, sentences
from flows.reports.fit_quality import fit_quality
from flows.reports.fits import chosen_start, data_in_short, data_subject, objective
from flows.reports.pictures import drawn
from flows.results.runs import CrossvalResult, FoldMeasures
from ism_dask.pictures import drawing
from ism_dask.words import count_noun, number, share
from storage import Model

# The baselines that the first sentence of a page names.
_NAMED = ("all features", "chance")
# So many rows have to differ, all for one method, until a sign test rejects chance at 5%.
_SIGNIFICANT_ROWS = 6


def crossval_summary(result: CrossvalResult, _model: Model | None) -> Summary:
    """Return the summary of a cross-validation, by one criterion or by both."""
    methods, q, others = result.methods, result.n_components, _baselines(result)
    accuracies = {name: one.mean.accuracy for name, one in methods.items()}
    several = len(methods) > 1
    if several:
        headline = ", ".join(f"{name} {value:.3f}" for name, value in accuracies.items())
        shares = [f"{share(value)} by {name}" for name, value in accuracies.items()]
        found = f"the held-out rows, {' and '.join(shares)}"
    else:
        mean, sd = result.mean.accuracy, result.sd.accuracy
        headline = f"accuracy {mean:.3f}"
        found = f"{share(mean)} of the held-out rows, ± {share(sd)} between folds"
    beside = [f", {name} {share(others[name])}" for name in _NAMED if name in others]
    facts = [
        Fact(
            f"Accuracy of {name}" if several else "Accuracy",
            f"{one.mean.accuracy:.4f} ± {one.sd.accuracy:.4f}",
        )
        for name, one in methods.items()
    ]
    facts.append(Fact("Folds", f"{len(result.results)} of {result.folds}"))
    if not several:
        facts += objective(-result.mean.cost, predicts=result.predicts)
    facts += [
        Fact("Seconds per fold" + f", {name}" * several, f"{one.mean.seconds:.2f}")
        for name, one in methods.items()
    ]
    details = [
        block for name, one in methods.items() for block in _details(one, name if several else "")
    ]
    return Summary(
        subject=data_subject("Cross-validation of", result),
        short=data_in_short(result),
        headline=headline,
        finding=f"{f'{q} new features' if q else 'New features'} classify {found}{''.join(beside)}",
        facts=tuple(facts),
        blocks=(_beside_baselines(result, others), *details),
    )


def _details(result: CrossvalResult, method: str) -> list[Block]:
    """Return the folds of a method, whose name is empty if there is no other."""
    which = f" of {method}" if method else ""
    folds, mean, sd = result.results, result.mean, result.sd
    table = Table(
        say("crossval.folds"),
        ("fold", "accuracy", "J", "seconds", "iterations"),
        tuple(_fold_cells(str(each.fold), each.measures, -each.cost) for each in folds),
        foot=(
            _fold_cells("mean", mean, -mean.cost),
            _fold_cells("sd", sd, sd.cost),  # a deviation has no sign
        ),
    )
    picture = drawn(
        f"Accuracy{which}",
        say("crossval.accuracy", mean=mean.accuracy),
        _draw_accuracy,
        folds=[each.fold for each in folds],
        values=[each.accuracy for each in folds],
        mean=mean.accuracy,
    )
    blocks = [Block(f"Folds{which}", tables=(table,), pictures=(picture,), detail=bool(which))]
    # The held-out rows by true and predicted class, if all folds recorded them.
    counts = [each.confusion for each in folds if each.confusion is not None]
    if len(counts) == len(folds):
        names = result.class_names
        rows = zip(names, np.sum(counts, axis=0), strict=True)
        cells = tuple((name, *(f"{count:,}" for count in row)) for name, row in rows)
        table = Table(say("crossval.confusion"), ("true class", *names), cells)
        blocks.append(Block(f"Confusions{which}", tables=(table,), detail=True))
    # What each fold by prediction chose.
    chosen = tuple(
        (
            str(each.fold),
            chosen_start(each.selection, each.status),
            number(each.selection.width),
            number(each.selection.ridge),
            each.selection.target,
        )
        for each in folds
        if each.selection is not None
    )
    if chosen:
        table = Table(say("chosen.how"), ("fold", "start", "width", "ridge", "target"), chosen)
        blocks.append(Block("What was chosen", tables=(table,), detail=True))
    return [*blocks, Block(f"How far to trust {method or 'it'}", facts=fit_quality(result))]


def _draw_accuracy(
    ax: Any, folds: Sequence[int], values: Sequence[float], mean: float
) -> drawing.Entries:
    """Draw the accuracy of each fold, and their mean as a dashed line."""
    ax.plot(folds, values, "o", color=drawing.BLUE)
    ax.axhline(mean, color=drawing.GREY, ls="--", label=f"mean {mean:.4f}")
    drawing.name_whole_numbers(ax, "fold", "accuracy", folds)
    return drawing.labelled(ax)


def _fold_cells(name: str, measures: FoldMeasures, objective: float) -> tuple[str, ...]:
    others = map(number, (objective, measures.seconds, measures.iterations))
    return (name, f"{measures.accuracy:.4f}", *others)


def _baselines(result: CrossvalResult) -> dict[str, float]:
    """Return the mean accuracy of other features by their names, if all folds have it."""
    folds = [each.baselines for each in result.results]
    return {
        name: fmean(fold[name] for fold in folds)
        for name in sentences()["baselines"]
        if all(name in fold for fold in folds)
    }


def _beside_baselines(result: CrossvalResult, others: dict[str, float]) -> Block:
    """Return the accuracy of each method beside those of other features."""
    q, known = result.n_components, sentences()["baselines"]
    features = count_noun(q, "new feature") if q else "new features, as many as each fold chooses"
    rows = [
        (name, say(f"methods.{name}", features=features), f"{one.mean.accuracy:.4f}")
        for name, one in result.methods.items()
    ]
    rows += [(name, known[name], f"{value:.4f}") for name, value in others.items()]
    n = round(result.rows * len(result.results) / result.folds)
    notes = [say("crossval.one_row", rows=n, one=1 / n, count=_SIGNIFICANT_ROWS)]
    if left_out := ", ".join(name for name in known if name not in others):
        size = {"rows": result.rows, "columns": result.columns}
        notes.append(say("crossval.left_out", names=left_out, **size))
    columns = ("method", "features", "accuracy")
    table = Table(say("crossval.baselines"), columns, tuple(rows), left=2)
    return Block("Beside other features", tables=(table,), notes=tuple(notes))
