"""Designs in which s drives both X and y: of y independent of X given s, and of y that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[Any]


class GivenDraw(NamedTuple):
    """Rows X (n, d) with y (n,) and s (n,) or (n, t)."""

    X: Array
    y: Array
    s: Any


Drawn = Callable[[Generator, int], GivenDraw]


def _linear(rng: Generator, n: int) -> GivenDraw:
    s, e = rng.normal(size=n), rng.normal(size=(n, 3))
    X = np.column_stack([s + e[:, 0], e[:, 1], e[:, 2] - s])
    return GivenDraw(X, s + rng.normal(size=n), s)


def _sine(rng: Generator, n: int) -> GivenDraw:
    s, e = rng.uniform(-2, 2, size=n), rng.normal(size=(n, 3))
    X = np.column_stack([np.sin(2 * s) + 0.5 * e[:, 0], s**2 + 0.5 * e[:, 1], e[:, 2]])
    return GivenDraw(X, np.sin(2 * s) + 0.5 * rng.normal(size=n), s)


def _squares(rng: Generator, n: int) -> GivenDraw:
    s, e = rng.normal(size=n), rng.normal(size=(n, 3))
    X = np.column_stack([s**2 + 0.5 * e[:, 0], np.cos(2 * s) + 0.5 * e[:, 1], e[:, 2]])
    return GivenDraw(X, s**2 + 0.5 * rng.normal(size=n), s)


def _five_columns(rng: Generator, n: int) -> GivenDraw:
    s, e = rng.normal(size=(n, 5)), rng.normal(size=(n, 3))
    u, v = s[:, 0] + s[:, 1] ** 2 / 2, s[:, 2] - s[:, 3] * s[:, 4] / 2
    X = np.column_stack([u + 0.7 * e[:, 0], v + 0.7 * e[:, 1], e[:, 2]])
    return GivenDraw(X, u + v + rng.normal(size=n), s)


def _classes(rng: Generator, n: int) -> GivenDraw:
    s = rng.integers(0, 4, n)
    X = np.column_stack([s == 0, s == 1, s > 1]) + 0.7 * rng.normal(size=(n, 3))
    return GivenDraw(X, np.where(rng.random(n) < 0.7, s % 3, rng.integers(0, 3, n)), s)


def _unequal_variances(rng: Generator, n: int) -> GivenDraw:
    s, e = rng.normal(size=n), rng.normal(size=(n, 3))
    X = np.column_stack([s + np.exp(s / 2) * e[:, 0], np.abs(s) * e[:, 1], s * e[:, 2]])
    return GivenDraw(X, s + np.abs(s) * rng.normal(size=n), s)


def _classes_and_numbers(rng: Generator, n: int) -> GivenDraw:
    sex, age, e = rng.integers(0, 2, n), rng.normal(size=n), rng.normal(size=(n, 2))
    slope = np.where(sex == 1, age, -age)
    X = np.column_stack([slope + 0.5 * e[:, 0], age + e[:, 1]])
    return GivenDraw(X, (slope + rng.normal(size=n) > 0).astype(int), np.column_stack([sex, age]))


def _ten_columns(rng: Generator, n: int) -> GivenDraw:
    s = rng.normal(size=(n, 2))
    X = 0.5 * s @ rng.normal(size=(2, 10)) + rng.normal(size=(n, 10))
    return GivenDraw(X, s[:, 0] + rng.normal(size=n), s)


# y does not depend on X given s.
NULLS: dict[str, Drawn] = {
    "linear": _linear,
    "sine": _sine,
    "squares": _squares,
    "five columns": _five_columns,
    "classes": _classes,
    "unequal variances": _unequal_variances,
    "a class and a number": _classes_and_numbers,
}


def _plus(null: Drawn, effect: Callable[[Array, Array], Array]) -> Drawn:
    """Return the design with an effect of X, and s, on y."""

    def drawn(rng: Generator, n: int) -> GivenDraw:
        X, y, s = null(rng, n)
        return GivenDraw(X, y + effect(X, s), s)

    return drawn


def _with_outer_class(rng: Generator, n: int) -> GivenDraw:
    X, y, s = _classes(rng, n)
    outer = np.abs(X[:, 2] - (s > 1)) > 0.9
    return GivenDraw(X, np.where(outer & (rng.random(n) < 0.6), 2, y), s)


# y depends on X given s.
EFFECTS: dict[str, Drawn] = {
    "0.3 times the residual of x1": _plus(_linear, lambda X, s: 0.3 * (X[:, 0] - s)),
    "0.3 x2^2": _plus(_linear, lambda X, _: 0.3 * X[:, 1] ** 2),
    "0.4 sin(3 x3)": _plus(_sine, lambda X, _: 0.4 * np.sin(3 * X[:, 2])),
    "0.4 x3, s of five columns": _plus(_five_columns, lambda X, _: 0.4 * X[:, 2]),
    "0.5 s x2": _plus(_linear, lambda X, s: 0.5 * s * X[:, 1]),
    "0.5 s times the residual of x1": _plus(_linear, lambda X, s: 0.5 * s * (X[:, 0] - s)),
    "outer rows of another class": _with_outer_class,
    "0.5 x1^2 + 0.3 x2 of ten columns": _plus(
        _ten_columns, lambda X, _: 0.5 * X[:, 0] ** 2 + 0.3 * X[:, 1]
    ),
}
