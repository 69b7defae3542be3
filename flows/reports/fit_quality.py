"""How far to trust the W of a run: how its fit ended, its tolerance, engine, error and residual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from flows.reports.blocks import Fact, say, sentences
from flows.results.runs import ClusterResult, CrossvalResult, FitEnding, FitResult, FittedW
from flows.text import count_noun
from ism_dask.records.iteration import ANGLE, RESIDUAL
from ism_dask.status import Status

# Above this residual W is no stationary point; a fit that stops at the default tolerance has some
# hundredths.
_LARGE_RESIDUAL = 0.5
# With an error bound on J below this, next to nothing is left out.
_LITTLE = 1e-6
# The ending of a fit whose W is a start that unseen rows have judged best: no warning is due.
_START = Status.START.value

_Result = FitResult | ClusterResult | CrossvalResult
# How each fit of a run ended, by the number of its fold.
Endings = Mapping[int, FitEnding]


def fit_quality(result: _Result) -> tuple[Fact, ...]:
    """Return how far to trust a run; for a cross-validation, by the worst of its folds."""
    if isinstance(result, CrossvalResult):
        endings: Endings = {each.fold: each for each in result.results}
    else:
        endings = {1: result}
    every = list(endings.values())
    moved = [each for each in every if each.status != _START] or every
    worst = max(moved, key=lambda each: each.residual)
    facts = [_convergence(result, endings, worst)]
    if isinstance(result, ClusterResult):
        facts.append(_last_round(result))
    if worst.status != _START:
        widest = max(moved, key=lambda each: each.angle or 0.0)
        facts += [_tolerance(worst, result.settings), _last_turn(widest), _residual(worst, result)]
    engines = " and ".join(dict.fromkeys(each.engine for each in every))
    notes = {fold: each.engine_note for fold, each in endings.items()}
    facts.append(Fact("Engine", engines, notes=_notes(notes)))
    if not result.predicts:
        facts.append(_error_of_objective(max(every, key=lambda each: each.engine_error)))
    if not isinstance(result, CrossvalResult):
        facts.append(_component_count(result))
    return tuple(fact for fact in facts if fact.value)


def ending_words(status: str) -> str:
    """Return how a fit ended that has not converged, and advice that names options."""
    ending = Status(status)
    return f"{_with_options(ending.meaning)}. {_sentence(ending.advice)}"


def _with_options(words: str) -> str:
    """Return `words` with command-line options in place of estimator parameters."""
    for parameter, option in sentences()["options"].items():
        words = words.replace(parameter, option)
    return words


def _sentence(words: str) -> str:
    words = _with_options(words)
    return words[:1].upper() + words[1:]


def _notes(notes: Mapping[int, str]) -> tuple[str, ...]:
    """Return the note on a fit; on folds a line with the first note and the folds that have it."""
    noted = {fold: note for fold, note in notes.items() if note}
    if not noted or len(notes) == 1:
        return tuple(noted.values())
    first = next(iter(noted.values()))
    same = ", ".join(str(fold) for fold, note in noted.items() if note == first)
    others = ", ".join(str(fold) for fold, note in noted.items() if note != first)
    more = f" (fold {others}: with other numbers, which --json has)" if others else ""
    return (f"fold {same}: {first}{more}",)


def _convergence(result: _Result, endings: Endings, worst: FitEnding) -> Fact:
    """Return whether W converged, and what is known of it."""
    bad = {
        fold: each.status
        for fold, each in endings.items()
        if not each.converged and each.status != _START
    }
    if bad:
        is_described = len(endings) == 1 and worst.status in sentences()["ended"]
        known = say(f"ended.{worst.status if is_described else 'unfinished'}")
        warnings = tuple(f"not converged: {each}" for each in _problems(result, bad))
        return Fact("Converged", "no", known, warnings=warnings)
    if worst.status == _START:
        return Fact("Converged", "a start was kept", say(f"ended.{_START}"))
    starts = sum(each.status == _START for each in endings.values())
    notes = (f"{count_noun(starts, 'fold')} kept a start",) if starts else ()
    known = "settled" if isinstance(result, ClusterResult) else "stationary"
    return Fact("Converged", "yes", say(f"ended.{known}"), notes=notes)


def _problems(result: _Result, bad: Mapping[int, str]) -> Iterable[str]:
    """Yield what did not converge, with advice; `bad` are statuses by fold."""
    if isinstance(result, CrossvalResult):
        for status in dict.fromkeys(bad.values()):
            folds = ", ".join(str(fold) for fold, each in bad.items() if each == status)
            yield f"fold {folds} {ending_words(status)}"
        return
    (status,) = bad.values()
    if isinstance(result, FitResult):
        yield f"the best W so far was saved. It {ending_words(status)}"
        return
    converged = status == Status.CONVERGED.value
    w = "did converge, but the rounds did not" if converged else ending_words(status)
    limit = result.settings.get("outer_tol", math.inf)
    unsettled = result.rounds and max(result.rounds[-1].change, result.rounds[-1].turn) >= limit
    advice = ". Raise --max-outer or --outer-tol" if unsettled else ""
    yield f"the last round was saved. W {w}{advice}"


def _tolerance(ending: FitEnding, settings: Mapping[str, Any]) -> Fact:
    """Return the tolerance that was in force, and why."""
    limit = ending.tolerance
    if ending.measure == "change":
        value = f"change of the eigenvalues below {limit:.4g}"
        reason = "rounds" if settings.get("tol") is None else "tol"
    else:
        value = f"residual at most {limit:.2g}"
        reason = "noise" if limit > RESIDUAL else "default"
        reason = "outer_tol" if "outer_tol" in settings else reason
    return Fact("Tolerance", value, say(f"tolerance.{reason}"))


def _last_turn(ending: FitEnding) -> Fact:
    """Return the angle to the last W but one; without a value if there were no iterations."""
    angle = ending.angle or 0.0
    value = "" if ending.angle is None else f"{angle:.2g}"
    unsettled = ending.measure == "change" and angle > ANGLE
    warnings = (say("quality.turns", angle=angle, limit=ANGLE),) if unsettled else ()
    return Fact("Last turn of W", value, say("quality.angle"), warnings=warnings)


def _last_round(result: ClusterResult) -> Fact:
    """Return how little the last round changed; without a value if no limit was set to it."""
    limit, value = result.settings.get("outer_tol"), ""
    if limit is not None and result.rounds:
        last = result.rounds[-1]
        value = f"{last.change:.2g} and {last.turn:.2g}, to be below {limit:.4g}"
    return Fact("Change in the last round", value, say("quality.last_round"))


def _residual(ending: FitEnding, result: _Result) -> Fact:
    residual, count = ending.residual, f"{ending.residual_rows:,}"
    if isinstance(result, CrossvalResult):
        value = f"{residual:.2g} in the worst fold, true kernel, {count} rows"
    elif ending.residual_rows == result.rows:
        value = f"{residual:.2g}, true kernel, all {count} rows"
    else:
        value = f"{residual:.2g}, true kernel, a sample of {count} rows against all {result.rows:,}"
    meaning = say("quality.residual")
    if residual > _LARGE_RESIDUAL:
        warning = say("quality.large_residual", residual=residual)
        return Fact("Residual", value, meaning, warnings=(warning,))
    size = "This one is small." if residual <= RESIDUAL else "This one is not small."
    return Fact("Residual", value, f"{meaning} {size}")


def _error_of_objective(ending: FitEnding) -> Fact:
    error = ending.engine_error
    value, known = f"{error:.1e} at most", "bounded"
    if error < _LITTLE:
        known = "little"
    elif not math.isfinite(error):
        value, known = "no bound", "unknown"
    return Fact("Error of J", value, say(f"error.{known}"))


def _component_count(fitted: FittedW) -> Fact:
    """Return whether each new feature adds to J; without a value if no eigenvalue is known."""
    name, count = "Number of new features", f"{len(fitted.eigenvalues) or ''}"
    if fitted.components_advice:
        return Fact(name, count, warnings=(_sentence(fitted.components_advice),))
    criterion = "prediction" if fitted.predicts else "dependence"
    return Fact(name, count, say(f"quality.{criterion}_count"))
