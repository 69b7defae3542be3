"""Transfer: a large first sample helps a small second one, or does no harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.designs import distance
from benchmarks.measure import Figure, say
from benchmarks.parallel import in_processes
from ism_dask import SupervisedIKDR

Array = np.ndarray[Any, Any]
# Draws of each cell, and the rows of the two samples in even and in odd ones.
_DRAWS, _SMALL, _LARGE = 4, (60, 100), (500, 1000)
_COLUMNS, _CORRELATION = 10, 0.3
# What the source may cost where it has another subspace, and has to gain where it has the same.
_HARM, _GAIN = 0.02, 0.5


def transfer() -> Figure:
    """Distance to the subspace of 60 or 100 rows, alone and with a source of 500 or 1,000 rows."""
    cells = [
        (pair, relation, draw)
        for pair in _PAIRS
        for relation in _RELATIONS
        for draw in range(_DRAWS)
    ]
    lines: dict[tuple[str, str], list[dict[str, float]]] = {}
    for (pair, relation, _), line in zip(cells, in_processes(_distances, cells), strict=True):
        lines.setdefault((pair, relation), []).append(line)
    table: list[dict[str, Any]] = []
    for (pair, relation), each in lines.items():
        means = {key: float(np.mean([line[key] for line in each])) for key in each[0]}
        table.append({"first, second": pair, "subspace": relation, **means})
        say(", ".join(f"{key} {value}" for key, value in table[-1].items()))
    for relation in _RELATIONS:
        rows = [line for line in table if line["subspace"] == relation]
        means = {key: float(np.mean([line[key] for line in rows])) for key in _KEYS}
        table.append({"first, second": "mean", "subspace": relation, **means})
    same, *_, other = table[-len(_RELATIONS) :]
    return {
        "table": table,
        "must": "half the distance with the same subspace; .02 more at most with another one",
        "met": same["helped"] <= _GAIN * same["alone"]
        and other["helped"] <= other["alone"] + _HARM,
    }


_KEYS = ("alone", "source's", "helped", "weight")
_RELATIONS: dict[str, float | None] = {"same": 0.0, "turned by 30": 30.0, "another": None}


def _distances(pair: str, relation: str, draw: int) -> dict[str, float]:
    """Return the distances of the fits to the truth of the second sample, and the weight."""
    rng = np.random.default_rng([draw, list(_PAIRS).index(pair)])
    q, first, second = _PAIRS[pair]
    B = np.linalg.qr(rng.normal(size=(_COLUMNS, q)))[0]
    B_first = _turned(B, _RELATIONS[relation], rng)
    sizes = _LARGE[draw % 2], _SMALL[draw % 2]
    lags = np.abs(np.subtract.outer(np.arange(_COLUMNS), np.arange(_COLUMNS)))
    root = np.linalg.cholesky(_CORRELATION**lags).T
    X_first, X = (rng.normal(size=(n, _COLUMNS)) @ root for n in sizes)
    y_first, y = first(X_first @ B_first, rng), second(X @ B, rng)
    source = SupervisedIKDR(q).fit(X_first, y_first)
    alone, helped = SupervisedIKDR(q).fit(X, y), SupervisedIKDR(q)
    helped.fit(X, y, source=(X_first, y_first))
    fits = (_directions(fitted) for fitted in (alone, source, helped))
    distances = [distance(B, W) for W in fits]
    return dict(zip(_KEYS, [*distances, helped.source_weight_], strict=True))


def _directions(fitted: SupervisedIKDR) -> Array:
    return np.asarray((fitted.components_ / fitted.scale_).T)


def _turned(B: Array, degrees: float | None, rng: np.random.Generator) -> Array:
    """Return B (d, q), each column turned towards a random direction outside, or another B."""
    outside = rng.normal(size=B.shape)
    outside = np.linalg.qr(outside - B @ (B.T @ outside))[0]
    if degrees is None:
        return np.linalg.qr(rng.normal(size=B.shape))[0]
    angle = np.deg2rad(degrees)
    return np.asarray(B * np.cos(angle) + outside * np.sin(angle))


def _noisy(mean: Callable[[Array], Array], deviation: float) -> Callable[..., Array]:
    return lambda Z, rng: mean(Z) + deviation * rng.normal(size=len(Z))


_RATIO = _noisy(lambda Z: Z[:, 0] / (0.5 + (Z[:, 1] + 1.5) ** 2), 0.5)
_ADDITIVE = _noisy(lambda Z: Z[:, 0] + Z[:, 1] ** 2, 0.5)
_PRODUCT = _noisy(lambda Z: Z[:, 0] * (Z[:, 0] + Z[:, 1] + 1), 0.5)
_BOUNDED = _noisy(lambda Z: np.tanh(Z[:, 0]) + np.cos(2 * Z[:, 1]), 0.3)
_SINE = _noisy(lambda Z: np.sin(2 * Z[:, 0]), 0.3)
_ABSOLUTE = _noisy(lambda Z: np.abs(Z[:, 0]), 0.3)
_LINEAR = _noisy(lambda Z: Z[:, 0], 1.0)


def _xor(Z: Array, _: np.random.Generator) -> Array:
    return np.asarray(Z[:, 0] * Z[:, 1] > 0, dtype=int)


def _logistic(Z: Array, rng: np.random.Generator) -> Array:
    return np.asarray(rng.random(len(Z)) < 1 / (1 + np.exp(-2 * Z[:, 0])), dtype=int)


# The dimension of the subspace, and y of the first and of the second sample.
_PAIRS: dict[str, tuple[int, Callable[..., Array], Callable[..., Array]]] = {
    "ratio, additive": (2, _RATIO, _ADDITIVE),
    "additive, product": (2, _ADDITIVE, _PRODUCT),
    "product, xor": (2, _PRODUCT, _xor),
    "bounded, ratio": (2, _BOUNDED, _RATIO),
    "xor, bounded": (2, _xor, _BOUNDED),
    "sine, absolute": (1, _SINE, _ABSOLUTE),
    "linear, sine": (1, _LINEAR, _SINE),
    "absolute, logistic": (1, _ABSOLUTE, _logistic),
    "logistic, linear": (1, _logistic, _LINEAR),
}
