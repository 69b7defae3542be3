"""Designs of subspace recovery: y depends on X (n, d) only through X B (n, q) and noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[Any]
# The correlation of neighbouring columns in the designs "AR(.7)".
_CORRELATION = 0.7
# Unequal variances: the shift of the second class along x1, and the factor that widens its x2.
_SHIFT, _STRETCH = 1.0, 2.5
# Spirals: the standard deviation of rows around their arm, whose radius equals its angle.
_OFF_ARM = 0.2


@dataclass(frozen=True, eq=False)
class Draw:
    """Rows X (n, d) with y (n,), and the subspace B (d, q) that y depends on."""

    X: Array
    y: Array
    B: Array


@dataclass(frozen=True, eq=False)
class Design:
    """A joint distribution of X (n, d) and y in which y depends on a subspace of dimension q.

    Attributes
    ----------
    name : str
    q, d : int
    formula : str
        The distribution in words.
    inputs : callable
        Draws X (n, d), given n, d and a generator.
    directions : (q, c) array
        The columns of B as weights of the first c columns of X, orthonormal.
    response : callable
        Draws y (n,), given X B (n, q) and a generator.
    """

    name: str
    q: int
    d: int
    formula: str
    inputs: Callable[[int, int, Generator], Array]
    directions: Array
    response: Callable[[Array, Generator], Array]

    @property
    def B(self) -> Array:
        """The true subspace: (d, q) with orthonormal columns."""
        B = np.zeros((self.d, self.q))
        B[: self.directions.shape[1]] = self.directions.T
        return B

    def draw(self, n: int, rng: Generator) -> Draw:
        """Draw n rows with `rng`."""
        X = self.inputs(n, self.d, rng)
        return Draw(X, self.response(X @ self.B, rng), self.B)


def distance(B: Array, W: Array) -> float:
    """Return |P - Q|_F / sqrt(2 q) of the projectors onto the columns of B (d, q) and of W (d, q).

    It is 0 if the subspaces are equal and 1 if they are orthogonal.
    """
    V, U = np.linalg.qr(B)[0], np.linalg.qr(W)[0]
    return float(np.linalg.norm(V @ V.T - U @ U.T) / np.sqrt(2 * B.shape[1]))


def _normal(n: int, d: int, rng: Generator) -> Array:
    """Draw rows with independent standard normal columns."""
    return rng.normal(size=(n, d))


def _correlated(n: int, d: int, rng: Generator) -> Array:
    """Draw normal rows whose columns i and j have the correlation .7^|i - j|."""
    lags = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return _normal(n, d, rng) @ np.linalg.cholesky(_CORRELATION**lags).T


def _uniform(n: int, d: int, rng: Generator, low: float = 0.0) -> Array:
    """Draw rows uniformly from [low, 1]^d."""
    return rng.uniform(low, 1, size=(n, d))


def _cornered(n: int, d: int, rng: Generator) -> Array:
    """Draw rows uniformly from [0, 1]^d without [0, 0.7]^d."""
    # With four columns, about one row in four falls into the corner, so 2 n leave n enough.
    X = _uniform(2 * n, d, rng)
    return X[(X > 0.7).any(axis=1)][:n]


def _two_widths(n: int, d: int, rng: Generator) -> Array:
    """Draw normal rows, about half of them shifted by 1 in x1 and stretched by 2.5 in x2."""
    X = _normal(n, d, rng)
    second = rng.random(n) < 0.5
    X[second, 0] += _SHIFT
    X[second, 1] *= _STRETCH
    return X


def _arms(n: int, d: int, rng: Generator) -> Array:
    """Draw normal rows whose x1 and x2 lie near one of two spiral arms."""
    X = _normal(n, d, rng)
    angle = rng.uniform(0, 2 * np.pi, size=n)
    side = rng.choice([-1, 1], size=n)
    arm = (side * angle) * np.array([np.cos(angle), np.sin(angle)])
    X[:, :2] = arm.T + _OFF_ARM * X[:, :2]
    return X


def _li_63(Z: Array, rng: Generator) -> Array:
    return Z[:, 0] / (0.5 + (Z[:, 1] + 1.5) ** 2) + 0.5 * rng.normal(size=len(Z))


def _li_62(Z: Array, rng: Generator) -> Array:
    return Z[:, 0] * (Z[:, 0] + Z[:, 1] + 1) + 0.5 * rng.normal(size=len(Z))


def _kdr_a(Z: Array, rng: Generator) -> Array:
    ratio = Z[:, 0] / (0.5 + (Z[:, 1] + 1.5) ** 2)
    return ratio + (1 + Z[:, 1]) ** 2 + 0.4 * rng.normal(size=len(Z))


def _kdr_b(Z: Array, rng: Generator) -> Array:
    return np.sin(np.pi * Z[:, 0] + 1) ** 2 + 0.1 * rng.normal(size=len(Z))


def _kdr_c(Z: Array, rng: Generator) -> Array:
    return 0.5 * Z[:, 0] ** 2 * rng.normal(size=len(Z))


def _gkdr_a(Z: Array, rng: Generator) -> Array:
    return Z[:, 0] * np.sin(np.sqrt(5) * Z[:, 0]) + 0.1 * rng.normal(size=len(Z))


def _gkdr_b(Z: Array, rng: Generator) -> Array:
    product = (Z[:, 0] ** 3 + Z[:, 1]) * (Z[:, 0] - Z[:, 1] ** 3)
    return product + 0.1 * rng.normal(size=len(Z))


def _cosines(Z: Array, rng: Generator) -> Array:
    return np.cos(2 * Z[:, 0]) - np.cos(Z[:, 1]) + 0.2 * rng.normal(size=len(Z))


def _ring(Z: Array, _rng: Generator) -> Array:
    return np.digitize(np.hypot(Z[:, 0], Z[:, 1]), [0.9, 1.6])


def _quadrant(Z: Array, _rng: Generator) -> Array:
    return (Z[:, 0] * Z[:, 1] > 0).astype(int)


def _square(Z: Array, _rng: Generator) -> Array:
    return np.asarray(np.floor(3 * Z).sum(axis=1) % 2, dtype=int)


def _one_of_two_widths(Z: Array, rng: Generator) -> Array:
    """Draw classes by their posterior probabilities at the rows of `_two_widths`."""
    mean = _SHIFT * Z[:, 0] - 0.5 * _SHIFT**2
    width = 0.5 * (1 - _STRETCH**-2) * Z[:, 1] ** 2 - np.log(_STRETCH)
    return (rng.random(len(Z)) < 1 / (1 + np.exp(-mean - width))).astype(int)


def _arm(Z: Array, _rng: Generator) -> Array:
    """Return the number of the nearer of the two arms of `_arms`."""
    turned = np.arctan2(Z[:, 1], Z[:, 0]) - np.hypot(Z[:, 0], Z[:, 1])
    return (np.cos(turned) > 0).astype(int)


_RATIO = "y = x1 / (0.5 + (x2 + 1.5)^2) + 0.5 e"
_PRODUCT = "y = x1 (x1 + x2 + 1) + 0.5 e"
_SINE = "y = sin^2(pi x2 + 1) + 0.1 e, X uniform on [0, 1]^{} without [0, 0.7]^{}"
_CORRELATED = ", columns i and j correlated by .7^|i - j|"
_ONE, _TWO, _SECOND = np.eye(1), np.eye(2), np.eye(2)[1:]
_ONE_TO_TWO = np.array([[1.0, 2.0]]) / np.sqrt(5)
_DIAGONALS = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
_CENTRED = partial(_uniform, low=-1.0)

DESIGNS: tuple[Design, ...] = (
    Design("Li 6.3", 2, 10, _RATIO, _normal, _TWO, _li_63),
    Design("Li 6.3, d = 20", 2, 20, _RATIO, _normal, _TWO, _li_63),
    Design("Li 6.3, AR(.7)", 2, 10, _RATIO + _CORRELATED, _correlated, _TWO, _li_63),
    Design("Li 6.2", 2, 10, _PRODUCT, _normal, _TWO, _li_62),
    Design("Li 6.2, AR(.7)", 2, 10, _PRODUCT + _CORRELATED, _correlated, _TWO, _li_62),
    Design(
        "KDR A",
        2,
        10,
        "y = x1 / (0.5 + (x2 + 1.5)^2) + (1 + x2)^2 + 0.4 e",
        _normal,
        _TWO,
        _kdr_a,
    ),
    Design("KDR B, d = 4", 1, 4, _SINE.format(4, 4), _cornered, _SECOND, _kdr_b),
    Design("KDR B, d = 10", 1, 10, _SINE.format(10, 10), _cornered, _SECOND, _kdr_b),
    Design("KDR C", 1, 10, "y = 0.5 x1^2 e", _normal, _ONE, _kdr_c),
    Design(
        "gKDR A",
        1,
        10,
        "y = z sin(sqrt(5) z) + 0.1 e, z = (x1 + 2 x2) / sqrt(5), X uniform on [-1, 1]^10",
        _CENTRED,
        _ONE_TO_TWO,
        _gkdr_a,
    ),
    Design(
        "gKDR B",
        2,
        10,
        "y = (u^3 + v) (u - v^3) + 0.1 e, u, v = (x1 +- x2) / sqrt(2), X uniform on [-1, 1]^10",
        _CENTRED,
        _DIAGONALS,
        _gkdr_b,
    ),
    Design("cos-cos", 2, 10, "y = cos(2 x1) - cos(x2) + 0.2 e", _normal, _TWO, _cosines),
    Design("rings", 2, 10, "y = the radius of (x1, x2), cut at 0.9 and 1.6", _normal, _TWO, _ring),
    Design("xor", 2, 10, "y = the sign of x1 x2", _normal, _TWO, _quadrant),
    Design(
        "checkerboard",
        2,
        10,
        "y = the colour of 3 x 3 squares of (x1, x2), X uniform on [0, 1]^10",
        _uniform,
        _TWO,
        _square,
    ),
    Design(
        "unequal variances",
        2,
        10,
        "two classes, the second with x1 + 1 and 2.5 x2",
        _two_widths,
        _TWO,
        _one_of_two_widths,
    ),
    Design("spirals", 2, 10, "two arms of one turn in (x1, x2)", _arms, _TWO, _arm),
)


def seeded(number: int, draw: int, n: int, *, more: int = 0, mixed: bool = False) -> Draw:
    """Return draw number `draw` of `DESIGNS[number]`, its columns in random order.

    There are `more` columns than the design has. If `mixed`, the first four columns are rotated at
    random, so that each true direction is a weighted sum of them.

    If a method leaves a direction undetermined, LAPACK's choice favours the first columns, which
    are the true ones before they are reordered.
    """
    rng = np.random.default_rng([number, draw])
    design = DESIGNS[number]
    drawn = replace(design, d=design.d + more).draw(n, rng)
    if mixed:
        rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        for each in (drawn.X, drawn.B.T):
            each[:, :4] = each[:, :4] @ rotation
    order = rng.permutation(drawn.X.shape[1])
    return Draw(drawn.X[:, order], drawn.y, drawn.B[order])
