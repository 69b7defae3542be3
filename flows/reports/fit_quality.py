"""How far to trust the W of a run: how its fit ended, its tolerance, engine, error and residual."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flows.reports.blocks import Fact, say, sentences
from flows.results.runs import ClusterResult, CrossvalResult, FitEnding, FitResult
from ism_dask.records.iteration import ANGLE, RESIDUAL
from ism_dask.status import Status
from ism_dask.words import count_noun

# Above this residual W is no stationary point; a fit that stops at the default tolerance has some
# hundredths.
_LARGE_RESIDUAL = 0.5
# With an error bound on J below this, next to nothing is left out.
_LITTLE = 1e-6
# The ending of a fit whose W is a start that unseen rows have judged best: no warning is due.
_START = Status.START.value
# Advice on rounds that ended before their limit, since the movement did not fall any more.
_ENDED_EARLY = ". Raise --outer-tol, or take --engine exact"

_Result = FitResult | ClusterResult | CrossvalResult


def fit_quality(result: _Result) -> tuple[Fact, ...]:
    """Return how far to trust a run; for a cross-validation, by the worst of its folds."""
    endings: dict[int, FitEnding] = (
        {each.fold: each for each in result.results}
        if isinstance(result, CrossvalResult)
        else {1: result}
    )
    every = list(endings.values())
    moved = [each for each in every if each.status != _START] or every
    worst = max(moved, key=lambda each: each.residual)
    facts = [_convergence(result, endings)]
    if isinstance(result, ClusterResult) and result.rounds and "outer_tol" in result.settings:
        last, limit = result.rounds[-1], result.settings["outer_tol"]
        value = f"{last.change:.2g} and {last.turn:.2g}, to be below {limit:.4g}"
        facts.append(Fact("Change in the last round", value, say("quality.last_round")))
    if worst.status != _START:
        facts.append(_tolerance(worst, result.settings))
        if angles := [each.angle for each in moved if each.angle is not None]:
            angle, warnings = max(angles), tuple[str, ...]()
            if worst.measure == "change" and angle > ANGLE:
                warnings = (say("quality.turns", angle=angle, limit=ANGLE),)
            about = say("quality.angle")
            facts.append(Fact("Last turn of W", f"{angle:.2g}", about, warnings=warnings))
        facts.append(_residual(worst, result))
    engines = " and ".join(dict.fromkeys(each.engine for each in every))
    notes = {fold: each.engine_note for fold, each in endings.items()}
    facts.append(Fact("Engine", engines, notes=_notes(notes)))
    if not result.predicts:
        error = max(each.engine_error for each in every)
        known = "little" if error < _LITTLE else "bounded" if math.isfinite(error) else "unknown"
        value = "no bound" if known == "unknown" else f"{error:.1e} at most"
        facts.append(Fact("Error of J", value, say(f"error.{known}")))
    # No eigenvalue of a model of an earlier version is known.
    if not isinstance(result, CrossvalResult) and result.eigenvalues:
        name, count = "Number of new features", f"{len(result.eigenvalues)}"
        if result.components_advice:
            facts.append(Fact(name, count, warnings=(as_sentence(result.components_advice),)))
        else:
            criterion = "prediction" if result.predicts else "dependence"
            facts.append(Fact(name, count, say(f"quality.{criterion}_count")))
    return tuple(facts)


def ending_words(status: str) -> str:
    """Return how a fit ended that has not converged, and advice that names options."""
    ending = Status(status)
    return f"{_with_options(ending.meaning)}. {as_sentence(ending.advice)}"


def _with_options(words: str) -> str:
    """Return `words` with command-line options in place of estimator parameters."""
    for parameter, option in sentences()["options"].items():
        words = words.replace(parameter, option)
    return words


def as_sentence(words: str) -> str:
    """Return words of an estimator with a capital letter, and with options for parameters."""
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


def _convergence(result: _Result, endings: Mapping[int, FitEnding]) -> Fact:
    """Return whether W converged, and what is known of it; the endings are by fold."""
    bad = {
        fold: each.status
        for fold, each in endings.items()
        if not each.converged and each.status != _START
    }
    if bad:
        statuses = dict.fromkeys(bad.values())
        is_described = len(endings) == 1 and statuses.keys() <= sentences()["ended"].keys()
        known = say(f"ended.{next(iter(statuses)) if is_described else 'unfinished'}")
        if isinstance(result, CrossvalResult):
            folds = {
                status: ", ".join(str(fold) for fold, each in bad.items() if each == status)
                for status in statuses
            }
            problems = [f"fold {folds[status]} {ending_words(status)}" for status in statuses]
        elif isinstance(result, FitResult):
            problems = [f"the best W so far was saved. It {ending_words(result.status)}"]
        else:
            w = ending_words(result.status)
            if result.status == Status.CONVERGED.value:
                w = "did converge, but the rounds did not"
            limit = result.settings.get("outer_tol", math.inf)
            time_is_up = result.status == Status.OVER_CAP.value
            if result.rounds and result.rounds[-1].movement >= limit and not time_is_up:
                all_taken = len(result.rounds) >= result.settings.get("max_outer", 0)
                w += ". Raise --max-outer or --outer-tol" if all_taken else _ENDED_EARLY
            problems = [f"the last round was saved. W {w}"]
        warnings = tuple(f"not converged: {each}" for each in problems)
        return Fact("Converged", "no", known, warnings=warnings)
    starts = sum(each.status == _START for each in endings.values())
    if starts == len(endings):
        return Fact("Converged", "a start was kept", say(f"ended.{_START}"))
    notes = (f"{count_noun(starts, 'fold')} kept a start",) if starts else ()
    known = "settled" if isinstance(result, ClusterResult) else "stationary"
    return Fact("Converged", "yes", say(f"ended.{known}"), notes=notes)


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
    is_met = ending.measure == "residual" and residual <= ending.tolerance
    size = "small" if residual <= RESIDUAL else "within the tolerance" if is_met else "not small"
    return Fact("Residual", value, f"{meaning} This one is {size}.")
