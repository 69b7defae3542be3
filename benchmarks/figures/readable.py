"""What is drawn and advised: the band of a response, and weights of rows that are censored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.designs import distance
from benchmarks.fits import quiet
from benchmarks.measure import Figure, say
from ism_dask import PredictiveIKDR
from ism_dask.pictures.curves import mean_along

_BAND_DRAWS, _COVERED = 40, (0.85, 0.95)
_DRAWS, _ROWS, _COLUMNS = 10, 500, 8
_BY_COLUMN = "censored by a column"
# The mean of y along a feature, and its spread.
_MEANS = {"line": np.array, "square": np.square, "sine": np.sin, "nothing": np.zeros_like}
_SPREADS = {"even": lambda z: 0.3 + 0 * z, "rising": lambda z: 0.3 * np.exp(z / 2)}


def band() -> Figure:
    """How often the 90% band of a response contains the mean, by 60 to 500 rows, 40 draws each."""
    lines = [
        {"mean": mean, "spread": spread, **{f"n = {n}": _coverage(mean, spread, n) for n in _SIZES}}
        for mean in _MEANS
        for spread in _SPREADS
    ]
    covered = [line[f"n = {n}"] for line in lines for n in _SIZES]
    return {
        "table": lines,
        "covered": float(np.mean(covered)),
        "must": "85 to 95% of the places, over all",
        "met": bool(_COVERED[0] <= np.mean(covered) <= _COVERED[1]),
    }


_SIZES = (60, 178, 500)


def _coverage(mean: str, spread: str, n: int) -> float:
    inside = []
    for draw in range(_BAND_DRAWS):
        rng = np.random.default_rng(draw)
        z = rng.normal(size=n) if draw % 2 else rng.uniform(-2, 2, n)
        y = _MEANS[mean](2 * z) + _SPREADS[spread](z) * rng.normal(size=n)
        places, (_, low, high) = mean_along(z, y[:, None])
        often = (np.quantile(z, 0.02) < places) & (places < np.quantile(z, 0.98))
        truth = _MEANS[mean](2 * places)
        inside.append(((low[:, 0] <= truth) & (truth <= high[:, 0]))[often].mean())
    return float(np.mean(inside))


def censored() -> Figure:
    """Censored times, 500 rows, 10 draws of four designs: distance from the true direction.

    By the true times; by the rows with an event alone; by these, weighted by the inverse of the
    probability that they are not censored; and by all times, as if the last visit were the event.
    In the last design a column decides when rows are censored; weights count it in six groups.
    """
    lines = []
    for name in _TIMES:
        say(name)
        apart = np.mean([_apart(name, draw) for draw in range(_DRAWS)], axis=0)
        ways = ("true times", "events", "weighted events", "last visits")
        lines.append({"design": name, **dict(zip(ways, apart.tolist(), strict=True))})
    return {
        "table": lines,
        "must": "no target",
        "met": True,
    }


def _apart(design: str, draw: int) -> tuple[float, float, float, float]:
    rng = np.random.default_rng(draw)
    X = rng.normal(size=(_ROWS, _COLUMNS))
    true = _TIMES[design]((X[:, 0] - X[:, 1]) / np.sqrt(2), rng)
    # About four rows of ten are censored.
    last_visit, groups = rng.exponential(2 * np.median(true), size=_ROWS), np.zeros(_ROWS)
    if design == _BY_COLUMN:
        last_visit = np.exp(0.3 + 1.2 * X[:, 2] + 0.3 * rng.normal(size=_ROWS))
        groups = np.argsort(np.argsort(X[:, 2])) * 6 // _ROWS
    event, time = true <= last_visit, np.minimum(true, last_visit)
    weights = np.empty(_ROWS)
    for group in np.unique(groups):
        rows = groups == group
        weights[rows] = 1 / uncensored(time[rows], event[rows])
    B = np.eye(_COLUMNS)[:, :1] - np.eye(_COLUMNS)[:, 1:2]

    def apart(rows: np.ndarray, times: np.ndarray, weights: np.ndarray | None = None) -> float:
        with quiet():
            fitted = PredictiveIKDR(1).fit(rows, np.log(times), sample_weight=weights)
        return distance(B, fitted.weights_)

    events = X[event], time[event]
    return apart(X, true), apart(*events), apart(*events, weights[event]), apart(X, time)


def uncensored(time: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Return the Kaplan-Meier probability (n,) that a row is not censored before its time."""
    order = np.lexsort([~event, time])
    steps = 1 - ~event[order] / np.arange(len(time), 0, -1)
    before = np.empty(len(time))
    before[order] = np.concatenate([[1.0], np.cumprod(steps)[:-1]])
    return before


_TIMES: dict[str, Callable] = {
    "proportional hazards": lambda eta, rng: np.exp(eta + 0.5 * rng.gumbel(size=len(eta))),
    "square": lambda eta, rng: np.exp(eta**2 + 0.3 * rng.normal(size=len(eta))),
    "wave": lambda eta, rng: np.exp(np.sin(2 * eta) + 0.3 * rng.normal(size=len(eta))),
    _BY_COLUMN: lambda eta, rng: np.exp(eta + 0.5 * rng.normal(size=len(eta))),
}
