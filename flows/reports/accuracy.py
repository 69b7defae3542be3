"""Put a cross-validation into words: its accuracy beside baselines, its folds and confusions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flows import text
from flows.reports.blocks import Block, Fact, Table
from flows.reports.selection import objective, selections_of_folds
from flows.reports.trust import crossval_trust
from flows.reports.view import View
from flows.results.runs import CrossvalResult, FoldMeasures
from flows.settings.runs import DEPENDENCE, PREDICTION

if TYPE_CHECKING:
    from flows.reports.figures import Figure

# What the features of each baseline are.
_BASELINES = {
    DEPENDENCE: "as many new features, of largest HSIC",
    "PCA": "as many principal components",
    "LDA": "linear discriminants, at most as many, and one less than classes",
    "all features": "all features, standardised",
    "chance": "the most frequent class, always",
}


def crossval_facts(result: CrossvalResult) -> tuple[Fact, ...]:
    """Return the figures at the top of a cross-validation."""
    mean, sd = result.mean, result.sd
    return (
        Fact("Accuracy", f"{mean.accuracy:.4f} ± {sd.accuracy:.4f}"),
        Fact("Folds", f"{len(result.results)} of {result.folds}"),
        *objective(-mean.cost, predicts=result.predicts),
        Fact("Seconds per fold", f"{mean.seconds:.2f}"),
    )


def crossval_blocks(result: CrossvalResult, view: View | None) -> list[Block]:
    """Return all else of a cross-validation: its baselines, folds and confusions."""
    folds = Table(
        "Each fold; in the end mean and population standard deviation.",
        ("fold", "accuracy", "J", "seconds", "iterations"),
        tuple(_fold_cells(str(each.fold), each.measures, -each.cost) for each in result.results),
        foot=(
            _fold_cells("mean", result.mean, -result.mean.cost),
            _fold_cells("sd", result.sd, result.sd.cost),  # a deviation has no sign
        ),
    )
    return [
        *_beside_baselines(result),
        Block("Folds", tables=(folds,), draw=None if view is None else lambda: _drawn(view)),
        *_confusion(result),
        *selections_of_folds(result),
        Block("How far to trust it", facts=crossval_trust(result)),
    ]


def _fold_cells(name: str, measures: FoldMeasures, objective: float) -> tuple[str, ...]:
    return (
        name,
        f"{measures.accuracy:.4f}",
        text.number(objective),
        text.number(measures.seconds),
        text.number(measures.iterations),
    )


def _drawn(view: View) -> Sequence[Figure]:
    # Imported when pictures are drawn, which the terminal does not need.
    from flows.reports import figures  # noqa: PLC0415

    return [figures.accuracy(view)]


def _beside_baselines(result: CrossvalResult) -> list[Block]:
    """Return the accuracy beside those of other features."""
    folds = [each.baselines for each in result.results]
    q = result.n_components
    features = f"{q} new features" if q else "new features, as many as each fold chooses"
    own = PREDICTION if result.predicts else DEPENDENCE
    means = [(own, f"{features}, this run", result.mean.accuracy)]
    means += [
        (name, about, float(np.mean([fold[name] for fold in folds])))
        for name, about in _BASELINES.items()
        if name != own and all(name in fold for fold in folds)
    ]
    known = [name for name, *_ in means]
    left_out = ", ".join(name for name in _BASELINES if name not in known)
    note = f"Left out, because {result.rows:,} rows of {result.columns:,} columns are too many: "
    table = Table(
        "The accuracy of the same classifier on the same folds, with other features.",
        ("method", "features", "accuracy"),
        tuple((name, about, f"{value:.4f}") for name, about, value in means),
        left=2,
    )
    notes = (f"{note}{left_out}.",) if left_out else ()
    return [Block("Beside other features", tables=(table,), notes=notes)]


def _confusion(result: CrossvalResult) -> list[Block]:
    """Return the held-out rows by true and predicted class, if all folds recorded them."""
    counts = [each.confusion for each in result.results if each.confusion is not None]
    names = result.class_names
    if len(counts) < len(result.results):
        return []
    summed = np.sum(counts, axis=0)
    rows = tuple(
        (name, *(f"{count:,}" for count in row)) for name, row in zip(names, summed, strict=True)
    )
    table = Table(
        "Held-out rows of all folds: a row for each true class, a column for the predicted one.",
        ("true class", *names),
        rows,
    )
    return [Block("Confusions", tables=(table,), detail=True)]
