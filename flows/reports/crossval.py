"""Put a cross-validation into words: its accuracy beside baselines, its folds and confusions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from flows.reports.blocks import Block, Fact, Summary, Table, say, sentences
from flows.reports.fit_quality import fit_quality
from flows.reports.fits import chosen_start, data_in_short, data_subject, objective
from flows.reports.pictures import Figure, drawn
from flows.reports.view import View
from flows.results.runs import CrossvalResult, FoldMeasures
from flows.text import number, share
from ism_dask.pictures import drawing

# The baselines that the first sentence of a page names.
_NAMED = ("all features", "chance")
# So many rows have to differ, all for one method, until a sign test rejects chance at 5%.
_SIGNIFICANT_ROWS = 6


def crossval_summary(result: CrossvalResult, _view: View | None) -> Summary:
    """Return the summary of a cross-validation, by one criterion or by both."""
    mean, sd, methods = result.mean, result.sd, result.methods
    facts: tuple[Fact, ...]
    folds = Fact("Folds", f"{len(result.results)} of {result.folds}")
    if len(methods) == 1:
        headline = f"accuracy {mean.accuracy:.3f}"
        found = f"{share(mean.accuracy)} of the held-out rows, ± {share(sd.accuracy)} between folds"
        facts = (
            _accuracy_fact("Accuracy", result),
            folds,
            *objective(-mean.cost, predicts=result.predicts),
            Fact("Seconds per fold", f"{mean.seconds:.2f}"),
        )
    else:
        by_name = {name: one.mean for name, one in methods.items()}
        headline = ", ".join(f"{name} {one.accuracy:.3f}" for name, one in by_name.items())
        shares = " and ".join(f"{share(one.accuracy)} by {name}" for name, one in by_name.items())
        found = f"the held-out rows, {shares}"
        facts = (
            *(_accuracy_fact(f"Accuracy of {name}", one) for name, one in methods.items()),
            folds,
            *(Fact(f"Seconds per fold, {name}", f"{m.seconds:.2f}") for name, m in by_name.items()),
        )
    q = result.n_components
    others = [(name, value) for name, value in _baselines(result).items() if name in _NAMED]
    return Summary(
        subject=data_subject("Cross-validation of", result),
        short=data_in_short(result),
        headline=headline,
        finding=f"{f'{q} new features' if q else 'New features'} classify {found}"
        + "".join(f", {name} {share(value)}" for name, value in others),
        facts=facts,
        blocks=(
            _beside_baselines(result),
            *(
                block
                for name, one in methods.items()
                for block in _details(one, f" of {name}" if len(methods) > 1 else "")
            ),
        ),
    )


def _accuracy_fact(name: str, result: CrossvalResult) -> Fact:
    return Fact(name, f"{result.mean.accuracy:.4f} ± {result.sd.accuracy:.4f}")


def _details(result: CrossvalResult, which: str) -> tuple[Block, ...]:
    """Return the folds of one method; `which` ends their titles if there are several methods."""
    mean, sd = result.mean, result.sd
    folds = Table(
        say("crossval.folds"),
        ("fold", "accuracy", "J", "seconds", "iterations"),
        tuple(_fold_cells(str(each.fold), each.measures, -each.cost) for each in result.results),
        foot=(
            _fold_cells("mean", mean, -mean.cost),
            _fold_cells("sd", sd, sd.cost),  # a deviation has no sign
        ),
    )
    pictures = (_accuracies(result, which),)
    return (
        Block(f"Folds{which}", tables=(folds,), pictures=pictures, detail=bool(which)),
        *_confusion(result, which),
        *_selections(result),
        Block(f"How far to trust {which[4:] or 'it'}", facts=fit_quality(result)),
    )


def _accuracies(result: CrossvalResult, which: str) -> Figure:
    mean, folds = result.mean.accuracy, [each.fold for each in result.results]
    values, about = [each.accuracy for each in result.results], say("crossval.accuracy", mean=mean)
    return drawn(f"Accuracy{which}", about, _draw_accuracy, folds=folds, values=values, mean=mean)


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


def _beside_baselines(result: CrossvalResult) -> Block:
    """Return the accuracy of each method beside those of other features."""
    q, others, known = result.n_components, _baselines(result), sentences()["baselines"]
    features = f"{q} new features" if q else "new features, as many as each fold chooses"
    rows = [
        (name, say(f"methods.{name}", features=features), f"{one.mean.accuracy:.4f}")
        for name, one in result.methods.items()
    ]
    rows += [(name, known[name], f"{value:.4f}") for name, value in others.items()]
    n = round(result.rows * len(result.results) / result.folds)
    one_row = say("crossval.one_row", rows=n, one=1 / n, count=_SIGNIFICANT_ROWS)
    left_out = ", ".join(name for name in known if name not in others)
    size = {"rows": result.rows, "columns": result.columns}
    why = (say("crossval.left_out", names=left_out, **size),) if left_out else ()
    columns = ("method", "features", "accuracy")
    table = Table(say("crossval.baselines"), columns, tuple(rows), left=2)
    return Block("Beside other features", tables=(table,), notes=(one_row, *why))


def _confusion(result: CrossvalResult, which: str) -> list[Block]:
    """Return the held-out rows by true and predicted class, if all folds recorded them."""
    counts = [each.confusion for each in result.results if each.confusion is not None]
    names = result.class_names
    if len(counts) < len(result.results):
        return []
    rows = tuple(
        (name, *(f"{count:,}" for count in row))
        for name, row in zip(names, np.sum(counts, axis=0), strict=True)
    )
    table = Table(say("crossval.confusion"), ("true class", *names), rows)
    return [Block(f"Confusions{which}", tables=(table,), detail=True)]


def _selections(result: CrossvalResult) -> list[Block]:
    """Return what each fold of a cross-validation by prediction chose."""
    rows = tuple(
        (
            str(each.fold),
            chosen_start(each.selection, each.status),
            number(each.selection.width),
            number(each.selection.ridge),
            each.selection.target,
        )
        for each in result.results
        if each.selection is not None
    )
    table = Table(say("chosen.how"), ("fold", "start", "width", "ridge", "target"), rows)
    return [Block("What was chosen", tables=(table,), detail=True)] if rows else []
