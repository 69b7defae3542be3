"""Thin factors of kernels of given rows, for statistics that need many products with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import add

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.targets import standardise_target, target_dependence
from ism_dask.kernels.pairing import DISTANCE, mean_of_gaussians, median_distance
from ism_dask.threads import by_pieces

# Up to this number of rows the factor has the whole kernel, above it that of the most landmarks.
WHOLE, _LANDMARKS = 1000, 300
# Rows from which the median distance is computed.
_MEDIAN_ROWS = 2000
# Directions with less than this share of the trace are left out.
_NEGLIGIBLE = 1e-7


# From squared distances (n, m) and the median distance to a kernel, positive definite once centred.
TEST_KERNELS: Mapping[str, Callable[[Array, float], Array]] = {
    "gaussian": mean_of_gaussians,
    # Centred, this is the kernel of distance covariance.
    "distance": lambda squared, median: -np.sqrt(squared) / median,
}


def thin_factor(
    name: str, points: Array, kernel: Callable[[Array, float], Array], rng: np.random.Generator
) -> Array:
    """Return F (n, m) whose columns have mean 0, with `F F^T` near the kernel of points (n, t).

    The kernel is a function like those of `TEST_KERNELS`; it is centred, and the columns are
    orthogonal. `rng` draws landmarks among more than 1,000 rows. Then `F F^T` is the kernel of the
    space that the landmarks span, which no permutation of the rows of another factor changes.
    The name is that of the points in errors.
    """
    n, median = len(points), median_of(name, points)
    landmarks = points if n <= WHOLE else points[rng.choice(n, _LANDMARKS, replace=False)]
    _check_differ(name, landmarks, n)

    def values_at(rows: Array) -> Array:
        # With a resolution of 0, short distances lose no digits.
        return kernel(DISTANCE.between(rows, landmarks, resolution=0.0), median)

    # Centred at the landmarks, as the kernel of distances is positive definite only then.
    among = values_at(landmarks)
    means = among.mean(axis=0)
    among -= means + means[:, None] - means.mean()
    values, vectors = np.linalg.eigh((among + among.T) / 2)
    used = values > _NEGLIGIBLE * values[-1]
    basis = vectors[:, used] / np.sqrt(values[used])

    def coordinates(rows: slice) -> Array:
        to_landmarks = values_at(points[rows])
        to_landmarks -= to_landmarks.mean(axis=1, keepdims=True) + means - means.mean()
        return np.asarray(to_landmarks @ basis)

    factor = np.concatenate(by_pieces(coordinates, n))
    factor -= factor.mean(axis=0)
    # Directions that hold nearly nothing are left out.
    values, vectors = np.linalg.eigh(cross_products(factor, factor))
    return row_products(factor, vectors[:, values > _NEGLIGIBLE * values.sum()])


def cross_products(left: Array, right: Array) -> Array:
    """Return `left^T right` of left (n, m) and right (n, k), a sum over rows by threads."""
    return reduce(add, by_pieces(lambda rows: left[rows].T @ right[rows], len(left)))


def row_products(factor: Array, matrix: Array) -> Array:
    """Return the rows of `factor` (n, m) times a matrix (m, k), by threads."""
    return np.concatenate(by_pieces(lambda rows: factor[rows] @ matrix, len(factor)))


def median_of(name: str, points: Array) -> float:
    """Return the median distance of points (n, t), of about 2,000 of them if there are more."""
    some = points[:: -(-len(points) // _MEDIAN_ROWS)]
    _check_differ(name, some, len(points))
    return median_distance(some, f"the median distance of rows of {name}")


def _check_differ(name: str, sample: Array, n: int) -> None:
    """Raise a ValueError if a sample of n rows, which are not all equal, has equal rows alone."""
    if len(sample) < n and not np.ptp(sample, axis=0).any():
        raise ValueError(
            f"{name} is the same in all {len(sample)} rows of a sample, for only few of the {n} "
            f"rows differ; expected a sample with different rows. Give at most {WHOLE} rows, which "
            f"are not sampled: all that differ and some of the others, chosen by {name} alone"
        )


def factor_of_target(y: Array, target: str, kernel: str, rng: np.random.Generator) -> Array:
    """Return a factor (n, r) with centred columns of the kernel of y (n,) or (n, t).

    `target` is that of an estimator, `kernel` a name in `TEST_KERNELS`: under "distance" numbers
    have distances, too.
    """
    dependence = target_dependence(y, target)
    if kernel == "distance" and dependence.classes is None:
        return thin_factor("`y`", standardise_target(y), TEST_KERNELS[kernel], rng)
    factor = dependence.scaled_factor
    return np.asarray(factor - factor.mean(axis=0), dtype=np.float64)


def squared_sum(F: Array, U: Array) -> float:
    """Return the sum of squares of `F^T U`, HSIC up to a constant, of factors (n, m), (n, r)."""
    return float((cross_products(F, U) ** 2).sum())


def alignment(K: Array, L: Array) -> float:
    """Return the cosine of the angle between two centred kernels (n, n); 0 if one of them is 0."""
    norms = float(np.linalg.norm(K)) * float(np.linalg.norm(L))
    return float(np.vdot(K, L)) / norms if norms > 0 else 0.0
