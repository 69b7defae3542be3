"""What gaps in X cost if `missing="mean"` fills them."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold

from benchmarks.measure import Figure, in_processes, means_by_name, say
from benchmarks.registry import figure
from benchmarks.studies.designs import DESIGNS, distance, seeded
from ism_dask import PredictiveIKDR
from ism_dask._types import Array

_CHOSEN = ("Li 6.3", "Li 6.2, AR(.7)", "KDR B, d = 10", "xor")
_DRAWS, _SPLITS = 10, 5
_NONE, _FEW = "none", "5% at random"
# The share of the cells that are gaps, and whether they are the largest numbers of each column.
_GAPS = {
    _NONE: (0.0, False),
    _FEW: (0.05, False),
    "20% at random": (0.2, False),
    "40% at random": (0.4, False),
    "the largest 5%": (0.05, True),
    "the largest 20%": (0.2, True),
    "the largest 40%": (0.4, True),
}
_FURTHER, _LOST = 0.05, 0.03


@figure
def gaps() -> Figure:
    """Distance from the truth of four designs, and share of Wine explained, with gaps in X.

    Distances are means over ten draws with 500 rows, in which true directions have weights on four
    columns. The share of Wine is that of rows that W has not seen: thirds, in five splits.
    """
    numbers = [number for number, each in enumerate(DESIGNS) if each.name in _CHOSEN]
    cells = [(number, draw) for number in numbers for draw in range(_DRAWS)]
    runs = in_processes(_distances, cells)
    lines = [_line(DESIGNS[number].name, [next(runs) for _ in range(_DRAWS)]) for number in numbers]
    wine = _line("wine, share", list(in_processes(_shares, [(seed,) for seed in range(_SPLITS)])))
    further = float(np.mean([line[_FEW] - line[_NONE] for line in lines]))
    lost = wine[_NONE] - wine[_FEW]
    return {
        "further from the truth": further,
        "share of Wine lost": lost,
        "table": [*lines, wine],
        "must": f"{_FEW}: at most {_FURTHER} further from the truth, {_LOST} of Wine lost",
        "met": further <= _FURTHER and lost <= _LOST,
    }


def _line(name: str, runs: list[dict[str, float]]) -> Figure:
    means = means_by_name(runs)
    say(f"{name}: {', '.join(f'{case} {mean:.3f}' for case, mean in means.items())}")
    return {"data": name, **means}


def _with_gaps(X: Array, case: str, seed: int) -> Array:
    """Return rows X (n, d) with gaps."""
    share, are_largest = _GAPS[case]
    drawn = np.random.default_rng(seed).random(X.shape) < share
    return np.where(np.quantile(X, 1 - share, axis=0) < X if are_largest else drawn, np.nan, X)


def _distances(number: int, draw: int) -> dict[str, float]:
    """Return for each kind of gaps the distance of W from the truth."""
    drawn = seeded(number, draw, mixed=True)
    model = PredictiveIKDR(drawn.B.shape[1], missing="mean")
    fits = {case: model.fit(_with_gaps(drawn.X, case, draw), drawn.y).weights_ for case in _GAPS}
    return {case: distance(drawn.B, W) for case, W in fits.items()}


def _shares(seed: int) -> dict[str, float]:
    """Return for each kind of gaps the share of Wine that is explained in unseen rows."""
    X, y = load_wine(return_X_y=True)
    folds = list(StratifiedKFold(3, shuffle=True, random_state=seed).split(X, y))
    model, means = PredictiveIKDR(2, missing="mean"), {}
    for case in _GAPS:
        rows = _with_gaps(X, case, seed)
        scores = [model.fit(rows[a], y[a]).score(rows[b], y[b]) for a, b in folds]
        means[case] = float(np.mean(scores))
    return means
