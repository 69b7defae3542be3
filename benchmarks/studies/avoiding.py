"""Features that do not tell s: what they still tell of y and of s, and the direct effect of X."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.measure import Figure, in_processes, means_by_name, say
from benchmarks.registry import figure
from ism_dask import PredictiveIKDR

Array = np.ndarray[Any, Any]
Draw = tuple[Array, Array, Array]

# Random splits of each data set; half of the rows are held out.
_SPLITS = 20
# Points by which s may be above chance, and by which y may be below the fit that avoids nothing.
_OF_S, _OF_Y = 3.0, 2.0
# Confounded simulations: draws, rows, columns, and the share of the weights that finds the effect.
_DRAWS, _ROWS, _COLUMNS, _FOUND = 20, 500, 10, 0.9


@figure
def avoid() -> Figure:
    """Accuracy of y and of s by an RBF-SVM on X W, held out; four data sets, 20 splits each."""
    cells = [(name, seed) for name in _DATA for seed in range(_SPLITS)]
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in _DATA}
    for (name, _), line in zip(cells, in_processes(_accuracies, cells), strict=True):
        measured[name].append(line)
    lines: list[dict[str, Any]] = []
    for name, each in measured.items():
        mean = {key: 100 * value for key, value in means_by_name(each).items()}
        lines.append({"data": name, "q": _COMPONENTS[name], **mean})
        say(", ".join(f"{key} {value}" for key, value in lines[-1].items()))
    met = [
        line["s, avoided"] <= line["chance of s"] + _OF_S
        and line["y, avoided"] >= line["y"] - _OF_Y
        for line in lines
    ]
    return {
        "table": lines,
        "must": "on three data sets, s at most 3 points above chance for at most 2 points of y",
        "met": sum(met) >= 3,
        "notes": [
            "CorrelationRemover: the residuals of all columns of a linear regression on s, as "
            "fairlearn makes them, then the fit of W. It needs s for new rows, too."
        ],
    }


@figure
def given() -> Figure:
    """Confounded simulations: how often the direct effect has 90% of the weights of a feature."""
    cells = [(name, seed) for name in _SIMULATIONS for seed in range(_DRAWS)]
    shares: dict[str, list[tuple[float, float]]] = {name: [] for name in _SIMULATIONS}
    for (name, _), each in zip(cells, in_processes(_direct_shares, cells), strict=True):
        shares[name].append(each)
    lines: list[dict[str, Any]] = []
    for name, pairs in shares.items():
        plain, conditional = np.array(pairs).T
        lines.append(
            {
                "simulation": name,
                "share, plain": float(plain.mean()),
                "share, given s": float(conditional.mean()),
                "found, plain": float(np.mean(plain > _FOUND)),
                "found, given s": float(np.mean(conditional > _FOUND)),
            }
        )
        say(", ".join(f"{key} {value}" for key, value in lines[-1].items()))
    return {
        "table": lines,
        "must": "given s, the direct effect is found in at least 90% of the draws",
        "met": all(line["found, given s"] >= _FOUND for line in lines),
    }


def _accuracies(name: str, seed: int) -> dict[str, float]:
    X, y, s = _DATA[name](seed)
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.5, random_state=seed, stratify=2 * y + s
    )
    q = _COMPONENTS[name]
    plain = PredictiveIKDR(q).fit(X[train], y[train])
    fair = PredictiveIKDR(q).fit(X[train], y[train], avoid=s[train])
    removed = _without_correlation(X, s, train)
    linear = PredictiveIKDR(q).fit(removed[train], y[train])
    features = {
        "": plain.transform(X),
        ", avoided": fair.transform(X),
        ", CorrelationRemover": linear.transform(removed),
    }
    share = float(s[test].mean())
    return {
        **{f"y{which}": _accuracy(Z, y, train, test) for which, Z in features.items()},
        **{f"s{which}": _accuracy(Z, s, train, test) for which, Z in features.items()},
        "chance of s": max(share, 1.0 - share),
    }


def _accuracy(Z: Array, labels: Array, train: Array, test: Array) -> float:
    classifier = make_pipeline(StandardScaler(), SVC()).fit(Z[train], labels[train])
    return float(classifier.score(Z[test], labels[test]))


def _without_correlation(X: Array, s: Array, train: Array) -> Array:
    """Return the residuals of X (n, d) on s (n,), by fairlearn if it is installed."""
    try:
        remover = import_module("fairlearn.preprocessing").CorrelationRemover
    except ImportError:
        centred = (s - s[train].mean())[:, None]
        slopes = LinearRegression().fit(centred[train], X[train]).coef_
        return np.asarray(X - centred @ slopes.T)
    table = np.column_stack([X, s])
    made = remover(sensitive_feature_ids=[X.shape[1]]).fit(table[train])
    return np.asarray(made.transform(table))


def _diabetes(_: int) -> Draw:
    """y: the progression is above the median. s: sex, whose column is left out."""
    data = load_diabetes()
    sex = data.data[:, 1] > 0
    y = data.target > np.median(data.target)
    return np.delete(data.data, 1, axis=1), y.astype(int), sex.astype(int)


def _cancer(seed: int) -> Draw:
    """y: the diagnosis. s: which of two made laboratories; the second shifts and widens columns."""
    rng = np.random.default_rng(seed)
    X, y = load_breast_cancer(return_X_y=True)
    X = np.log(X + 1e-3)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    s = rng.integers(0, 2, len(y))
    X[:, 20:] *= np.where(s, 2.0, 1.0)[:, None]
    X[:, 20:] += s[:, None]
    return X, y, s


def _income(seed: int) -> Draw:
    """y: an income above the median. s: sex, which a rank, a bonus and a body height tell."""
    rng = np.random.default_rng(seed)
    n = 2000
    s = rng.integers(0, 2, n)
    education, skill, experience, noise = rng.normal(size=(4, n))
    income = education + skill + 0.7 * experience + 0.4 * noise
    rank = income + 1.5 * (1 - s) + rng.normal(size=n)
    bonus = income + np.where(s, 0.3, 2.0) * rng.normal(size=n)
    height = 178.0 - 12.0 * s + 7.0 * rng.normal(size=n)
    test = skill + 0.5 * rng.normal(size=n)
    columns = [education, test, experience, rank, bonus, height, *rng.normal(size=(4, n))]
    return np.column_stack(columns), (income > np.median(income)).astype(int), s


def _digits(seed: int) -> Draw:
    """y: the digit. s: which of two made scanners; the second smears to the right."""
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    s = rng.integers(0, 2, len(y))
    images = X.reshape(-1, 8, 8)
    smeared = images.copy()
    smeared[:, :, 1:] = (images[:, :, 1:] + 0.6 * images[:, :, :-1]) / 1.6
    rows = np.where(s[:, None, None] == 1, smeared, images).reshape(len(y), -1)
    return rows + rng.normal(size=rows.shape), y, s


_DATA: dict[str, Callable[[int], Draw]] = {
    "diabetes, sex": _diabetes,
    "cancer, two laboratories": _cancer,
    "incomes, sex": _income,
    "digits, two scanners": _digits,
}
_COMPONENTS = dict(zip(_DATA, (2, 2, 2, 5), strict=True))


def _direct_shares(name: str, seed: int) -> tuple[float, float]:
    """Return the share of x_1 in the new feature of a plain fit and of one that is given s."""
    rng = np.random.default_rng(seed)
    s, e = rng.normal(size=(2, _ROWS))
    X = rng.normal(size=(_ROWS, _COLUMNS))
    X[:, 0] = s + 0.3 * X[:, 0]
    X, y, s = _SIMULATIONS[name](X, s, e)
    fits = (PredictiveIKDR(1).fit(X, y, given=side) for side in (None, s))
    plain, conditional = (float(fitted.feature_importances_[1]) for fitted in fits)
    return plain, conditional


def _dependent(X: Array, s: Array, e: Array) -> Draw:
    X = X.copy()
    X[:, 1] += 0.8 * s
    return X, 2 * s + X[:, 1] + 0.5 * e, s


# From X, whose column 0 is s with noise, s and a noise e: X, y, s. Column 1 has the direct effect.
_SIMULATIONS: dict[str, Callable[[Array, Array, Array], Draw]] = {
    "y = 2 s + x + e / 2": lambda X, s, e: (X, 2 * s + X[:, 1] + 0.5 * e, s),
    "y = 2 sin 2s + x + .3 e": lambda X, s, e: (X, 2 * np.sin(2 * s) + X[:, 1] + 0.3 * e, s),
    "y = 2 s + x^2 + .3 e": lambda X, s, e: (X, 2 * s + X[:, 1] ** 2 + 0.3 * e, s),
    "y = 2 s + (1 + s / 2) x + .3 e": lambda X, s, e: (
        X,
        2 * s + (1 + 0.5 * s) * X[:, 1] + 0.3 * e,
        s,
    ),
    "classes: 2 s + 1.2 x + e / 2 > 0": lambda X, s, e: (
        X,
        (2 * s + 1.2 * X[:, 1] + 0.5 * e > 0).astype(int),
        s,
    ),
    "x depends on s": _dependent,
}
