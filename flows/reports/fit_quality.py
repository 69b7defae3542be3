"""How far to trust the W of a run: how its fit ended, its tolerance, engine, error and residual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from flows.reports.blocks import Fact
from flows.results.runs import ClusterResult, CrossvalResult, FitEnding, FitResult, FittedW
from flows.text import count_noun
from ism_dask.records.stopping_rule import ANGLE, RESIDUAL
from ism_dask.status import Status

# Above this residual W is no stationary point; a fit that stops at the default tolerance has some
# hundredths.
_LARGE_RESIDUAL = 0.5
# An error bound on J below this is rounding error only.
_ROUNDING = 1e-6
# The engine that takes a part of the pairs of rows.
_ESTIMATING_ENGINE = "blocks"
# The solver whose converged fits are checked for a higher J nearby.
_CHECKED_SOLVER = "ism"
# The ending of a fit whose W is a start that unseen rows have judged best: no warning is due.
_START = Status.START.value
# Command-line options that replace the names of estimator parameters in messages.
_OPTIONS = {
    "`tol` of the engine": "--engine-tol",
    "`tol`": "--tol",
    "engine='exact'": "--engine exact",
    "criterion='dependence'": "--criterion dependence",
    "`max_iter`": "--max-iter",
    "fewer `n_components`": "fewer --components",
    "`n_components`": "number of --components",
    "n_components=": "--components ",
    "`max_seconds`": "--max-seconds",
    "`restarts`": "--restarts",
    "`class_weight`": "--balanced",
    "solver='ism'": "--solver ism",
    "`y`": "the label",
    "refine=True": "--refine",
    "`n_neighbors`": "--neighbors",
    "`n_eigenvectors`": "--eigenvectors",
}
# What is known and what is not, by how a fit ended.
_UNFINISHED = (
    "Known: J and the residual of the W that was saved, the best one so far. Not known: how far "
    "further iterations would turn W and raise J."
)
_KNOWN: Mapping[str, str] = {
    Status.TOLERANCE.value: "Known: the last iteration changed the eigenvalues by less than the "
    "tolerance. Not known: how far W would still turn; its residual is 0 if not at all.",
    Status.APPROXIMATE.value: "Known: J and the residual, which were measured under the true "
    "kernel. Not known: the W of largest J, which the error of the engine hides.",
    Status.START.value: "Known: unseen rows are predicted no better by any W that was fitted. Not "
    "known: a W that more rows would tell from this start.",
    Status.LOCAL.value: "Known: W is stationary. Not known: whether a higher maximum is near.",
    Status.FLAT.value: "Known: J does not depend on W. Not known: any direction that explains y.",
    Status.COLUMN_BY_COLUMN.value: "Known: each column of W is stationary beside those before it. "
    "Not known: whether all columns together are.",
}
_SETTLED = (
    "Known: W and the embedding stay, within the tolerance, when each is fitted to the other. Not "
    "known: whether another start would lead to other clusters."
)
_CHECKED = (
    "Known: W is stationary, and neither steps nor a look around found a higher J. Not known: "
    "whether another start would lead to a higher maximum."
)
_STATIONARY = (
    "Known: the residual of W is below the tolerance. Not known: whether J is higher nearby, or "
    "from another start."
)

# How each fit of a run ended, by the number of its fold.
Endings = Mapping[int, FitEnding]


def fit_quality(result: FitResult | ClusterResult | CrossvalResult) -> tuple[Fact, ...]:
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
        facts.append(_rounds(result))
    if worst.status != _START:
        widest = max(moved, key=lambda each: each.angle or 0.0)
        facts += [_tolerance(worst, result.settings), _last_turn(widest), _residual(worst, result)]
    engines = " and ".join(dict.fromkeys(each.engine for each in every))
    notes = {fold: each.engine_note for fold, each in endings.items()}
    facts.append(Fact("Engine", engines, notes=_notes(notes)))
    if not result.predicts:
        facts.append(_error_of_objective(max(every, key=lambda each: each.engine_error)))
        facts.append(_certificates(endings))
    if not isinstance(result, CrossvalResult):
        facts.append(_component_count(result))
    return tuple(fact for fact in facts if fact.value)


def ending_words(status: str) -> str:
    """Return how a fit ended that has not converged, and advice that names options."""
    ending = Status(status)
    return f"{with_options(ending.meaning)}. {_sentence(ending.advice)}"


def with_options(words: str) -> str:
    """Return `words` with command-line options in place of estimator parameters."""
    for parameter, option in _OPTIONS.items():
        words = words.replace(parameter, option)
    return words


def _sentence(words: str) -> str:
    words = with_options(words)
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


def _convergence(
    result: FitResult | ClusterResult | CrossvalResult, endings: Endings, worst: FitEnding
) -> Fact:
    """Return whether W converged, and what is known of it."""
    bad = {
        fold: each.status
        for fold, each in endings.items()
        if not each.converged and each.status != _START
    }
    if bad:
        known = _UNFINISHED if len(endings) > 1 else _KNOWN.get(worst.status, _UNFINISHED)
        warnings = tuple(f"not converged: {each}" for each in _problems(result, bad))
        return Fact("Converged", "no", known, warnings=warnings)
    if worst.status == _START:
        return Fact("Converged", "a start was kept", _KNOWN[_START])
    starts = sum(each.status == _START for each in endings.values())
    notes = (f"{count_noun(starts, 'fold')} kept a start",) if starts else ()
    known = _CHECKED if worst.solver == _CHECKED_SOLVER else _STATIONARY
    return Fact(
        "Converged", "yes", _SETTLED if isinstance(result, ClusterResult) else known, notes=notes
    )


def _problems(
    result: FitResult | ClusterResult | CrossvalResult, bad: Mapping[int, str]
) -> Iterable[str]:
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
        reason = (
            "Set by --tol: small changes of the eigenvalues do not prove that W is stationary."
            if settings.get("tol") is not None
            else "The rule of all rounds but the last ones, which solve until W is stationary."
        )
    else:
        value = f"residual at most {limit:.2g}"
        reason = "The rule without --tol: only such a W counts as converged."
        if limit > RESIDUAL:
            reason = "The slope of J is then below a tenth of its noise between blocks of rows."
        if "outer_tol" in settings:
            reason = "Set by --outer-tol, for W under the embedding of X W."
    return Fact("Tolerance", value, reason)


def _last_turn(ending: FitEnding) -> Fact:
    """Return the angle to the last W but one; without a value if there were no iterations."""
    angle = ending.angle or 0.0
    meaning = (
        "The sine of the angle by which the last iteration turned W: 0 if W stood still, 1 at a "
        "right angle."
    )
    unsettled = (
        f"the eigenvalues met --tol while W still turned, by an angle with the sine {angle:.4g}: "
        f"this W has not settled. Leave --tol out, or set --angle-tol {ANGLE:g}",
    )
    return Fact(
        "Last turn of W",
        "" if ending.angle is None else f"{angle:.2g}",
        meaning,
        warnings=unsettled if ending.measure == "change" and angle > ANGLE else (),
    )


def _rounds(result: ClusterResult) -> Fact:
    """Return how little the last round changed; without a value if no limit was set to it."""
    limit = result.settings.get("outer_tol")
    meaning = (
        "The change of the embedding's eigenvalues, and the sine of the angle by which W turned; "
        "--outer-tol sets the limit."
    )
    value = ""
    if limit is not None and result.rounds:
        last = result.rounds[-1]
        value = f"{last.change:.2g} and {last.turn:.2g}, to be below {limit:.4g}"
    return Fact("Change in the last round", value, meaning)


def _residual(ending: FitEnding, result: FitResult | ClusterResult | CrossvalResult) -> Fact:
    residual, count = ending.residual, f"{ending.residual_rows:,}"
    if isinstance(result, CrossvalResult):
        value = f"{residual:.2g} in the worst fold, true kernel, {count} rows"
    elif ending.residual_rows == result.rows:
        value = f"{residual:.2g}, true kernel, all {count} rows"
    else:
        value = f"{residual:.2g}, true kernel, a sample of {count} rows against all {result.rows:,}"
    meaning = (
        "How far W is from a point where the objective is stationary, under the true kernel: "
        "0 at one, near 1 far from any."
    )
    if residual > _LARGE_RESIDUAL:
        warning = (
            f"the residual is {residual:.2g}: W is no stationary point. Between these rows the "
            "kernel may be zero or flat; try --sigma median"
        )
        return Fact("Residual", value, meaning, warnings=(warning,))
    size = "This one is small." if residual <= RESIDUAL else "This one is not small."
    return Fact("Residual", value, f"{meaning} {size}")


def _error_of_objective(ending: FitEnding) -> Fact:
    error = ending.engine_error
    value = f"{error:.1e} at most"
    meaning = (
        "The engine approximates: the true J is within this share of the reported one, and a "
        "smaller difference between two J says nothing."
    )
    if error < _ROUNDING:
        meaning = "This J leaves nothing out: it is a bound on what rounding does to J."
    elif not math.isfinite(error):
        value = "no bound"
        meaning = "The engine approximates, and no bound on the error of J is known."
    elif ending.engine == _ESTIMATING_ENGINE:
        value = f"{error:.1e}, a standard error"
        meaning = (
            "The engine takes the pairs of rows within blocks: this is the standard error of J "
            "between blocks. J of all pairs is nearer, as a rule."
        )
    return Fact("Error of J", value, meaning)


def _certificates(endings: Endings) -> Fact:
    """Return whether W is proved to be a maximum; of folds for how many, and why not for others."""
    certificates = {fold: each.certificate for fold, each in endings.items()}
    reasons = {
        fold: _sentence(each.reason.removeprefix("not certified: ").removesuffix(".")) + "."
        for fold, each in certificates.items()
    }
    if len(certificates) == 1:
        ((fold, only),) = certificates.items()
        value = "certified, the highest" if only.is_global else "certified, local"
        return Fact("Maximum of J", value if only.is_certified else "not certified", reasons[fold])
    doubts = {
        fold: "" if each.is_certified else reasons[fold] for fold, each in certificates.items()
    }
    certified = sum(each.is_certified for each in certificates.values())
    meaning = "J falls from a certified W in every direction. It need not be the highest maximum."
    value = f"certified in {certified} of {len(certificates)} folds"
    return Fact("Maximum of J", value, meaning, notes=_notes(doubts))


def _component_count(fitted: FittedW) -> Fact:
    """Return whether each new feature adds to J; without a value if no eigenvalue is known."""
    warnings = (_sentence(fitted.components_advice),) if fitted.components_advice else ()
    meaning = (
        "J falls without any of them."
        if fitted.predicts
        else "Each counts for J, and none outside of W would count for more."
    )
    return Fact(
        "Number of new features",
        f"{len(fitted.eigenvalues) or ''}",
        "" if warnings else meaning,
        warnings=warnings,
    )
