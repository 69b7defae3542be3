"""What is said in words of how W was found, on a terminal and on a page alike."""

from __future__ import annotations

import math
import re
from typing import Any

from ism_dask.status import Status, components_advice

# What options the command line has for parameters of estimators.
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
# Engines that leave something out.
_APPROXIMATE = ("landmarks", "blocks")
# A bound on the error of J below which there is nothing but rounding.
ROUNDING = 1e-6
# The residual above which W is no stationary point; a fit stopped at the default tolerance has
# some hundredths.
FAR = 0.5


def residual_words(account: dict[str, Any], rows: int) -> str:
    """Return the residual of a fit to so many rows, and how it was measured."""
    count = account["residual_rows"]
    against = (
        f"all {rows:,} rows"
        if count == rows
        else f"a sample of {count:,} rows against all {rows:,}"
    )
    return f"{account['residual']:.2g}, true kernel, {against}"


def engine_words(account: dict[str, Any]) -> str:
    """Return the engine of a fit, and how far it may be off where it approximates."""
    error = account["engine_error"]
    if not error or (account["engine"] not in _APPROXIMATE and error < ROUNDING):
        return str(account["engine"])
    within = f"J within {_short(error)}" if math.isfinite(error) else "no bound on the error of J"
    return f"{account['engine']}, {within}"


def note_words(results: list[dict[str, Any]]) -> str:
    """Return one line of what engines had to note in some folds, or nothing."""
    noted = [result for result in results if result["engine_note"]]
    if not noted:
        return ""
    first = noted[0]["engine_note"]
    alike = [str(result["fold"]) for result in noted if result["engine_note"] == first]
    others = [str(result["fold"]) for result in noted if result["engine_note"] != first]
    more = f" (fold {', '.join(others)}: with other numbers, which --json has)" if others else ""
    return f"fold {', '.join(alike)}: {first}{more}"


def ending_words(status: str) -> str:
    """Return how a fit ended that has not converged, and what may help, with options for names."""
    known = Status(status)
    return f"{_with_options(known.meaning)}. {_sentence(_with_options(known.advice))}"


def advice_words(status: str) -> str:
    """Return what may help a fit that has not converged, by the status it ended with."""
    return _sentence(_with_options(Status(status).advice))


def components_words(account: dict[str, Any]) -> str:
    """Return what a fit says against its number of new features, or nothing."""
    if "components_advice" in account:
        return _sentence(_with_options(account["components_advice"]))
    # For records of runs whose fits did not give advice yet.
    return _sentence(components_advice(account["eigenvalues"], account["eigengap"]))


def _with_options(words: str) -> str:
    """Return words in which options stand for the parameters of estimators."""
    for parameter, option in _OPTIONS.items():
        words = words.replace(parameter, option)
    return words


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def count_noun(number: int, what: str) -> str:
    """Return such as 1 round or 1,200 rounds."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _short(number: float) -> str:
    """Return such as 0.12 or 7.1e-4."""
    if number >= 0.01:
        return f"{number:.2g}"
    return re.sub(r"e([+-])0+", r"e\1", f"{number:.1e}")


def printable(words: str) -> str:
    """Return words without what moves a cursor, rings a bell or does more to a terminal."""
    return "".join(each if each.isprintable() else " " for each in words)


def size(count: int) -> str:
    """Return such as 12 KiB or 1.2 MiB."""
    return f"{count / 2**10:.0f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"
