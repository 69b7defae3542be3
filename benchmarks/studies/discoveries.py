"""Columns that y depends on: how many are reported, and how many of these are false."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.linear_model import LassoCV

from benchmarks.fits import quiet
from benchmarks.measure import Figure, in_processes
from benchmarks.registry import figure
from benchmarks.studies.designs import Logistic, Noisy, Response, correlated_rows
from ism_dask import PredictiveIKDR, intervals
from ism_dask._types import Array

_FDR, _DRAWS = 0.1, 20
_METHODS = ("intervals", "knockoffs+", "knockoffs", "lasso")


class _Design(NamedTuple):
    """A response to the `true` of d columns, by q directions; corr(x_i, x_j) is r^|i - j|."""

    response: Response
    q: int
    true: list[int]
    d: int
    n: int = 300
    r: float = 0.0


def _linear(*weights: float) -> Noisy:
    return Noisy(lambda *z: np.asarray(np.dot(weights, z)), 1)


_SINE = Noisy(lambda u, v, w: np.sin(2 * u) + v * w / 2, 0.3)
_DESIGNS = {
    "15 of 40 columns": _Design(_linear(*[1 / 3] * 15), 1, [*range(0, 30, 2)], 40, 400, 0.3),
    "linear, AR(.6)": _Design(_linear(1, 1, 0.5, 0.5), 1, [0, 5, 10, 15], 20, r=0.6),
    "weak effects, AR(.5)": _Design(_linear(1, 0.3, 0.2, 0.15), 1, [0, 5, 10, 15], 20, r=0.5),
    "Li 6.2, AR(.6)": _Design(Noisy(lambda u, v: u * (u + v + 1), 0.5), 2, [0, 1], 10, r=0.6),
    "sine and product": _Design(_SINE, 3, [0, 1, 2], 15),
    "classes, AR(.3)": _Design(Logistic(lambda u, v: 6 * (u**2 + v - 1)), 2, [0, 1], 12, 400, 0.3),
    "80 columns, AR(.5)": _Design(Noisy(lambda u, v: u * v + u, 0.5), 2, [10, 40], 80, 200, 0.5),
    "noise alone": _Design(_linear(), 1, [], 10),
}


@figure
def discoveries() -> Figure:
    """Eight designs, 20 draws: columns that `intervals(...).get_support(fdr=0.1)` reports.

    `false` is the mean share of the reported columns that are false, `found` that of the true
    columns that are reported, `refused` that of the fits without intervals, which report none.
    Rivals are the lasso and gaussian knockoffs by its weights. `knockoffs+`, whose rate is proven
    for a known law of X, cannot report fewer than ten columns.
    """
    cells = [(name, draw) for name in _DESIGNS for draw in range(_DRAWS)]
    runs = pd.concat(in_processes(_measured, cells))
    means = runs.drop(columns="design").groupby("method", sort=False).mean()
    table = runs.groupby(["design", "method"], sort=False).mean().reset_index()
    return {
        **means["false"].add_suffix(" false"),
        **means["found"].add_suffix(" found"),
        "refused": means["refused"]["intervals"],
        "table": table.to_dict("records"),
        "must": f"at most {_FDR:.0%} of the columns that intervals report false, over all designs",
        "met": means["false"]["intervals"] <= _FDR,
    }


def _measured(name: str, draw: int) -> pd.DataFrame:
    """Return a line for each method: the false share of its columns, and the share found."""
    response, q, true, d, n, r = _DESIGNS[name]
    rng = np.random.default_rng([draw, d])
    X = correlated_rows(n, d, rng, r)
    y = response(X[:, true], rng)
    ours, refused = np.zeros(d, dtype=bool), False
    with quiet():
        try:
            fitted = PredictiveIKDR(q).fit(X, y)
            ours = intervals(fitted, X, y).get_support(fdr=_FDR)
        except ValueError:
            refused = True
        reports = np.array([ours, *_knockoffs(X, y, rng), LassoCV().fit(X, y).coef_ != 0])
    false = np.delete(reports, true, axis=1).sum(axis=1) / np.maximum(1, reports.sum(axis=1))
    found = reports[:, true].mean(axis=1) if true else np.nan
    lines = pd.DataFrame({"design": name, "method": _METHODS, "false": false, "found": found})
    return lines.assign(refused=refused & (lines["method"] == "intervals"))


def _knockoffs(X: Array, y: Array, rng: np.random.Generator) -> list[Array]:
    """Return the columns (d,) that beat equicorrelated knockoffs, with offset 1 and with 0."""
    d = X.shape[1]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    correlations = X.T @ X / len(X)
    s = min(1.0, 2 * np.linalg.eigvalsh(correlations)[0])
    removed = s * np.linalg.inv(correlations)
    covariance = s * (2 * np.eye(d) - removed)
    noise = rng.multivariate_normal(np.zeros(d), covariance, len(X), method="eigh")
    weights = np.abs(LassoCV().fit(np.hstack([X, X - X @ removed + noise]), y).coef_)
    more = weights[:d] - weights[d:]
    # The least threshold whose estimate of the false discovery rate is low enough.
    thresholds = np.unique(np.abs(more[more != 0]))
    false, above = ((sign * more >= thresholds[:, None]).sum(axis=1) for sign in (-1, 1))
    allowed = (thresholds[offset + false <= _FDR * above] for offset in (1, 0))
    return [more >= each.min(initial=np.inf) for each in allowed]
