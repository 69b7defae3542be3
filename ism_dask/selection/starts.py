"""Starts for W: each method detects another way in which y can depend on X."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import scipy.linalg
from sklearn.linear_model import RidgeCV
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neural_network import MLPRegressor

from ism_dask._types import Array
from ism_dask.criteria.prediction import RowsInMemory
from ism_dask.linalg.eigen import largest_pairs
from ism_dask.linalg.subspaces import nearest_orthonormal
from ism_dask.selection.rules import RULES

# The name of the start by linear regression.
LINEAR = "linear"
_TINY = float(np.finfo(float).tiny)


# The names of all starts, and of another for many rows.
NETWORK = "network"
START_NAMES = (
    "gradient",
    "gradients",
    LINEAR,
    "partial least squares",
    "directional regression",
    "waves",
)


def starts_by_name(
    X: Array, Y: Array, keys: Array, q: int, names: Sequence[str] = START_NAMES
) -> dict[str, Array]:
    """Return the starts (d, q) of some names.

    Rows X (m, d) are to explain Y (m, r), by its leading principal columns if it has many; rows of
    similar y have similar keys (m,).
    """
    if Y.shape[1] > RULES.gradient_functions:
        Y = np.asarray(Y @ largest_pairs(Y.T @ Y, RULES.gradient_functions)[1])

    @cache
    def moments() -> list[Array]:
        return gradient_moments(X, Y, (1, 3))

    @cache
    def weights() -> Array:
        return linear_weights(X, Y)

    methods: dict[str, Callable[[], Array]] = {
        "gradient": lambda: largest_pairs(moments()[0], q)[1],
        "gradients": lambda: largest_pairs(moments()[1], q)[1],
        LINEAR: lambda: linear_directions(X, weights()),
        "partial least squares": lambda: partial_least_squares(X, Y),
        "directional regression": lambda: directional_regression(X, keys, q),
        "waves": lambda: wave_direction(X, Y - X @ weights()),
    }
    starts = {}
    for name in names:
        W = np.linalg.qr(methods[name]()[:, :q].astype(np.float64))[0]
        if W.shape[1] < q:  # the gradients complete it
            outside = np.eye(len(W)) - W @ W.T
            W = np.hstack([W, largest_pairs(outside @ moments()[1] @ outside, q - W.shape[1])[1]])
        starts[name] = nearest_orthonormal(W)
    return starts


def gradient_moments(X: Array, Y: Array, rounds: tuple[int, ...]) -> list[Array]:
    """Return the moments (d, d) of the gradients of regressions of Y on X after some rounds.

    A recursive feature machine (Radhakrishnan et al. 2024): a ridge regression with a Laplace
    kernel, whose metric in each round is the mean outer product of the gradients of the last.
    """
    most = RULES.gradient_rows if X.shape[1] <= RULES.many_columns else RULES.few_gradient_rows
    chosen = np.linspace(0, len(X) - 1, min(len(X), most)).astype(int)
    # Distances between rows far from the origin would lose their digits.
    X, Y = X[chosen] - X[chosen].mean(axis=0), Y[chosen]
    n, d = X.shape
    width = RULES.laplace_width * np.sqrt(d)
    metric, results = np.eye(d), []
    for number in range(1, max(rounds) + 1):
        values, vectors = scipy.linalg.eigh(metric)
        root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        Z = X @ root
        distances = euclidean_distances(Z)
        K = np.exp(distances / -width)
        alpha = scipy.linalg.solve(K + RULES.laplace_ridge * np.eye(n), Y, assume_a="pos")
        apart = distances > RULES.same_distance
        slopes = np.where(apart, K / np.maximum(distances, RULES.same_distance), 0.0) / width
        # The gradients of a function at all rows are `G Z` with a matrix G (n, n).
        square = np.zeros((n, n))
        for column in alpha.T:
            G = slopes * -column
            G[np.diag_indices(n)] -= G.sum(axis=1)
            square += G.T @ G
        moments = root @ (Z.T @ square @ Z) @ root
        total = float(np.trace(moments))
        if total > d * _TINY:  # else y does not depend on X at all
            metric = moments * (d / total)
        if number in rounds:
            results.append(metric)
    return results


def linear_directions(X: Array, weights: Array) -> Array:
    """Return the directions (d, k) of a linear regression by weights (d, r), most explaining first.

    For classes these are the directions of linear discriminant analysis, with shrinkage.
    """
    _, sizes, right = np.linalg.svd(X @ weights, full_matrices=False)
    return np.asarray(weights @ right[sizes > RULES.dependent * max(sizes[0], _TINY)].T)


def linear_weights(X: Array, Y: Array) -> Array:
    """Return the weights (d, r) of the ridge regression that predicts left-out rows best.

    It has an intercept, though the rows are centred: without one it sees the row that is left out,
    which is minus the sum of the others, and with more columns than rows predicts it exactly.
    """
    ridges = [len(X) * ridge for ridge in RULES.linear_ridges]
    return np.atleast_2d(RidgeCV(ridges).fit(X, Y).coef_).T


def partial_least_squares(X: Array, Y: Array) -> Array:
    """Return the directions (d, k) of partial least squares of Y (m, r), most covariance first."""
    left, sizes, _ = np.linalg.svd(X.T @ Y, full_matrices=False)
    return np.asarray(left[:, sizes > RULES.dependent * max(sizes[0], _TINY)])


def wave_direction(X: Array, Y: Array) -> Array:
    """Return the direction (d, 1) of the wave that Y (m, r), without its linear part, has most of.

    A wave of frequency t (d,) is `exp(i x^T t)`. The mean of its product with y, a characteristic
    function, is large though y rises and falls so fast that gradients and slices cancel.
    """
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    rng = np.random.default_rng(0)
    # Sums of rows with random signs: so no sign, unit or order of columns decides.
    T = X.T @ rng.standard_normal((len(X), RULES.waves), dtype=np.float32)
    T *= rng.uniform(*RULES.wave_lengths, RULES.waves) / np.linalg.norm(T, axis=0)
    T = T[:, np.argsort(-_Waves(X, Y, T).sizes, kind="stable")[: RULES.climbed_waves]]
    best, most = T[:, :1], -1.0
    for _ in range(RULES.wave_steps):
        waves = _Waves(X, Y, T)
        if waves.sizes.max() > most:
            best, most = T[:, [np.argmax(waves.sizes)]], waves.sizes.max()
        # For normal rows, this is half of Newton's step for the logarithm of the size.
        steps = waves.slopes / np.maximum(2 * waves.sizes, _TINY)
        T = T + steps / np.maximum(np.linalg.norm(steps, axis=0), 1.0)
    return best


class _Waves:
    """Waves of frequencies T (d, k) over rows X (m, d), and their mean products with Y (m, r)."""

    def __init__(self, X: Array, Y: Array, T: Array) -> None:
        self._X, self._Y, phases = X, Y, X @ T
        self._cosines, self._sines = np.cos(phases), np.sin(phases)
        self._with_cosines, self._with_sines = (
            Y.T @ each / len(X) for each in (self._cosines, self._sines)
        )
        # The squared sizes (k,) of the mean products.
        self.sizes = (self._with_cosines**2 + self._with_sines**2).sum(axis=0)

    @property
    def slopes(self) -> Array:
        """The gradients (d, k) of the squared sizes with respect to the frequencies."""
        turned = self._cosines * (self._Y @ self._with_sines)
        turned -= self._sines * (self._Y @ self._with_cosines)
        return self._X.T @ turned * np.float32(2 / len(turned))


def directional_regression(X: Array, keys: Array, q: int) -> Array:
    """Return the subspace (d, q) in which slices differ in mean or variance (Li and Wang 2007).

    The slice of a row is its key if there are few keys (m,), else its rank by them cut in ten.
    """
    m, d = X.shape
    distinct, slices = np.unique(keys, return_inverse=True)
    if len(distinct) > max(RULES.slices, m // RULES.slices):
        slices = np.argsort(np.argsort(keys, kind="stable")) * RULES.slices // m
    values, vectors = scipy.linalg.eigh(X.T @ X / m)
    ridge = RULES.whitening_ridge * float(values.mean())
    whitening = vectors / np.sqrt(np.maximum(values, 0.0) + ridge)
    white = X @ whitening
    moments, means, size = np.zeros((d, d)), np.zeros((d, d)), 0.0
    for label in np.unique(slices):
        rows = white[slices == label]
        share, mean = len(rows) / m, rows.mean(axis=0)
        moments += share * _squared_departure(rows)
        means += share * np.outer(mean, mean)
        size += share * float(mean @ mean)
    return np.asarray(whitening @ largest_pairs(moments + means @ means + size * means, q)[1])


def _squared_departure(rows: Array) -> Array:
    """Return the square (d, d) of `R^T R / n - I` for rows R (n, d)."""
    n, d = rows.shape
    if n < d:  # products of rows are smaller than those of columns
        return np.asarray(rows.T @ ((rows @ rows.T / n - 2.0 * np.eye(n)) @ rows) / n + np.eye(d))
    departure = rows.T @ rows / n - np.eye(d)
    return np.asarray(departure @ departure)


def network_directions(rows: RowsInMemory, q: int, seed: int) -> Array:
    """Return the weights (d, q), orthonormal, of the first layer of a network that predicts Y.

    The layer has q units, so that they are new features, each bent in one way; the two wide layers
    behind it may predict anything from them.
    """
    batch = min(RULES.network_batch, rows.n_rows)
    epochs = max(RULES.network_epochs, RULES.network_steps * batch // rows.n_rows)
    network = MLPRegressor(
        hidden_layer_sizes=(q, RULES.network_units, RULES.network_units),
        activation="tanh",
        batch_size=batch,
        learning_rate_init=RULES.network_rate,
        # No loss falls by so much: after the first two epochs and these, it ends without a warning.
        tol=1e9,
        n_iter_no_change=epochs - 2,
        max_iter=epochs + 1,
        random_state=seed,
    )
    # Far values of a column, such as a pixel that is mostly white, would saturate all units.
    usual = RULES.network_reach * max(float(rows.X.std()), _TINY)
    scale = np.asarray(usual / np.maximum(np.abs(rows.X).max(axis=0), usual), rows.X.dtype)
    Y = rows.Y * np.sqrt(rows.Y.shape[1])  # columns of variance 1
    Y = Y[:, 0] if Y.shape[1] == 1 else Y
    network.fit(rows.X * scale, Y.astype(rows.X.dtype), rows.weights)
    return np.linalg.qr(network.coefs_[0].astype(np.float64) * scale[:, None])[0]
