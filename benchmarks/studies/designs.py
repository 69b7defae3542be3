"""Designs of subspace recovery: y depends on X (n, d) only through X B (n, q) and noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[Any]
# Unequal variances: the shift of the second class along x1, and the factor that widens its x2.
_SHIFT, _STRETCH = 1.0, 2.5
# Spirals: the standard deviation of rows around their arm, whose radius equals its angle.
_OFF_ARM = 0.2
# Outliers: their share, the factor of outlying rows, and what is added to outlying y.
_OUTLYING, _FACTOR, _ADDED = 0.02, 8, 15
# The step of gradients by differences, and the rows from which the efficiency bound is computed.
_STEP, _BOUND_ROWS = 1e-4, 100_000


class Response(Protocol):
    """Draws y given X B; whole numbers are classes."""

    def __call__(self, Z: Array, rng: Generator) -> Array:
        """Draw y (n,) for rows Z (n, q) of X B."""

    def information(self, Z: Array) -> Array:
        """Return the Fisher information (n, q, q) of y about a shift of each row."""


@dataclass(frozen=True, eq=False)
class Draw:
    """Rows X (n, d) with y (n,), and the subspace B (d, q) that y depends on."""

    X: Array
    y: Array
    B: Array


def _normal(n: int, d: int, rng: Generator) -> Array:
    """Draw rows with independent standard normal columns."""
    return rng.normal(size=(n, d))


@dataclass(frozen=True, eq=False)
class Design:
    """A joint distribution of X (n, d) and y in which y depends on a subspace of dimension q.

    Attributes
    ----------
    name : str
    formula : str
        The distribution in words.
    directions : (q, c) array
        The columns of B as weights of the first c columns of X, orthonormal.
    response : callable
        Draws y (n,), given X B (n, q) and a generator.
    inputs : callable
        Draws X (n, d), given n, d and a generator.
    d, n : int
        Columns and, unless a caller asks for another number, rows.
    """

    name: str
    formula: str
    directions: Array
    response: Response
    inputs: Callable[[int, int, Generator], Array] = _normal
    d: int = 10
    n: int = 500

    @property
    def q(self) -> int:
        """The dimension of the true subspace."""
        return len(self.directions)

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


def efficiency_bound(design: Design, n: int) -> float:
    """Return the mean distance below which no method can come with many rows, n of them.

    It is the semiparametric efficiency bound: the law of y given X B is unknown, as that of X. It
    is 0 for classes without noise, and too low where columns outside of the subspace depend on
    those within in another way than linearly.
    """
    X = design.inputs(_BOUND_ROWS, design.d, np.random.default_rng(0))
    Z = X @ design.B
    information = design.response.information(Z).mean(axis=0)
    if not np.isfinite(information).all():
        return 0.0
    outside = X @ scipy.linalg.null_space(design.B.T)
    Z, outside = Z - Z.mean(axis=0), outside - outside.mean(axis=0)
    rest = outside - Z @ np.linalg.lstsq(Z, outside)[0]
    traces = [np.trace(np.linalg.inv(each)) for each in (information, rest.T @ rest / len(X))]
    return float(np.sqrt(np.prod(traces) / (n * design.q)))


def distance(B: Array, W: Array) -> float:
    """Return |P - Q|_F / sqrt(2 q) of the projectors onto the columns of B (d, q) and of W (d, q).

    It is 0 if the subspaces are equal and 1 if they are orthogonal.
    """
    V, U = np.linalg.qr(B)[0], np.linalg.qr(W)[0]
    return float(np.linalg.norm(V @ V.T - U @ U.T) / np.sqrt(2 * B.shape[1]))


def correlated_rows(n: int, d: int, rng: Generator, r: float) -> Array:
    """Draw normal rows whose columns i and j have the correlation r^|i - j|."""
    lags = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.asarray(_normal(n, d, rng) @ np.linalg.cholesky(r**lags).T)


def _factors(n: int, d: int, rng: Generator) -> Array:
    """Draw columns of variance 1, half of it from three common factors with random loadings."""
    loadings = _normal(3, d, rng)
    common = _normal(n, 3, rng) @ (loadings / np.linalg.norm(loadings, axis=0))
    return np.asarray((common + _normal(n, d, rng)) / np.sqrt(2))


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


def _heavy_tailed(n: int, d: int, rng: Generator) -> Array:
    """Draw columns from Student's t with three degrees of freedom."""
    return rng.standard_t(3, size=(n, d))


def _mixed(n: int, d: int, rng: Generator) -> Array:
    """Draw columns that are in turn binary, counts, lognormal and normal."""
    X = _normal(n, d, rng)
    X[:, ::4] = X[:, ::4] > 0
    X[:, 1::4] = rng.poisson(2, size=X[:, 1::4].shape)
    X[:, 2::4] = np.exp(0.5 * X[:, 2::4])
    return X


def _with_outliers(n: int, d: int, rng: Generator) -> Array:
    """Draw normal rows and multiply about 2% of them by 8."""
    X = _normal(n, d, rng)
    X[rng.random(n) < _OUTLYING] *= _FACTOR
    return X


@dataclass(frozen=True)
class Noisy:
    """Numbers with a mean, of the columns of X B, and normal noise of one deviation.

    Of some rows, a share, `added` is added to y.
    """

    mean: Callable[..., Array]
    deviation: float
    added: float = 0.0
    share: float = 0.0

    def __call__(self, Z: Array, rng: Generator) -> Array:
        """Draw y (n,) for rows Z (n, q) of X B."""
        y = self.mean(*Z.T) + self.deviation * rng.normal(size=len(Z))
        return y + self.added * (rng.random(len(Z)) < self.share) if self.share else y

    def information(self, Z: Array) -> Array:
        """Return the Fisher information (n, q, q) of y about a shift of each row."""
        return _squares(_gradients(self.mean, Z) / self.deviation)


@dataclass(frozen=True)
class LocationAndScale:
    """Numbers whose mean and deviation are functions of the columns of X B."""

    mean: Callable[..., Array]
    deviation: Callable[..., Array]

    def __call__(self, Z: Array, rng: Generator) -> Array:
        """Draw y (n,) for rows Z (n, q) of X B."""
        return np.asarray(self.mean(*Z.T) + self.deviation(*Z.T) * rng.normal(size=len(Z)))

    def information(self, Z: Array) -> Array:
        """Return the Fisher information (n, q, q) of y about a shift of each row."""
        scale = self.deviation(*Z.T)[:, None]
        mean, deviation = (_gradients(each, Z) / scale for each in (self.mean, self.deviation))
        return _squares(mean) + 2 * _squares(deviation)


@dataclass(frozen=True)
class Counts:
    """Counts with a mean of the columns of X B, as numbers that are not classes."""

    mean: Callable[..., Array]

    def __call__(self, Z: Array, rng: Generator) -> Array:
        """Draw y (n,) for rows Z (n, q) of X B."""
        return rng.poisson(self.mean(*Z.T)).astype(float)

    def information(self, Z: Array) -> Array:
        """Return the Fisher information (n, q, q) of y about a shift of each row."""
        return _squares(_gradients(self.mean, Z) / np.sqrt(self.mean(*Z.T))[:, None])


@dataclass(frozen=True)
class Logistic:
    """Two classes with the log odds `logit`, of the columns of X B."""

    logit: Callable[..., Array]

    def __call__(self, Z: Array, rng: Generator) -> Array:
        """Draw y (n,) for rows Z (n, q) of X B."""
        return (rng.random(len(Z)) < expit(self.logit(*Z.T))).astype(int)

    def information(self, Z: Array) -> Array:
        """Return the Fisher information (n, q, q) of y about a shift of each row."""
        p = expit(self.logit(*Z.T))
        return _squares(_gradients(self.logit, Z) * np.sqrt(p * (1 - p))[:, None])


@dataclass(frozen=True)
class Classes:
    """Classes that are functions of the columns of X B, without noise."""

    label: Callable[..., Array]

    def __call__(self, Z: Array, _: Generator) -> Array:
        """Return y (n,) for rows Z (n, q) of X B."""
        return np.asarray(self.label(*Z.T), dtype=int)

    def information(self, Z: Array) -> Array:
        """Return an information (n, q, q) without bounds: no class is in doubt."""
        return np.full((len(Z), Z.shape[1], Z.shape[1]), np.inf)


def _gradients(function: Callable[..., Array], Z: Array) -> Array:
    """Return the gradients (n, q) of a function at rows Z (n, q)."""
    shifts = _STEP * np.eye(Z.shape[1])
    pairs = [function(*(Z + each).T) - function(*(Z - each).T) for each in shifts]
    return np.column_stack(pairs) / (2 * _STEP)


def _squares(vectors: Array) -> Array:
    """Return the products (n, q, q) of vectors (n, q) with themselves."""
    return np.asarray(vectors[:, :, None] * vectors[:, None, :])


def _second_of_two_widths(u: Array, v: Array) -> Array:
    """Return the log odds of the second class at rows of `_two_widths`."""
    width = 0.5 * (1 - _STRETCH**-2) * v**2 - np.log(_STRETCH)
    return np.asarray(_SHIFT * u - 0.5 * _SHIFT**2 + width)


def _arm(u: Array, v: Array) -> Array:
    """Return the number of the nearer of the two arms of `_arms`."""
    return np.asarray(np.cos(np.arctan2(v, u) - np.hypot(u, v)) > 0)


def _square(u: Array, v: Array) -> Array:
    return np.asarray((np.floor(3 * u) + np.floor(3 * v)) % 2)


_RATIO = Noisy(lambda u, v: u / (0.5 + (v + 1.5) ** 2), 0.5)
_PRODUCT = Noisy(lambda u, v: u * (u + v + 1), 0.5)
_SINE = Noisy(lambda z: np.sin(np.pi * z + 1) ** 2, 0.1)
_ADDITIVE = Noisy(lambda u, v: u + v**2, 0.5)
_BOUNDED = Noisy(lambda u, v: np.tanh(u) + np.cos(2 * v), 0.3)
_OUTLYING_Y = replace(_ADDITIVE, added=_ADDED, share=_OUTLYING)
_LOGISTIC = Logistic(lambda z: 2 * z)
_VARIANCE_ONLY = LocationAndScale(np.zeros_like, lambda z: 0.5 * z**2)
_LOCATION_AND_SCALE = LocationAndScale(lambda u, _: u, lambda _, v: 0.5 * np.exp(v))
_COUNTS = Counts(lambda u, v: np.exp(0.6 * u + 0.3 * v**2))

_RATIO_TEXT = "y = x1 / (0.5 + (x2 + 1.5)^2) + 0.5 e"
_PRODUCT_TEXT = "y = x1 (x1 + x2 + 1) + 0.5 e"
_SINE_TEXT = "y = sin^2(pi x2 + 1) + 0.1 e, X uniform on [0, 1]^{0} without [0, 0.7]^{0}"
_ADDITIVE_TEXT = "y = x1 + x2^2 + 0.5 e"
_BOUNDED_TEXT = "y = tanh(x1) + cos(2 x2) + 0.3 e"
_AR_TEXT = ", columns i and j correlated by .{}^|i - j|"

_ONE, _TWO, _THREE, _FOUR = (np.eye(q) for q in (1, 2, 3, 4))
_SECOND = _TWO[1:]
_ONE_TO_TWO = np.array([[1.0, 2.0]]) / np.sqrt(5)
_DIAGONALS = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
_SUM_OF_THREE = np.ones((1, 3)) / np.sqrt(3)
# Of columns of mixed kinds: the binary less the lognormal one, and the count plus the normal one.
_KINDS = np.array([[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]) / np.sqrt(2)
_AR_5, _AR_7, _AR_8 = (partial(correlated_rows, r=r) for r in (0.5, 0.7, 0.8))
_CENTRED = partial(_uniform, low=-1.0)

DESIGNS: tuple[Design, ...] = (
    Design("Li 6.3", _RATIO_TEXT, _TWO, _RATIO),
    Design("Li 6.3, d = 20", _RATIO_TEXT, _TWO, _RATIO, d=20),
    Design("Li 6.3, AR(.7)", _RATIO_TEXT + _AR_TEXT.format(7), _TWO, _RATIO, _AR_7),
    Design("Li 6.2", _PRODUCT_TEXT, _TWO, _PRODUCT),
    Design("Li 6.2, AR(.7)", _PRODUCT_TEXT + _AR_TEXT.format(7), _TWO, _PRODUCT, _AR_7),
    Design(
        "KDR A",
        "y = x1 / (0.5 + (x2 + 1.5)^2) + (1 + x2)^2 + 0.4 e",
        _TWO,
        Noisy(lambda u, v: u / (0.5 + (v + 1.5) ** 2) + (1 + v) ** 2, 0.4),
    ),
    Design("KDR B, d = 4", _SINE_TEXT.format(4), _SECOND, _SINE, _cornered, d=4),
    Design("KDR B, d = 10", _SINE_TEXT.format(10), _SECOND, _SINE, _cornered),
    Design("KDR C", "y = 0.5 x1^2 e", _ONE, _VARIANCE_ONLY),
    Design(
        "gKDR A",
        "y = z sin(sqrt(5) z) + 0.1 e, z = (x1 + 2 x2) / sqrt(5), X uniform on [-1, 1]^10",
        _ONE_TO_TWO,
        Noisy(lambda z: z * np.sin(np.sqrt(5) * z), 0.1),
        _CENTRED,
    ),
    Design(
        "gKDR B",
        "y = (u^3 + v) (u - v^3) + 0.1 e, u, v = (x1 +- x2) / sqrt(2), X uniform on [-1, 1]^10",
        _DIAGONALS,
        Noisy(lambda u, v: (u**3 + v) * (u - v**3), 0.1),
        _CENTRED,
    ),
    Design(
        "cos-cos",
        "y = cos(2 x1) - cos(x2) + 0.2 e",
        _TWO,
        Noisy(lambda u, v: np.cos(2 * u) - np.cos(v), 0.2),
    ),
    Design(
        "rings",
        "y = the radius of (x1, x2), cut at 0.9 and 1.6",
        _TWO,
        Classes(lambda u, v: np.digitize(np.hypot(u, v), [0.9, 1.6])),
    ),
    Design("xor", "y = the sign of x1 x2", _TWO, Classes(lambda u, v: u * v > 0)),
    Design(
        "checkerboard",
        "y = the colour of 3 x 3 squares of (x1, x2), X uniform on [0, 1]^10",
        _TWO,
        Classes(_square),
        _uniform,
    ),
    Design(
        "unequal variances",
        "two classes, the second with x1 + 1 and 2.5 x2",
        _TWO,
        Logistic(_second_of_two_widths),
        _two_widths,
    ),
    Design("spirals", "two arms of one turn in (x1, x2)", _TWO, Classes(_arm), _arms),
)

# No setting of the library is chosen by these: they show how far its choices carry.
UNSEEN: tuple[Design, ...] = (
    Design(
        "Poisson, AR(.5)",
        "y ~ Poisson(exp(0.6 x1 + 0.3 x2^2))" + _AR_TEXT.format(5),
        _TWO,
        _COUNTS,
        _AR_5,
    ),
    Design("additive, AR(.8)", _ADDITIVE_TEXT + _AR_TEXT.format(8), _TWO, _ADDITIVE, _AR_8, n=1000),
    Design(
        "additive, factors",
        _ADDITIVE_TEXT + ", half of each column from three common factors",
        _TWO,
        _ADDITIVE,
        _factors,
        d=20,
    ),
    Design(
        "sine, d = 50",
        "y = sin(2 z) + 0.3 e, z = (x1 + x2 + x3) / sqrt(3)",
        _SUM_OF_THREE,
        Noisy(lambda z: np.sin(2 * z), 0.3),
        d=50,
    ),
    Design("additive, d = 100", _ADDITIVE_TEXT, _TWO, _ADDITIVE, d=100),
    Design(
        "heavy tails",
        _BOUNDED_TEXT + ", columns t with 3 degrees of freedom",
        _TWO,
        _BOUNDED,
        _heavy_tailed,
    ),
    Design(
        "mixed columns",
        "y = 2 u + v^2 / 4 + 0.3 e, u = (x1 - x3) / sqrt(2), v = (x2 + x4) / sqrt(2), columns in "
        "turn binary, Poisson, lognormal, normal",
        _KINDS,
        Noisy(lambda u, v: 2 * u + 0.25 * v**2, 0.3),
        _mixed,
        d=12,
    ),
    Design("logistic, n = 100", "log odds 2 x1", _ONE, _LOGISTIC, n=100),
    Design(
        "logistic, d = 30",
        "log odds 2 z, z = (x1 + x2 + x3) / sqrt(3)",
        _SUM_OF_THREE,
        _LOGISTIC,
        d=30,
        n=200,
    ),
    Design("outlying rows", _BOUNDED_TEXT + ", 2% of X times 8", _TWO, _BOUNDED, _with_outliers),
    Design("outlying y", _ADDITIVE_TEXT + ", plus 15 in 2% of the rows", _TWO, _OUTLYING_Y),
    Design("location and scale", "y = x1 + 0.5 exp(x2) e", _TWO, _LOCATION_AND_SCALE, n=1000),
    Design(
        "three sines",
        "y = sin(x1) + sin(1.5 x2) + sin(2 x3) + 0.2 e",
        _THREE,
        Noisy(lambda u, v, w: np.sin(u) + np.sin(1.5 * v) + np.sin(2 * w), 0.2),
        n=1000,
    ),
    Design(
        "two products",
        "y = x1 x2 + x3 x4 + 0.3 e",
        _FOUR,
        Noisy(lambda t, u, v, w: t * u + v * w, 0.3),
        n=2000,
    ),
    Design("tanh", "y = tanh(2 x1) + 0.3 e", _ONE, Noisy(lambda z: np.tanh(2 * z), 0.3), n=150),
    Design(
        "exp",
        "y = exp(z) + 0.5 e, z = (x1 + 2 x2) / sqrt(5)",
        _ONE_TO_TWO,
        Noisy(np.exp, 0.5),
        d=20,
        n=200,
    ),
    Design(
        "abs",
        "y = |z| + 0.3 e, z = (x1 + x2 + x3) / sqrt(3)",
        _SUM_OF_THREE,
        Noisy(np.abs, 0.3),
        n=300,
    ),
    Design(
        "three sectors",
        "y = the angle of (x1, x2), cut at -pi / 3 and pi / 3",
        _TWO,
        Classes(lambda u, v: np.digitize(np.arctan2(v, u), [-np.pi / 3, np.pi / 3])),
        n=300,
    ),
    Design("slab", "y = |x1| < 0.67", _ONE, Classes(lambda z: np.abs(z) < 0.67), d=20),
    Design(
        "hyperboloid",
        "y = x1^2 + x2^2 > x3^2 + 0.7",
        _THREE,
        Classes(lambda u, v, w: u**2 + v**2 > w**2 + 0.7),
        n=1000,
    ),
)


def seeded(
    number: int, draw: int, n: int | None = None, *, more: int = 0, mixed: bool = False
) -> Draw:
    """Return draw number `draw` of a design, counted over `DESIGNS` and `UNSEEN`.

    It has n rows, or as many as the design has of its own, with columns in random order, `more`
    than the design has. If `mixed`, the first four columns are rotated at random, so that each true
    direction is a weighted sum of them.

    If a method leaves a direction undetermined, LAPACK's choice favours the first columns, which
    are the true ones before they are reordered.
    """
    rng = np.random.default_rng([number, draw])
    design = (*DESIGNS, *UNSEEN)[number]
    drawn = replace(design, d=design.d + more).draw(n or design.n, rng)
    if mixed:
        rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        for each in (drawn.X, drawn.B.T):
            each[:, :4] = each[:, :4] @ rotation
    order = rng.permutation(drawn.X.shape[1])
    return Draw(drawn.X[:, order], drawn.y, drawn.B[order])
