"""The intervals of a fit: how often they contain the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import orthogonal_procrustes

from benchmarks.fits import quiet
from benchmarks.measure import Figure, in_processes, say, timed
from benchmarks.registry import figure
from benchmarks.studies.designs import DESIGNS, UNSEEN, distance, seeded
from ism_dask import PredictiveIKDR, intervals
from ism_dask.linalg.subspaces import subspace_shares

_DRAWS, _ROWS = 12, 500
_FEW_DRAWS = 4
# The draws of `recovery` and of the tests have smaller numbers.
_FIRST_DRAW = 100
_COVERED, _SEPARATED = (0.85, 0.95), 0.95
_ROUNDING = 1e-9
# Up to this many different values are classes.
_CLASSES = 6


@figure
def certainty() -> Figure:
    """17 designs, 500 rows, 12 draws each: how often `intervals` of all features hold the truth.

    `covered` is the share of draws in which the true distance lies in the 90% interval, `below` and
    `above` are the shares in which it lies on either side. `separated` is the share of draws in
    which the intervals of the true features lie above those of all other features, and `shares`
    the part of the features whose true share lies in its interval, `weights` that of the weights,
    up to a rotation within the space. Fits that have not converged have no intervals; `refused` is
    their share. `fits` is the time of the intervals, in units of that of the fit.
    """
    runs = _runs(_Setting(_ROWS), _DRAWS)
    lines = [
        _line(design.name, runs[number * _DRAWS : (number + 1) * _DRAWS])
        for number, design in enumerate(DESIGNS)
    ]
    return _judged([*lines, _line("all", runs)])


@figure
def certainty_elsewhere() -> Figure:
    """Measure `certainty` with other rows, columns and directions; 4 draws each."""
    lines = [_line(name, _runs(each, _FEW_DRAWS)) for name, each in _ELSEWHERE.items()]
    return {
        "table": lines,
        "must": "85 to 95% covered in each setting",
        "met": all(_COVERED[0] <= line["covered"] <= _COVERED[1] for line in lines),
    }


@figure
def certainty_unseen() -> Figure:
    """Measure `certainty` on 20 designs that no default was chosen on, 3 draws each."""
    draws = 3
    cells = [
        (len(DESIGNS) + number, _FIRST_DRAW + draw, _Setting(None))
        for number in range(len(UNSEEN))
        for draw in range(draws)
    ]
    runs = list(in_processes(_measured, cells))
    lines = [
        _line(design.name, runs[number * draws : (number + 1) * draws])
        for number, design in enumerate(UNSEEN)
    ]
    return _judged([*lines, _line("all", runs)])


def _judged(lines: list[Figure]) -> Figure:
    numbers = {key: lines[-1][key] for key in ("covered", "below", "above", "separated")}
    covered = _COVERED[0] <= numbers["covered"] <= _COVERED[1]
    return {
        **numbers,
        "table": lines,
        "must": "85 to 95% covered, and the true features separated in 95%, of all draws",
        "met": bool(covered and numbers["separated"] >= _SEPARATED),
    }


@dataclass(frozen=True)
class _Setting:
    """The rows of a draw, the columns it has beside those of its design, and its directions."""

    n: int | None
    more: int = 0
    mixed: bool = False


# Settings unlike that of `certainty`, by name.
_ELSEWHERE = {
    "250 rows": _Setting(250),
    "1,000 rows, 5 more columns": _Setting(1000, more=5),
    "directions of four columns": _Setting(500, mixed=True),
}


@dataclass(frozen=True)
class _Outcome:
    """What the intervals of a draw say, and the truth; NaN and False if the fit has none."""

    true: float
    fits: float
    low: float = np.nan
    high: float = np.nan
    separated: bool = False
    shares: float = np.nan
    weights: float = np.nan


def _runs(setting: _Setting, draws: int) -> list[_Outcome]:
    cells = [
        (number, _FIRST_DRAW + draw, setting)
        for number in range(len(DESIGNS))
        for draw in range(draws)
    ]
    return list(in_processes(_measured, cells))


def _measured(number: int, draw: int, setting: _Setting) -> _Outcome:
    """Fit a draw, take the intervals of the fit, and compare with the truth."""
    drawn = seeded(number, draw, setting.n, more=setting.more, mixed=setting.mixed)
    target = "auto" if len(np.unique(drawn.y)) <= _CLASSES else "numbers"
    # W with few features is often the truth itself, and then no interval has anything to hold.
    model = PredictiveIKDR(drawn.B.shape[1], target=target, max_features=None)
    with quiet():
        fit = timed(lambda: model.fit(drawn.X, drawn.y))
    fitted = fit.value
    true = distance(drawn.B, (fitted.components_ / fitted.scale_).T)
    if not fitted.converged_:
        return _Outcome(true, np.nan)
    sure = timed(lambda: intervals(fitted, drawn.X, drawn.y))
    result = sure.value
    shares = subspace_shares((drawn.B * fitted.scale_[:, None]).T)
    turned = _as_weights(drawn.B * fitted.scale_[:, None], fitted.components_)
    held = (result.components_low <= turned) & (turned <= result.components_high)
    is_true = (drawn.B != 0).any(axis=1)
    low, high = result.shares_low, result.shares_high
    return _Outcome(
        true=true,
        fits=sure.seconds / fit.seconds,
        low=result.distance_interval[0],
        high=result.distance_interval[1],
        separated=bool(low[is_true].min() > high[~is_true].max(initial=0.0)),
        shares=float(np.mean((low <= shares + _ROUNDING) & (shares <= high + _ROUNDING))),
        weights=float(held.mean()),
    )


def _as_weights(B: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Return the orthonormal basis (q, d) of the span of B (d, q) that is nearest to components."""
    basis = np.linalg.qr(B)[0].T
    return np.asarray(orthogonal_procrustes(basis.T, components.T)[0].T @ basis)


def _line(name: str, runs: list[_Outcome]) -> Figure:
    say(name)
    known = [run for run in runs if not np.isnan(run.low)]
    below = float(np.mean([run.true < run.low for run in known])) if known else 0.0
    above = float(np.mean([run.true > run.high for run in known])) if known else 0.0
    line: Figure = {
        "design": name,
        "true": float(np.mean([run.true for run in runs])),
        "refused": 1.0 - len(known) / len(runs),
        "covered": 1.0 - below - above,
        "below": below,
        "above": above,
    }
    means = ("low", "high", "separated", "shares", "weights", "fits")
    return line | {
        each: float(np.mean([getattr(run, each) for run in known])) if known else np.nan
        for each in means
    }
