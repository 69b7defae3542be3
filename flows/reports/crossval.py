"""Put a cross-validation into words: its accuracy beside baselines, its folds and confusions."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from flows.reports.blocks import Block, Fact, Summary, Table, say, sentences
from flows.reports.fit_quality import fit_quality
from flows.reports.fits import chosen_start, data_in_short, data_subject, objective
from flows.reports.pictures import Figure, drawn
from flows.reports.view import View
from flows.results.runs import CrossvalResult, FoldMeasures
from flows.settings.runs import DEPENDENCE, PREDICTION
from flows.text import number, share
from ism_dask.pictures.drawing import draw_accuracy

# The baselines that the first sentence of a page names.
_BESIDE = ("all features", "chance")


def crossval_summary(result: CrossvalResult, _view: View | None) -> Summary:
    """Return the summary of a cross-validation."""
    mean, sd, q = result.mean, result.sd, result.n_components
    others = [(name, value) for name, value in _baselines(result).items() if name in _BESIDE]
    folds = Table(
        say("crossval.folds"),
        ("fold", "accuracy", "J", "seconds", "iterations"),
        tuple(_fold_cells(str(each.fold), each.measures, -each.cost) for each in result.results),
        foot=(
            _fold_cells("mean", mean, -mean.cost),
            _fold_cells("sd", sd, sd.cost),  # a deviation has no sign
        ),
    )
    return Summary(
        subject=data_subject("Cross-validation of", result),
        short=data_in_short(result),
        headline=f"accuracy {mean.accuracy:.3f}",
        finding=f"{f'{q} new features' if q else 'New features'} classify {share(mean.accuracy)} "
        f"of the held-out rows, ± {share(sd.accuracy)} between folds"
        + "".join(f", {name} {share(value)}" for name, value in others),
        facts=(
            Fact("Accuracy", f"{mean.accuracy:.4f} ± {sd.accuracy:.4f}"),
            Fact("Folds", f"{len(result.results)} of {result.folds}"),
            *objective(-mean.cost, predicts=result.predicts),
            Fact("Seconds per fold", f"{mean.seconds:.2f}"),
        ),
        blocks=(
            _beside_baselines(result),
            Block("Folds", tables=(folds,), pictures=(_accuracies(result),)),
            *_confusion(result),
            *_selections(result),
            Block("How far to trust it", facts=fit_quality(result)),
        ),
    )


def _accuracies(result: CrossvalResult) -> Figure:
    mean, folds = result.mean.accuracy, [each.fold for each in result.results]
    values, about = [each.accuracy for each in result.results], say("crossval.accuracy", mean=mean)
    return drawn("Accuracy", about, draw_accuracy, folds=folds, values=values, mean=mean)


def _fold_cells(name: str, measures: FoldMeasures, objective: float) -> tuple[str, ...]:
    others = map(number, (objective, measures.seconds, measures.iterations))
    return (name, f"{measures.accuracy:.4f}", *others)


def _baselines(result: CrossvalResult) -> dict[str, float]:
    """Return the mean accuracy of other features by their names, if all folds have it."""
    folds = [each.baselines for each in result.results]
    return {
        name: fmean(fold[name] for fold in folds)
        for name in sentences()["baselines"]
        if name != _own(result) and all(name in fold for fold in folds)
    }


def _own(result: CrossvalResult) -> str:
    """Return the name of the features of the run itself beside the baselines."""
    return PREDICTION if result.predicts else DEPENDENCE


def _beside_baselines(result: CrossvalResult) -> Block:
    """Return the accuracy beside those of other features."""
    q, others = result.n_components, _baselines(result)
    features = f"{q} new features" if q else "new features, as many as each fold chooses"
    own, known = _own(result), sentences()["baselines"]
    rows = [(own, f"{features}, this run", f"{result.mean.accuracy:.4f}")]
    rows += [(name, known[name], f"{value:.4f}") for name, value in others.items()]
    left_out = ", ".join(name for name in known if name not in (own, *others))
    size = {"rows": result.rows, "columns": result.columns}
    note = say("crossval.left_out", names=left_out, **size) if left_out else ""
    columns = ("method", "features", "accuracy")
    table = Table(say("crossval.baselines"), columns, tuple(rows), left=2)
    return Block("Beside other features", tables=(table,), notes=(note,) if note else ())


def _confusion(result: CrossvalResult) -> list[Block]:
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
    return [Block("Confusions", tables=(table,), detail=True)]


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
