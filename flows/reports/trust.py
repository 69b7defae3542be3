"""How far to trust the W of a run: whether it converged, its engine, error bound and residual."""

from __future__ import annotations

import math

from flows import text
from flows.reports.blocks import Fact
from flows.results.runs import ClusterResult, CrossvalResult, FitResult, FittedW

# W with a residual up to this counts as stationary, as a converged fit claims.
_SMALL_RESIDUAL = 1e-4
# Above this residual W is no stationary point; a fit that stops at the default tolerance has some
# hundredths.
_LARGE_RESIDUAL = 0.5
# An error bound on J below this is rounding error only.
_ROUNDING = 1e-6


def fit_trust(result: FitResult) -> tuple[Fact, ...]:
    """Return how far to trust a fit."""
    ending = result.fitted.ending
    note = f"the best W so far was saved. It {text.ending_words(ending.status)}"
    return _trust_in_w(result.fitted, result.rows, note)


def cluster_trust(result: ClusterResult) -> tuple[Fact, ...]:
    """Return how far to trust a clustering."""
    advice = ["the best so far was saved"]
    status = result.fitted.ending.status
    if status == "converged":
        advice.append("W did converge, but the rounds did not")
    else:
        advice.append(f"W {text.ending_words(status)}")
    if result.rounds and result.rounds[-1].change >= result.settings.get("outer_tol", math.inf):
        advice.append("Raise --max-outer or --outer-tol")
    return _trust_in_w(result.fitted, result.rows, ". ".join(advice))


def crossval_trust(result: CrossvalResult) -> tuple[Fact, ...]:
    """Return how far to trust the fits of all folds, by the worst of them."""
    folds = result.results
    endings = [each.ending for each in folds]
    numbers: dict[str, list[str]] = {}
    for each in folds:
        if not each.ending.converged:
            numbers.setdefault(each.ending.status, []).append(str(each.fold))
    notes = [
        f"fold {', '.join(which)} {text.ending_words(status)}" for status, which in numbers.items()
    ]
    worst = max(endings, key=lambda each: each.residual)
    checked = f"in the worst fold, true kernel, {worst.residual_rows:,} rows"
    engine_note = text.fold_notes({each.fold: each.ending.engine_note for each in folds})
    return (
        _convergence(not notes, *notes),
        _engine(" and ".join(dict.fromkeys(each.engine for each in endings)), engine_note),
        _error_bound(max(each.engine_error for each in endings)),
        _residual(worst.residual, f"{worst.residual:.2g} {checked}"),
    )


def _trust_in_w(fitted: FittedW, rows: int, not_converged: str) -> tuple[Fact, ...]:
    ending = fitted.ending
    checked = text.residual_words(ending.residual, ending.residual_rows, rows)
    return (
        _convergence(ending.converged, not_converged),
        _engine(ending.engine, ending.engine_note),
        _error_bound(ending.engine_error),
        _residual(ending.residual, checked),
        *_component_count(fitted),
    )


def _convergence(converged: bool, *not_converged: str) -> Fact:
    if not converged:
        return Fact("Converged", "no", notes=tuple(f"not converged: {n}" for n in not_converged))
    meaning = "W is stationary, and neither steps nor a look around found a higher J."
    return Fact("Converged", "yes", meaning)


def _engine(engine: str, note: str) -> Fact:
    return Fact("Engine", engine, notes=(note,) if note else ())


def _error_bound(error: float) -> Fact:
    name, value = "Error of J", f"{error:.1e} at most"
    if error < _ROUNDING:
        meaning = "The engine leaves nothing out: this is a bound on what rounding does to J."
        return Fact(name, value, meaning)
    if not math.isfinite(error):
        meaning = "The engine approximates, and no bound on the error of J is known."
        return Fact(name, "no bound", meaning)
    meaning = "The engine approximates: the true J is within this share of the reported one."
    return Fact(name, value, meaning)


def _residual(residual: float, words: str) -> Fact:
    meaning = (
        "How far W is from a point where the objective is stationary, under the true kernel: "
        "0 at one, near 1 far from any."
    )
    if residual > _LARGE_RESIDUAL:
        note = (
            f"the residual is {residual:.2g}: W is no stationary point. Between these rows the "
            "kernel may be zero or flat; try --sigma median"
        )
        return Fact("Residual", words, meaning, (note,))
    size = "This one is small." if residual <= _SMALL_RESIDUAL else "This one is not small."
    return Fact("Residual", words, f"{meaning} {size}")


def _component_count(fitted: FittedW) -> tuple[Fact, ...]:
    """Return whether each new feature adds to J; nothing for a record without eigenvalues."""
    if not fitted.eigenvalues:
        return ()
    advice = text.components_words(fitted.components_advice, fitted.eigenvalues, fitted.eigengap)
    name, value = "Number of new features", f"{len(fitted.eigenvalues)}"
    if advice:
        return (Fact(name, value, notes=(advice,)),)
    meaning = "Each counts for J, and none outside of W would count for more."
    return (Fact(name, value, meaning),)
