"""The number of new features that a default fit chooses, where the right one is known."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from benchmarks.measure import Figure, in_processes, say
from benchmarks.registry import long_figure
from benchmarks.studies.designs import DESIGNS, seeded
from ism_dask import PredictiveIKDR
from ism_dask.solvers import Ascent

Array = NDArray[Any]
_ROWS, _DRAWS, _OTHER_DRAWS = 500, 50, 20
_LEAST_SHARE, _LEAST_DESIGNS = 0.8, 16
_FOLDS, _LARGEST_LOSS = 5, 0.01


def _friedman(X: Array, rng: Generator) -> Array:
    U = X[:, :5]
    curve = 10 * np.sin(np.pi * U[:, 0] * U[:, 1]) + 20 * (U[:, 2] - 0.5) ** 2
    return np.asarray(curve + 10 * U[:, 3] + 5 * U[:, 4] + rng.normal(size=len(X)))


def _three(X: Array, rng: Generator) -> Array:
    terms = X[:, 0] + np.cos(2 * X[:, 1]) + X[:, 2] ** 2
    return np.asarray(terms + 0.3 * rng.normal(size=len(X)))


def _four(X: Array, rng: Generator) -> Array:
    terms = np.sign(X[:, 0]) * X[:, 1] + X[:, 2] * X[:, 3]
    return np.asarray(terms + 0.2 * rng.normal(size=len(X)))


def _ball(X: Array, _rng: Generator) -> Array:
    return (np.linalg.norm(X[:, :3], axis=1) > 1.54).astype(int)


def _half_spaces(X: Array, rng: Generator) -> Array:
    return (X[:, 0] + 0.5 * rng.normal(size=len(X)) > 0).astype(int)


def _bands(X: Array, rng: Generator) -> Array:
    return np.digitize(X[:, 0] + 0.5 * rng.normal(size=len(X)), [-0.5, 0.5])


def _noise(X: Array, rng: Generator) -> Array:
    return rng.normal(size=len(X))


def _coins(X: Array, rng: Generator) -> Array:
    return rng.integers(0, 2, size=len(X))


# Of no other figure: y, the right number of features, rows and columns.
_OTHERS: dict[str, tuple[Callable[[Array, Generator], Array], int, int, int]] = {
    "Friedman": (_friedman, 4, 500, 10),
    "Friedman, n = 2,000": (_friedman, 4, 2000, 10),
    "x1 + cos(2 x2) + x3^2": (_three, 3, 500, 10),
    "sign(x1) x2 + x3 x4": (_four, 4, 500, 10),
    "a ball of x1, x2, x3": (_ball, 3, 500, 10),
    "two half-spaces": (_half_spaces, 1, 500, 10),
    "three bands of x1": (_bands, 1, 500, 10),
    "noise": (_noise, 1, 500, 10),
    "noise, n = 200, d = 50": (_noise, 1, 200, 50),
    "coins, n = 200, d = 50": (_coins, 1, 200, 50),
}
# The right numbers of real data; None if nobody knows it.
_REAL: dict[str, tuple[Callable[..., Any], tuple[int, ...] | None]] = {
    "Wine": (datasets.load_wine, (2,)),
    "Cancer": (datasets.load_breast_cancer, (1, 2)),
    "Iris": (datasets.load_iris, None),
    "digits": (datasets.load_digits, None),
}


@long_figure
def dimensions() -> Figure:
    """Share of draws in which `PredictiveIKDR().fit(X, y)` chooses the right number of features.

    The 17 designs of `recovery` with 500 rows and 50 draws each, and twenty draws of designs that
    the rule was not developed on (X standard normal; uniform on [0, 1] for Friedman's). `chosen`
    counts the draws by the number that was chosen. Real data: the number chosen on all rows, and
    the accuracy of an RBF-SVM on X W in five stratified folds, beside classes - 1 features.
    """
    cells = [("design", number, draw) for number in range(len(DESIGNS)) for draw in range(_DRAWS)]
    cells += [("other", name, draw) for name in _OTHERS for draw in range(_OTHER_DRAWS)]
    counts: dict[str, list[int]] = {}
    for (_, key, _), chosen in zip(cells, in_processes(_chosen, cells), strict=True):
        name, draws = (key, _OTHER_DRAWS) if isinstance(key, str) else (DESIGNS[key].name, _DRAWS)
        counts.setdefault(name, []).append(chosen)
        if len(counts[name]) == draws:
            say(f"{name}: {_counted(counts[name])}")
    lines = [_line(each.name, each.q, counts[each.name]) for each in DESIGNS]
    others = [_line(name, _OTHERS[name][1], counts[name]) for name in _OTHERS]
    real = list(in_processes(_real_line, [(name,) for name in _REAL]))
    right = sum(line["right"] >= _LEAST_SHARE for line in lines)
    wanted = all(line["ok"] for line in real)
    return {
        "designs_right_in_80%_of_draws": right,
        "designs": len(lines),
        "table": [*lines, *others, *real],
        "must": (
            f"right in at least {_LEAST_SHARE:.0%} of {_DRAWS} draws on {_LEAST_DESIGNS} of "
            f"{len(lines)} designs; Wine 2, Cancer 1 or 2; accuracy at most {_LARGEST_LOSS} below "
            "that of classes - 1"
        ),
        "met": bool(right >= _LEAST_DESIGNS and wanted),
    }


def _chosen(kind: str, key: Any, draw: int) -> int:
    """Return the number of features that a default fit chooses; it need not be solved for that."""
    if kind == "design":
        drawn = seeded(key, draw, _ROWS)
        return _number(drawn.X, drawn.y)
    response, _, n, d = _OTHERS[key]
    rng = np.random.default_rng([sum(map(ord, key)), draw])
    X = rng.uniform(size=(n, d)) if response is _friedman else rng.normal(size=(n, d))
    return _number(X, response(X, rng))


def _number(X: Array, y: Array) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return len(PredictiveIKDR(solver=Ascent(max_iter=1)).fit(X, y).components_)


def _line(name: str, q: int, chosen: list[int]) -> Figure:
    right = chosen.count(q) / len(chosen)
    return {"design": name, "q": q, "right": right, "chosen": _counted(chosen)}


def _counted(chosen: list[int]) -> str:
    """Return in words how many draws chose each number."""
    return ", ".join(f"{number}: {count}" for number, count in sorted(Counter(chosen).items()))


def _real_line(name: str) -> Figure:
    load, wanted = _REAL[name]
    X, y = load(return_X_y=True)
    chosen, usual = _number(X, y), len(np.unique(y)) - 1
    accuracy, accuracy_of_usual = (_accuracy(X, y, q) for q in (None, usual))
    return {
        "design": name,
        "chosen": str(chosen),
        "accuracy": accuracy,
        "accuracy_of_classes_-_1": accuracy_of_usual,
        "ok": bool(
            (wanted is None or chosen in wanted) and accuracy >= accuracy_of_usual - _LARGEST_LOSS
        ),
    }


def _accuracy(X: Array, y: Array, q: int | None) -> float:
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    return float(np.mean([_score(X, y, q, *split) for split in folds.split(X, y)]))


def _score(X: Array, y: Array, q: int | None, train: Array, test: Array) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = PredictiveIKDR(q).fit(X[train], y[train])
    svm = SVC().fit(model.transform(X[train]), y[train])
    return float(svm.score(model.transform(X[test]), y[test]))
