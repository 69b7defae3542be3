"""Other methods of dimension reduction that fit a regression and average its gradients.

Each takes standardised rows X (n, d), numeric labels or classes (whole numbers) y (n,), and q. It
returns a W (d, q) that spans its subspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve
from scipy.spatial.distance import cdist, pdist
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor

Array = NDArray[Any]
# Width, ridge and rounds of a recursive feature machine.
_Setting: TypeAlias = tuple[float, float, int]

# The constant of normal kernels in the plug-in bandwidths of Xia et al. (2002).
_BANDWIDTH = 2.34
_REFINEMENTS, _RIDGE = 10, 1e-3
# Eigenvectors of K_Y whose eigenvalue is a smaller share of the trace are dropped.
_NEGLIGIBLE = 1e-4
# gKDR chooses its width from these multiples of the median distance, and its ridge from these, by
# the held-out error of a regression on the nearest neighbours.
_WIDTHS = (0.25, 0.5, 0.75, 1.0, 2.0)
_RIDGES = (1e-7, 1e-5, 1e-3)
_NEIGHBOURS, _FOLDS = 5, 5
# RFM chooses its width from these multiples of the median distance, its ridge from these, and its
# number of rounds by the error on a fifth of the rows.
_LAPLACE_WIDTHS, _LAPLACE_RIDGES = (0.5, 1.0, 2.0), (1e-2, 1e-1, 1.0)
_ROUNDS = 6
# "law" has this many functions of y, from gaussians of these multiples of its median distance.
_FUNCTIONS, _SCALES = 6, (1.0, 0.5, 0.25)


def is_classes(y: Array) -> bool:
    """Return whether y holds classes, which are whole numbers here."""
    return y.dtype.kind in "iu"


def leading(M: Array, q: int) -> Array:
    """Return the eigenvectors (d, q) of the largest eigenvalues of M (d, d)."""
    return np.asarray(eigh(M)[1][:, ::-1][:, :q])


def outer_product_of_gradients(X: Array, y: Array, q: int) -> Array:
    """Return W by OPG: the outer product of gradients of local lines, refined (Xia et al. 2002).

    The lines fit an ensemble of functions of y (Yin and Li 2011), which sees more than the mean of
    y. The weights depend on the distances of rows of X, later of X W, at falling bandwidths.
    """
    F, W = _features(y), np.eye(X.shape[1])
    for bandwidth in _bandwidths(X, q):
        W = _leading_gradients(X, F, _weights(X @ W, bandwidth), q)
    return W


def minimum_average_variance(X: Array, y: Array, q: int) -> Array:
    """Return W by refined MAVE: one W that all local lines in X W share (Xia et al. 2002).

    The lines fit the mean of y, or class indicators. It starts from one step of OPG.
    """
    Y, W = _means(y), np.eye(X.shape[1])
    bandwidths = _bandwidths(X, q)
    W = _leading_gradients(X, Y, _weights(X, next(bandwidths)), q)
    for bandwidth in bandwidths:
        W = _common_directions(X, Y, W, _weights(X @ W, bandwidth))
    return W


def gradient_kernel_dimension_reduction(X: Array, y: Array, q: int) -> Array:
    """Return W by gKDR (Fukumizu and Leng 2014), its width and ridge chosen on held-out rows."""
    F = _features(y)
    median = float(np.median(pdist(X)))
    settings = list(product((factor * median for factor in _WIDTHS), _RIDGES))
    errors = [_held_out_error(X, F, q, *setting) for setting in settings]
    return _gkdr(X, F, q, *settings[int(np.argmin(errors))])


def recursive_feature_machine(X: Array, y: Array, q: int) -> Array:
    """Return W by RFM, the leading eigenvectors of its metric M (Radhakrishnan et al. 2024).

    It predicts the mean of y, or functions of y that determine its law. The better of these two W
    is the one from which a kernel regression predicts the functions better on held-out rows.
    """
    law = _features(y) if is_classes(y) else _law(y)
    targets = [law] if is_classes(y) else [_means(y), law]
    folds = list(KFold(_FOLDS, shuffle=True, random_state=0).split(X))
    settings = [_best_setting(X, Y, *folds[0]) for Y in targets]
    errors = np.zeros(len(targets))
    for (train, test), (number, Y) in product(folds, enumerate(targets)):
        Z = X @ leading(_metric(X[train], Y[train], *settings[number]), q)
        errors[number] += min(_errors(Z, law, train, test, rounds=0).values())
    best = int(np.argmin(errors))
    return leading(_metric(X, targets[best], *settings[best]), q)


def _means(y: Array) -> Array:
    """Return what has the conditional mean of y: y standardised (n, 1), or class indicators."""
    return _features(y) if is_classes(y) else np.asarray((y - y.mean()) / y.std())[:, None]


def _features(y: Array) -> Array:
    """Return functions of y (n, k): indicators of classes, or features of a gaussian of numbers.

    The width of the gaussian is the median distance, and its features are the scaled eigenvectors
    that make up nearly all of its trace.
    """
    if is_classes(y):
        return np.eye(y.max() + 1)[y]
    K = _gaussian(np.subtract.outer(y, y) ** 2, float(np.median(pdist(y[:, None]))))
    values, vectors = eigh(K)
    return np.asarray((vectors * np.sqrt(values.clip(0)))[:, values > _NEGLIGIBLE * len(y)])


def _law(y: Array) -> Array:
    """Return six functions (n, 6) of numbers y: leading features of a kernel of several widths."""
    squared, median = np.subtract.outer(y, y) ** 2, float(np.median(pdist(y[:, None])))
    K = np.mean([_gaussian(squared, scale * median) for scale in _SCALES], axis=0)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    values, vectors = eigh(K, subset_by_index=(len(y) - _FUNCTIONS, len(y) - 1))
    features = vectors * np.sqrt(values)
    return np.asarray(features / np.sqrt((features**2).sum(axis=1).mean()))


def _bandwidths(X: Array, q: int) -> Iterator[float]:
    """Yield the bandwidth of each refinement, from one for d columns down to one for q."""
    n, d = X.shape
    bandwidth = _BANDWIDTH * n ** (-1 / (max(d, 3) + 6))
    for _ in range(_REFINEMENTS):
        yield bandwidth
        bandwidth *= n ** (-1 / (2 * (max(d, 3) + 6)))
        bandwidth = max(bandwidth, _BANDWIDTH * n ** (-1 / (q + 4)))


def _weights(Z: Array, bandwidth: float) -> Array:
    """Return gaussian weights (n, n) of all rows for the line at each row, of sum 1."""
    weights = _gaussian(cdist(Z, Z, "sqeuclidean"), bandwidth)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _local_lines(X: Array, F: Array, weights: Array) -> tuple[Array, Array]:
    """Fit a line to F (n, k) at each row: return its values there (n, k) and slopes (n, d, k)."""
    n, d = X.shape
    rows = np.column_stack([np.ones(n), X])
    gram = (weights @ _products(rows, rows)).reshape(n, d + 1, d + 1)
    moments = (weights @ _products(rows, F)).reshape(n, d + 1, -1)
    ridge = _RIDGE * np.diag([0.0, *np.ones(d)])
    lines = np.linalg.solve(gram + ridge, moments)
    return np.einsum("ij,ijk->ik", rows, lines), lines[:, 1:]


def _products(A: Array, B: Array) -> Array:
    """Return the products of each column of A (n, a) and each of B (n, b), as (n, a b)."""
    return np.asarray((A[:, :, None] * B[:, None, :]).reshape(len(A), -1))


def _leading_gradients(X: Array, F: Array, weights: Array, q: int) -> Array:
    gradients = _local_lines(X, F, weights)[1]
    return leading(np.einsum("nik,njk->ij", gradients, gradients), q)


def _common_directions(X: Array, Y: Array, W: Array, weights: Array) -> Array:
    """Return the W (d, q) of least weighted squares, given values and slopes of lines in X W.

    The error is that of `values_j + slopes_j^T W^T (x_i - x_j)` for Y_i, over all rows i and j.
    """
    (n, d), q = X.shape, W.shape[1]
    values, slopes = _local_lines(X @ W, Y, weights)
    means = weights @ X
    shifts = _products(means, X).reshape(n, d, d)
    squares = (weights @ _products(X, X)).reshape(n, d, d)
    squares += _products(X, X).reshape(n, d, d) - shifts - shifts.transpose(0, 2, 1)
    moments = (weights @ _products(X, Y)).reshape(n, d, -1)
    moments -= X[:, :, None] * (weights @ Y)[:, None, :]
    moments -= (means - X)[:, :, None] * values[:, None, :]
    curvature = np.einsum("jak,jbk->jab", slopes, slopes).reshape(n, -1)
    gram = (curvature.T @ squares.reshape(n, -1)).reshape(q, q, d, d)
    gram = gram.transpose(0, 2, 1, 3).reshape(q * d, q * d)
    right = np.einsum("jdk,jqk->qd", moments, slopes).ravel()
    return np.linalg.qr(np.linalg.lstsq(gram, right)[0].reshape(q, d).T)[0]


def _gaussian(squared: Array, width: float) -> Array:
    return np.exp(-0.5 * squared / width**2)


def _gkdr(X: Array, F: Array, q: int, width: float, ridge: float) -> Array:
    """Return W from the gradients of the kernel ridge regression of F (n, k) on X (n, d)."""
    n = len(X)
    K = _gaussian(cdist(X, X, "sqeuclidean"), width)
    A = solve(K + n * ridge * np.eye(n), F, assume_a="pos")
    fitted = K @ A
    slopes = np.stack([(K * x) @ A - x[:, None] * fitted for x in X.T])
    return leading(np.einsum("ink,jnk->ij", slopes, slopes), q)


def _held_out_error(X: Array, F: Array, q: int, width: float, ridge: float) -> float:
    """Return the error of predicting held-out F (n, k) by the mean over neighbours in X W."""
    errors = []
    for train, test in KFold(_FOLDS, shuffle=True, random_state=0).split(X):
        W = _gkdr(X[train], F[train], q, width, ridge)
        model = KNeighborsRegressor(_NEIGHBOURS).fit(X[train] @ W, F[train])
        errors.append(np.mean((model.predict(X[test] @ W) - F[test]) ** 2))
    return float(np.mean(errors))


def _best_setting(X: Array, Y: Array, train: Array, test: Array) -> _Setting:
    """Return the setting of RFM with the least held-out error, after at least one round."""
    errors = _errors(X, Y, train, test, _ROUNDS)
    return min((each for each in errors if each[2] > 0), key=lambda setting: errors[setting])


def _errors(X: Array, Y: Array, train: Array, test: Array, rounds: int) -> dict[_Setting, float]:
    """Return the held-out error of RFM for each width, ridge and number of rounds."""
    errors, median = {}, float(np.median(pdist(X)))
    for width, ridge in product(median * np.array(_LAPLACE_WIDTHS), _LAPLACE_RIDGES):
        fits = islice(_fits(X[train], Y[train], width, ridge), rounds + 1)
        for number, (M, A) in enumerate(fits):
            predicted = _laplace(_distances(X[test], X[train], M), width) @ A
            errors[width, ridge, number] = float(np.mean((predicted - Y[test]) ** 2))
    return errors


def _metric(X: Array, Y: Array, width: float, ridge: float, rounds: int) -> Array:
    """Return M (d, d) of RFM after a number of rounds."""
    return next(islice(_fits(X, Y, width, ridge), rounds, None))[0]


def _fits(X: Array, Y: Array, width: float, ridge: float) -> Iterator[tuple[Array, Array]]:
    """Yield the metric M (d, d) of each round of RFM, first 1, with the weights A (n, k) of rows.

    The next metric is the average outer product of the gradients of the regression, of trace d.
    """
    (n, d), M = X.shape, np.eye(X.shape[1])
    while True:
        distances = _distances(X, X, M)
        K = _laplace(distances, width)
        A = solve(K + ridge * np.eye(n), Y, assume_a="pos")
        yield M, A
        steepness = np.divide(K, distances, where=distances > 0, out=np.zeros_like(K))
        sums = (steepness @ _products(X, A)).reshape(n, d, -1)
        gradients = M @ (sums - X[:, :, None] * (steepness @ A)[:, None, :])
        M = np.einsum("nik,njk->ij", gradients, gradients)
        M = d * M / np.trace(M)


def _distances(X: Array, Z: Array, M: Array) -> Array:
    """Return the distances (n, m) of rows of X (n, d) and of Z (m, d) in the metric M (d, d)."""
    values, vectors = eigh(M)
    root = vectors * np.sqrt(values.clip(0))
    return cdist(X @ root, Z @ root)


def _laplace(distances: Array, width: float) -> Array:
    return np.exp(-distances / width)
