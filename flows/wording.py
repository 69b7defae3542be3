"""What is said in words of how W was found, on a terminal and on a page alike."""

from __future__ import annotations

import math
import re
from typing import Any

# As `ism_dask.states.Status` has it, for which `--help` need not wait.
_SWINGS, _OVER_CAP = "swings", "over the cap"
# The solver that ends by tolerances.
_OWN_SOLVER = "ism"
# The residual above which W is no stationary point; a fit stopped at the default tolerance has
# some hundredths.
FAR = 0.5


def checked(account: dict[str, Any], rows: int) -> str:
    """Return the residual of a fit to so many rows, and how it was measured."""
    count = account["residual_rows"]
    against = (
        f"all {rows:,} rows"
        if count == rows
        else f"a sample of {count:,} rows against all {rows:,}"
    )
    return f"{account['residual']:.2g}, true kernel, {against}"


def engine(account: dict[str, Any]) -> str:
    """Return the engine of a fit, and how far it may be off where it approximates."""
    error = account["engine_error"]
    if not error:
        return str(account["engine"])
    within = f"J within {_short(error)}" if math.isfinite(error) else "no bound on the error of J"
    return f"{account['engine']}, {within}"


def notes(results: list[dict[str, Any]]) -> str:
    """Return one line of what engines had to note in some folds, or nothing."""
    noted = [result for result in results if result["engine_note"]]
    if not noted:
        return ""
    first = noted[0]["engine_note"]
    alike = [str(result["fold"]) for result in noted if result["engine_note"] == first]
    others = [str(result["fold"]) for result in noted if result["engine_note"] != first]
    more = f" (fold {', '.join(others)}: with other numbers, which --json has)" if others else ""
    return f"fold {', '.join(alike)}: {first}{more}"


def advice(settings: dict[str, Any], status: str) -> str:
    """Say what may help a fit that has not settled, by the status it ended with."""
    if status == _SWINGS:
        return (
            "It swings between two subspaces, for which more iterations do not help: take another "
            "number of --components, kernel or width"
        )
    if status == _OVER_CAP:
        return "The time was up: raise --max-seconds"
    if settings.get("solver", _OWN_SOLVER) != _OWN_SOLVER:
        return "Raise --max-iter"
    if settings["angle_tol"] is None:
        return "Raise --max-iter or --tol"
    return "Raise --max-iter, --tol or --angle-tol"


def counted(number: int, what: str) -> str:
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
