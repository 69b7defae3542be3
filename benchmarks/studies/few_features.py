"""Fits to few features: supports of designs found again, and what few weights cost on digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from benchmarks.measure import Figure, in_processes, means_by_name, say
from benchmarks.registry import figure
from benchmarks.studies.designs import DESIGNS, seeded
from ism_dask import PredictiveIKDR

_ROWS, _DRAWS, _EXACT = 500, 6, 0.95
_SPLITS = 4
_COLUMNS, _LOST, _POINTS = 10, 0.01, 0.5
_SIZES = (10, 15, 20, 30, 40, "auto")


@figure
def supports() -> Figure:
    """17 designs with 500 rows, six draws: how often the support is exactly that of the truth.

    `auto` chooses the number of features, `given` gets the number. `J` is that of the support, as a
    share of J with all features.
    """
    cells = [(number, draw) for number in range(len(DESIGNS)) for draw in range(_DRAWS)]
    runs = list(in_processes(_exact_supports, cells))
    lines = []
    for number, design in enumerate(DESIGNS):
        found = runs[number * _DRAWS : (number + 1) * _DRAWS]
        means = means_by_name(found)
        lines.append({"design": design.name, **means})
    shares = {name: float(np.mean([line[name] for line in lines])) for name in ("auto", "given")}
    return {
        "table": [*lines, {"design": f"mean of {len(lines)}", **shares}],
        "must": f"exact with `auto` in {_EXACT:.0%} of the draws of all designs",
        "met": shares["auto"] >= _EXACT,
    }


def _exact_supports(number: int, draw: int) -> dict[str, float]:
    """Return whether fits to one draw find its support, and their share of J."""
    drawn = seeded(number, draw, _ROWS)
    q, truth = drawn.B.shape[1], np.abs(drawn.B).max(axis=1) > 0
    result = {}
    for name, size in (("auto", "auto"), ("given", int(truth.sum()))):
        model = PredictiveIKDR(q, max_features=size).fit(drawn.X, drawn.y)
        result[name] = float(np.array_equal(model.get_support(), truth))
        result[f"J {name}"] = _share_of_all(model)
    say(f"{DESIGNS[number].name}, draw {draw}: {result['auto']:.0f}, {result['given']:.0f}")
    return result


@figure
def sparse() -> Figure:
    """Digits, 64 pixels, four splits: weights of a new feature, J lost, points of accuracy lost.

    All weights beside few: those of `max_features` and `rotation="varimax"`. Accuracy is that of an
    RBF-SVM on 30% of the rows, held out. `large` counts weights above 0.3 of the largest one.
    """
    sizes = [None, *_SIZES]
    cells = [(q, size, split) for q in (2, 5) for size in sizes for split in range(_SPLITS)]
    runs = iter(in_processes(_digits, cells))
    lines: list[dict[str, Any]] = []
    for q in (2, 5):
        for size in sizes:
            found = [next(runs) for _ in range(_SPLITS)]
            means = means_by_name(found)
            lines.append({"q": q, "max_features": "all" if size is None else size, **means})
        whole = next(line for line in lines if line["q"] == q)["accuracy"]
        for line in lines[-len(sizes) :]:
            line["points lost"] = 100 * (whole - line["accuracy"])
            say(", ".join(f"{key} {value}" for key, value in line.items()))
    few = [line for line in lines if line["weights"] <= _COLUMNS]
    good = [line for line in few if line["J lost"] <= _LOST and line["points lost"] <= _POINTS]
    return {
        "table": lines,
        "must": (
            f"for q = 2 and 5, at most {_COLUMNS} weights a new feature with {_LOST:.0%} of J "
            f"and {_POINTS:g} points of accuracy lost"
        ),
        "met": {line["q"] for line in good} == {2, 5},
    }


def _share_of_all(model: PredictiveIKDR) -> float:
    """Return J of a fit as a share of that of the fit to all columns, which it may be itself."""
    return model.objective_ / (model.report_.full_objective or model.objective_)


def _digits(q: int, size: int | str | None, split: int) -> dict[str, float]:
    X, y = load_digits(return_X_y=True)
    train, test, labels, answers = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=split
    )
    model = PredictiveIKDR(q, max_features=size, rotation="varimax").fit(train, labels)
    weights = np.abs(model.components_)
    machine = SVC().fit(model.transform(train), labels)
    return {
        "weights": float((weights > 0).sum(axis=1).max()),
        "large": float((weights > 0.3 * weights.max(axis=1, keepdims=True)).sum(axis=1).mean()),
        "J lost": 1 - _share_of_all(model),
        "accuracy": machine.score(model.transform(test), answers),
    }
