"""How far to trust the W of a run: how its fit ended, its tolerance, engine, error and residual."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flows import text
from flows.reports.blocks import Fact
from flows.results.runs import (
    CertificateRecord,
    ClusterResult,
    CrossvalResult,
    FitEnding,
    FitResult,
)
from ism_dask.records.stopping_rule import ANGLE, RESIDUAL
from ism_dask.status import Status
from storage import new_feature_name
from storage.models import SUPERVISED

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
# The name of the fact on the certificate.
_MAXIMUM = "Maximum of J"
# What is known and what is not, by how a fit ended.
_UNFINISHED = (
    "Known: J and the residual of the W that was saved, the best one so far. Not known: how far "
    "further iterations would turn W and raise J."
)
_KNOWN: Mapping[Status, str] = {
    Status.TOLERANCE: "Known: the last iteration changed the eigenvalues by less than the "
    "tolerance. Not known: how far W would still turn; its residual is 0 if not at all.",
    Status.APPROXIMATE: "Known: J and the residual, which were measured under the true kernel. Not "
    "known: the W of largest J, which the error of the engine hides.",
    Status.START: "Known: unseen rows are predicted no better by any W that was fitted. Not known: "
    "a W that more rows would tell from this start.",
    Status.LOCAL: "Known: W is stationary. Not known: whether a higher maximum is near.",
    Status.FLAT: "Known: J does not depend on W. Not known: any direction that explains y.",
    Status.COLUMN_BY_COLUMN: "Known: each column of W is stationary beside those before it. Not "
    "known: whether all columns together are.",
}


_SETTLED = (
    "Known: W and the embedding stay, within the tolerance, when each is fitted to the other. Not "
    "known: whether another start would lead to other clusters."
)


def fit_trust(result: FitResult) -> tuple[Fact, ...]:
    """Return how far to trust a fit."""
    ending = result.fitted.ending
    note = f"the best W so far was saved. It {text.ending_words(ending.status)}"
    return _trust_in_w(result, note)


def cluster_trust(result: ClusterResult) -> tuple[Fact, ...]:
    """Return how far to trust a clustering."""
    advice = ["the last round was saved"]
    status = result.fitted.ending.status
    if status == "converged":
        advice.append("W did converge, but the rounds did not")
    else:
        advice.append(f"W {text.ending_words(status)}")
    if result.rounds and _movement(result) >= result.settings.get("outer_tol", math.inf):
        advice.append("Raise --max-outer or --outer-tol")
    convergence, *others = _trust_in_w(result, ". ".join(advice))
    if result.fitted.ending.converged:
        convergence = replace(convergence, meaning=_SETTLED)
    return (convergence, *_rounds(result), *others)


def crossval_trust(result: CrossvalResult) -> tuple[Fact, ...]:
    """Return how far to trust the fits of all folds, by the worst of them."""
    folds = result.results
    endings = [each.ending for each in folds]
    numbers: dict[str, list[str]] = {}
    for each in folds:
        if not _is_good(each.ending):
            numbers.setdefault(each.ending.status, []).append(str(each.fold))
    warnings = [
        f"fold {', '.join(which)} {text.ending_words(status)}" for status, which in numbers.items()
    ]
    moved = [each for each in endings if each.status != _START] or endings
    worst = max(moved, key=lambda each: each.residual)
    checked = f"in the worst fold, true kernel, {worst.residual_rows:,} rows"
    engine_note = text.fold_notes({each.fold: each.ending.engine_note for each in folds})
    widest = max(moved, key=lambda each: each.angle or 0.0)
    convergence = _convergence(worst if not warnings else None, *warnings)
    starts = len(folds) - len(moved)
    if starts and worst.status != _START:
        convergence = replace(
            convergence, notes=(f"{text.count_noun(starts, 'fold')} kept a start",)
        )
    facts = (
        convergence,
        *_stationarity(worst, widest, result.settings, f"{worst.residual:.2g} {checked}"),
        _engine(" and ".join(dict.fromkeys(each.engine for each in endings)), engine_note),
    )
    if result.predicts:
        return facts
    certificates = _certificates({each.fold: each.ending.certificate for each in folds})
    least_accurate = max(endings, key=lambda each: each.engine_error)
    return (*facts, _error_of_objective(least_accurate), certificates)


def new_feature_names(result: FitResult | ClusterResult) -> list[str]:
    """Return the names of the new features, as `get_feature_names_out` has them."""
    paradigm = result.paradigm if isinstance(result, ClusterResult) else SUPERVISED
    return [new_feature_name(j, paradigm) for j in range(len(result.fitted.eigenvalues))]


def _trust_in_w(result: FitResult | ClusterResult, not_converged: str) -> tuple[Fact, ...]:
    ending, settings = result.fitted.ending, result.settings
    checked = text.residual_words(ending.residual, ending.residual_rows, result.rows)
    warnings = () if _is_good(ending) else (not_converged,)
    facts = (
        _convergence(ending, *warnings),
        *_stationarity(ending, ending, settings, checked),
        _engine(ending.engine, ending.engine_note),
    )
    if not result.fitted.predicts:
        facts = (*facts, _error_of_objective(ending), _certificate(ending.certificate))
    return (*facts, *_component_count(result))


def _stationarity(
    ending: FitEnding, widest: FitEnding, settings: Mapping[str, Any], residual: str
) -> tuple[Fact, ...]:
    """Return how far W is from a stationary point; nothing for a start."""
    if ending.status == _START:
        return ()
    return (
        _tolerance(ending, settings),
        *_last_turn(widest),
        _residual(ending.residual, residual),
    )


def _is_good(ending: FitEnding) -> bool:
    """Return whether a fit ended without a reason for a warning."""
    return ending.converged or ending.status == _START


def _convergence(ending: FitEnding | None, *not_converged: str) -> Fact:
    """Return whether W converged, and what is known of it.

    `ending` is None for folds that ended in different ways.
    """
    if ending is not None and ending.status == _START:
        return Fact("Converged", "a start was kept", _KNOWN[Status.START])
    if not_converged:
        status = None if ending is None else Status(ending.status)
        known = _UNFINISHED if status is None else _KNOWN.get(status, _UNFINISHED)
        warnings = tuple(f"not converged: {each}" for each in not_converged)
        return Fact("Converged", "no", known, warnings=warnings)
    if ending is not None and ending.solver == _CHECKED_SOLVER:
        known = (
            "Known: W is stationary, and neither steps nor a look around found a higher J. Not "
            "known: whether another start would lead to a higher maximum."
        )
    else:
        known = (
            "Known: the residual of W is below the tolerance. Not known: whether J is higher "
            "nearby, or from another start."
        )
    return Fact("Converged", "yes", known)


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


def _last_turn(ending: FitEnding) -> tuple[Fact, ...]:
    """Return the angle to the last W but one; nothing without iterations."""
    if ending.angle is None:
        return ()
    meaning = (
        "The sine of the angle by which the last iteration turned W: 0 if W stood still, 1 at a "
        "right angle."
    )
    warnings: tuple[str, ...] = ()
    if ending.measure == "change" and ending.angle > ANGLE:
        warnings = (
            f"the eigenvalues met --tol while W still turned, by an angle with the sine "
            f"{ending.angle:.4g}: this W has not settled. Leave --tol out, or set --angle-tol "
            f"{ANGLE:g}",
        )
    return (Fact("Last turn of W", f"{ending.angle:.2g}", meaning, warnings=warnings),)


def _rounds(result: ClusterResult) -> tuple[Fact, ...]:
    limit = result.settings.get("outer_tol")
    if limit is None or not result.rounds:
        return ()
    last = result.rounds[-1]
    value = f"{last.change:.2g} and {last.turn:.2g}, to be below {limit:.4g}"
    meaning = (
        "The change of the embedding's eigenvalues, and the sine of the angle by which W turned; "
        "--outer-tol sets the limit."
    )
    return (Fact("Change in the last round", value, meaning),)


def _movement(result: ClusterResult) -> float:
    """Return how much W or the embedding moved in the last round."""
    return max(result.rounds[-1].change, result.rounds[-1].turn)


def _engine(engine: str, note: str) -> Fact:
    return Fact("Engine", engine, notes=(note,) if note else ())


def _error_of_objective(ending: FitEnding) -> Fact:
    name, error = "Error of J", ending.engine_error
    value = f"{error:.1e} at most"
    if error < _ROUNDING:
        meaning = "This J leaves nothing out: it is a bound on what rounding does to J."
        return Fact(name, value, meaning)
    if not math.isfinite(error):
        meaning = "The engine approximates, and no bound on the error of J is known."
        return Fact(name, "no bound", meaning)
    if ending.engine == _ESTIMATING_ENGINE:
        meaning = (
            "The engine takes the pairs of rows within blocks: this is the standard error of J "
            "between blocks. J of all pairs is nearer, as a rule."
        )
        return Fact(name, f"{error:.1e}, a standard error", meaning)
    meaning = (
        "The engine approximates: the true J is within this share of the reported one, and a "
        "smaller difference between two J says nothing."
    )
    return Fact(name, value, meaning)


def _residual(residual: float, words: str) -> Fact:
    meaning = (
        "How far W is from a point where the objective is stationary, under the true kernel: "
        "0 at one, near 1 far from any."
    )
    if residual > _LARGE_RESIDUAL:
        warning = (
            f"the residual is {residual:.2g}: W is no stationary point. Between these rows the "
            "kernel may be zero or flat; try --sigma median"
        )
        return Fact("Residual", words, meaning, warnings=(warning,))
    size = "This one is small." if residual <= RESIDUAL else "This one is not small."
    return Fact("Residual", words, f"{meaning} {size}")


def _certificate(certificate: CertificateRecord) -> Fact:
    """Return whether W is proved to be a maximum."""
    meaning = text.certificate_words(certificate.reason)
    if not certificate.is_certified:
        return Fact(_MAXIMUM, "not certified", meaning)
    if certificate.is_global:
        return Fact(_MAXIMUM, "certified, the highest", meaning)
    return Fact(_MAXIMUM, "certified, local", meaning)


def _certificates(certificates: Mapping[int, CertificateRecord]) -> Fact:
    """Return for how many folds W is proved to be a maximum, and why not for the others."""
    doubts = {
        fold: text.certificate_words(each.reason)
        for fold, each in certificates.items()
        if not each.is_certified
    }
    meaning = "J falls from a certified W in every direction. It need not be the highest maximum."
    notes = (text.fold_notes(doubts),) if doubts else ()
    value = f"certified in {len(certificates) - len(doubts)} of {len(certificates)} folds"
    return Fact(_MAXIMUM, value, meaning, notes=notes)


def _component_count(result: FitResult | ClusterResult) -> tuple[Fact, ...]:
    """Return whether each new feature adds to J; nothing for a record without eigenvalues."""
    fitted = result.fitted
    if not fitted.eigenvalues:
        return ()
    if fitted.predicts:
        advice = text.components_words(fitted.components_advice)
        warnings: tuple[str, ...] = (advice,) if advice else ()
    else:
        names = new_feature_names(result)
        warnings = text.eigenvalue_warnings(names, fitted.eigenvalues, fitted.eigengap)
    name, value = "Number of new features", f"{len(fitted.eigenvalues)}"
    if warnings:
        return (Fact(name, value, warnings=warnings),)
    meaning = (
        "J falls without any of them."
        if fitted.predicts
        else "Each counts for J, and none outside of W would count for more."
    )
    return (Fact(name, value, meaning),)
