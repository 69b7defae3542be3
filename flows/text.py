"""Wording of the results of a fit, shared by the terminal and the report pages."""

from __future__ import annotations

import math
import re
from typing import Any

from ism_dask.status import Status, components_advice

# Command-line options that replace the names of estimator parameters in messages.
_OPTIONS = {
    "`tol`": "--tol",
    "`engine_tol`": "--engine-tol",
    "engine='exact'": "--engine exact",
    "`max_iter`": "--max-iter",
    "`n_components`": "number of --components",
    "n_components=": "--components ",
    "`max_seconds`": "--max-seconds",
    "`n_init`": "--n-init",
    "solver='ism'": "--solver ism",
    "`y`": "the label",
}
# Engines that approximate the sums over all pairs of rows.
_APPROXIMATE = ("landmarks", "blocks")
# An error bound on J below this is rounding error only.
ROUNDING = 1e-6
# Above this residual W is no stationary point; a fit that stops at the default tolerance has some
# hundredths.
LARGE_RESIDUAL = 0.5


def residual_words(account: dict[str, Any], rows: int) -> str:
    """Return the residual of a fit to `rows` rows, and how it was measured."""
    count = account["residual_rows"]
    against = (
        f"all {rows:,} rows"
        if count == rows
        else f"a sample of {count:,} rows against all {rows:,}"
    )
    return f"{account['residual']:.2g}, true kernel, {against}"


def engine_words(account: dict[str, Any]) -> str:
    """Return the engine of a fit, with the error bound on J if it approximates."""
    error = account["engine_error"]
    if not error or (account["engine"] not in _APPROXIMATE and error < ROUNDING):
        return str(account["engine"])
    within = f"J within {_short(error)}" if math.isfinite(error) else "no bound on the error of J"
    return f"{account['engine']}, {within}"


def note_words(results: list[dict[str, Any]]) -> str:
    """Return one line with the notes of the engines on some folds, or nothing."""
    with_note = [result for result in results if result["engine_note"]]
    if not with_note:
        return ""
    first = with_note[0]["engine_note"]
    same = [str(result["fold"]) for result in with_note if result["engine_note"] == first]
    others = [str(result["fold"]) for result in with_note if result["engine_note"] != first]
    more = f" (fold {', '.join(others)}: with other numbers, which --json has)" if others else ""
    return f"fold {', '.join(same)}: {first}{more}"


def ending_words(status: str) -> str:
    """Return how a fit ended that has not converged, and advice that names options."""
    ending = Status(status)
    return f"{_with_options(ending.meaning)}. {_capitalised(_with_options(ending.advice))}"


def advice_words(status: str) -> str:
    """Return advice for a fit that has not converged, by the status with which it ended."""
    return _capitalised(_with_options(Status(status).advice))


def components_words(account: dict[str, Any]) -> str:
    """Return the advice of a fit against its number of new features, or nothing."""
    if "components_advice" in account:
        return _capitalised(_with_options(account["components_advice"]))
    # Runs saved by earlier versions have no advice in their record.
    return _capitalised(components_advice(account["eigenvalues"], account["eigengap"]))


def _with_options(words: str) -> str:
    """Return `words` with command-line options in place of estimator parameters."""
    for parameter, option in _OPTIONS.items():
        words = words.replace(parameter, option)
    return words


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def count_noun(number: int, what: str) -> str:
    """Return a count with its noun, such as 1 round or 1,200 rounds."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _short(number: float) -> str:
    """Return a number with two digits, such as 0.12 or 7.1e-4."""
    if number >= 0.01:
        return f"{number:.2g}"
    return re.sub(r"e([+-])0+", r"e\1", f"{number:.1e}")


def printable(words: str) -> str:
    """Return `words` with a space for each control character, which a terminal would obey."""
    return "".join(each if each.isprintable() else " " for each in words)


def byte_size(count: int) -> str:
    """Return a number of bytes in words, such as 12 KiB or 1.2 MiB."""
    return f"{count / 2**10:.0f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"
