"""The test through fits: its level, and its power where all columns together drown what y shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.measure import Figure, in_processes, say
from benchmarks.registry import figure, long_figure
from benchmarks.studies.designs import UNSEEN, Classes, Design, Noisy
from ism_dask import PredictiveIKDR, SupervisedIKDR, dependence_test, fitted_dependence_test

Array = np.ndarray[Any, Any]
_DRAWS, _NULL_DRAWS, _NULL_ROWS, _NULL_COLUMNS = 10, 500, 120, 30
_LEVEL, _MOST, _POWER = 0.05, 0.06, 0.9


def _six_sectors(u: Array, v: Array) -> Array:
    return np.asarray(np.floor((np.arctan2(v, u) / np.pi + 1.0) * 3.0) % 2)


_DIRECTION = np.array([[1.0, 2.0]]) / np.sqrt(5)
_DESIGNS = {
    design.name: design
    for design in (
        Design(
            "sine",
            "y = sin(3 z) + 0.3 e, z = (x1 + 2 x2) / sqrt(5)",
            _DIRECTION,
            Noisy(lambda z: np.sin(3 * z), 0.3),
        ),
        Design(
            "six sectors",
            "y alternates in six sectors of (x1, x2)",
            np.eye(2),
            Classes(_six_sectors),
        ),
        *(
            replace(next(each for each in UNSEEN if each.name == name), d=d, n=500)
            for name, d in (("hyperboloid", 30), ("slab", 40))
        ),
        Design(
            "triple product",
            "y = x1 x2 x3 + 0.3 e",
            np.eye(3),
            Noisy(lambda u, v, w: u * v * w, 0.3),
            d=15,
            n=1000,
        ),
    )
}


@long_figure
def level_fitted() -> Figure:
    """Independent X (120 rows, 30 columns) and y, 500 draws each: how often it rejects at 5%.

    The fits are those of the criterion that takes the least time, the tests those by moments.
    """
    lines = []
    for kind in ("number", "classes"):
        pvalues = list(in_processes(_null_pvalue, [(kind, k) for k in range(_NULL_DRAWS)]))
        lines.append({"y": kind, "rejected": float(np.mean(np.array(pvalues) <= _LEVEL))})
        say(f"{kind}: {lines[-1]['rejected']}")
    return {
        "table": lines,
        "must": "at most 6%",
        "met": all(line["rejected"] <= _MOST for line in lines),
    }


@figure
def power_fitted() -> Figure:
    """Five designs of few directions among many columns, 10 draws: how often tests reject at 5%."""
    lines = []
    for name, design in _DESIGNS.items():
        runs = np.array(list(in_processes(_pvalues, [(name, k) for k in range(_DRAWS)])))
        rates = (runs <= _LEVEL).mean(axis=0).tolist()
        sizes = {"rows": design.n, "columns": design.d}
        lines.append({"design": name, **sizes, "all columns": rates[0], "through fits": rates[1]})
        say(", ".join(f"{key} {value}" for key, value in lines[-1].items()))
    return {
        "table": lines,
        "notes": [f"{design.name}: {design.formula}" for design in _DESIGNS.values()],
        "must": "through fits in 90% of each",
        "met": all(line["through fits"] >= _POWER for line in lines),
    }


def _null_pvalue(kind: str, draw: int) -> float:
    rng = np.random.default_rng([draw, 1])
    X = rng.normal(size=(_NULL_ROWS, _NULL_COLUMNS))
    y = rng.normal(size=_NULL_ROWS) if kind == "number" else rng.integers(0, 3, _NULL_ROWS)
    estimator = SupervisedIKDR(1, kernel="linear")
    options = {"n_permutations": 0, "random_state": draw}
    return fitted_dependence_test(estimator, X, y, **options).pvalue


def _pvalues(name: str, draw: int) -> tuple[float, float]:
    """Return the p-value with all columns, and that through fits."""
    design = _DESIGNS[name]
    rows = design.draw(design.n, np.random.default_rng([draw, 2]))
    plain = dependence_test(rows.X, rows.y, random_state=draw)
    estimator = PredictiveIKDR(design.q)
    fitted = fitted_dependence_test(estimator, rows.X, rows.y, random_state=draw)
    return plain.pvalue, fitted.pvalue
