"""Put the criterion of a fit into words: what J means, and what a fit by prediction chose."""

from __future__ import annotations

from flows import text
from flows.reports.blocks import Block, Fact, Table
from flows.results.runs import CrossvalResult, FitResult, Selection
from ism_dask.status import Status

_HOW_CHOSEN = (
    "The width is a multiple of the kernel's own, the ridge a share of the mean kernel of a row "
    "with itself."
)
_TARGETS = {"mean": "the label itself", "law": "functions of the label, on which its law depends"}


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
    return Fact("Objective J", text.number(value), meaning), Fact("Criterion", criterion)


def selection_of_fit(result: FitResult) -> list[Block]:
    """Return what a fit by prediction chose, and the trials that unseen rows have judged."""
    chosen = result.fitted.selection
    if chosen is None:
        return []
    start = start_of(chosen, result.fitted.ending.status)
    facts: tuple[Fact, ...] = (
        Fact("Start", start),
        Fact("Width", text.number(chosen.width)),
        Fact("Ridge", text.number(chosen.ridge)),
        Fact("Target", chosen.target, f"Predicted is {_TARGETS[chosen.target]}."),
    )
    if chosen.other_maximum:
        meaning = "Another start led to them, and rows do not tell which are better."
        angle = f"as good, at an angle with the sine {chosen.other_maximum:.2f}"
        facts = (*facts, Fact("Other features", angle, meaning))
    rows = tuple(
        (each.start, *map(_or_start, (each.width, each.ridge)), f"{100 * each.explained:.1f}%")
        for each in chosen.tried
    )
    caption = "The best trials, by the share of the label that unseen rows explain."
    tables = (Table(caption, ("start", "width", "ridge", "explained"), rows),) if rows else ()
    return [Block("What was chosen", about=_HOW_CHOSEN, facts=facts, tables=tables)]


def selections_of_folds(result: CrossvalResult) -> list[Block]:
    """Return what each fold of a cross-validation by prediction chose."""
    chosen = [(each, each.selection) for each in result.results if each.selection is not None]
    if not chosen:
        return []
    rows = tuple(
        (
            str(fold.fold),
            start_of(selection, fold.ending.status),
            text.number(selection.width),
            text.number(selection.ridge),
            selection.target,
        )
        for fold, selection in chosen
    )
    table = Table(_HOW_CHOSEN, ("fold", "start", "width", "ridge", "target"), rows)
    return [Block("What was chosen", tables=(table,), detail=True)]


def start_of(chosen: Selection, status: str) -> str:
    """Return the name of the start of a fit by prediction, and whether W is the start itself."""
    if not chosen.tried:
        return "not judged by unseen rows"
    if status == Status.START.value:
        return f"{chosen.tried[0].start}, kept"
    climbed = [each.start for each in chosen.tried if each.width is not None]
    return climbed[0] if climbed else chosen.tried[0].start


def _or_start(value: float | None) -> str:
    return "the start" if value is None else text.number(value)
