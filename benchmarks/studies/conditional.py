"""The test of whether y depends on X given s: its level, its power beside others, its seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import Figure, in_processes, say, timed
from benchmarks.registry import figure, long_figure
from benchmarks.studies.conditional_designs import EFFECTS, NULLS
from benchmarks.studies.conditional_rivals import (
    generalised_covariance,
    kernel_conditional_independence,
    partial_correlation,
)
from ism_dask import dependence_test

Array = np.ndarray[Any, Any]
_OURS = "dependence_test"
_ROWS, _DRAWS, _RIVAL_DRAWS, _EFFECT_DRAWS = 200, 1000, 200, 100
_LARGER, _LARGER_DRAWS = 2000, 100
_MANY, _MOST_SECONDS = 60_000, 15.0
_LEVEL, _ALLOWED = 0.05, (0.04, 0.06)
# Draws of one process at a time.
_BATCH = 50


def _ours(X: Array, y: Array, s: Array) -> float:
    return dependence_test(X, y, given=s, random_state=0).pvalue


_TESTS: dict[str, Callable[[Array, Array, Array], float]] = {
    _OURS: _ours,
    "partial correlation": partial_correlation,
    "generalised covariance": generalised_covariance,
    "KCI": kernel_conditional_independence,
}
_RIVALS = tuple(name for name in _TESTS if name != _OURS)


@long_figure
def level_given() -> Figure:
    """Seven designs without any effect given s: how often tests reject at 5%.

    `dependence_test` has 1,000 draws of 200 rows, and 100 of 2,000; the others have 200 of 200.
    """
    lines = []
    for name in NULLS:
        line: Figure = {"design": name}
        line.update(_rates(name, (_OURS,), _ROWS, _DRAWS))
        line[f"{_LARGER} rows"] = _rates(name, (_OURS,), _LARGER, _LARGER_DRAWS)[_OURS]
        line.update(_rates(name, _RIVALS, _ROWS, _RIVAL_DRAWS))
        say(", ".join(f"{key} {value}" for key, value in line.items()))
        lines.append(line)
    return {
        "table": lines,
        "must": "dependence_test between 4 and 6% with 200 rows",
        "met": all(_ALLOWED[0] <= line[_OURS] <= _ALLOWED[1] for line in lines),
    }


@figure
def power_given() -> Figure:
    """Eight effects of X on y beside s, 200 rows, 100 draws: how often tests reject at 5%."""
    lines = []
    for name in EFFECTS:
        lines.append({"effect": name, **_rates(name, tuple(_TESTS), _ROWS, _EFFECT_DRAWS)})
        say(", ".join(f"{key} {value}" for key, value in lines[-1].items()))
    means = {test: float(np.mean([line[test] for line in lines])) for test in _TESTS}
    return {
        "table": [*lines, {"effect": "mean", **means}],
        "must": "mean power of dependence_test above that of every other test",
        "met": means[_OURS] >= max(means.values()),
    }


@figure
def given60k() -> Figure:
    """60,000 rows of the designs without any effect: seconds of the test."""
    lines = []
    for name, drawn in NULLS.items():
        rows = drawn(np.random.default_rng(0), _MANY)
        run = timed(lambda rows=rows: _ours(*rows))
        lines.append({"design": name, "seconds": run.seconds, "p": run.value})
    return {
        "table": lines,
        "must": f"{_MOST_SECONDS:g} s",
        "met": all(line["seconds"] <= _MOST_SECONDS for line in lines),
    }


def _rates(design: str, tests: tuple[str, ...], n: int, draws: int) -> dict[str, float]:
    """Return how often each test rejects at 5%."""
    cells = [(design, tests, n, first, min(_BATCH, draws - first))
             for first in range(0, draws, _BATCH)]  # fmt: skip
    pvalues = np.concatenate(list(in_processes(_pvalues, cells)))
    return dict(zip(tests, (pvalues <= _LEVEL).mean(axis=0).tolist(), strict=True))


def _pvalues(design: str, tests: tuple[str, ...], n: int, first: int, count: int) -> Array:
    """Return the p-value (count, tests) of each test for some draws."""
    drawn = {**NULLS, **EFFECTS}[design]
    draws = [drawn(np.random.default_rng([first + k, n]), n) for k in range(count)]
    return np.array([[_TESTS[test](*each) for test in tests] for each in draws])
