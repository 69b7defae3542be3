"""The mean of y along a feature, with the band of its uncertainty."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from ism_dask._types import Array

# The share of places at which the band is to contain the mean.
_LEVEL = 0.9
# The most rows that a curve is fitted to, and the number of its places.
_MAX_ROWS, _PLACES = 1_000, 100
# The shares of the rows, on each side of a place, that count there; and their fewest.
_SPANS, _FEWEST = (0.04, 0.06, 0.1, 0.16, 0.25, 0.4, 0.65, 1.0), 6
# The least variance of the rows around a place, as a share of that of all rows.
_LEAST_VARIANCE = 1e-6


def mean_along(z: Array, Y: Array) -> tuple[Array, Array]:
    """Return places (m,) along a feature z (n,), and the mean of Y (n, r) there with its band.

    The second array (3, m, r) has the mean and the ends of its band, by local linear regression.

    A place takes the rows that lie nearest in the order of z (as LOESS does); how many, the errors
    decide with which the other rows predict each row. The band counts how much rows differ around
    the place, so that it is wide where they are few, or y varies much.
    """
    order = np.argsort(z, kind="stable")
    if len(z) > _MAX_ROWS:
        order = order[np.linspace(0, len(z) - 1, _MAX_ROWS).astype(int)]
    z, Y = z[order], Y[order].astype(float)
    ranks = (np.searchsorted(z, z) + np.searchsorted(z, z, side="right")) / (2 * len(z))
    spans = [each for each in _SPANS if each * len(z) >= _FEWEST] or [1.0]
    fits = [_errors(_smoother(z, ranks, z, ranks, span), Y) for span in spans]
    # One span less than the best, whose bias would be as large as its noise.
    best = max(int(np.argmin([(errors**2).sum() for errors in fits])) - 1, 0)
    places = np.linspace(z[0], z[-1], _PLACES)
    smoother = _smoother(z, ranks, places, np.interp(places, z, ranks), spans[best])
    mean, squares = smoother @ Y, fits[best] ** 2
    # Few rows may be alike by chance: one row more has the variance of all.
    counts = smoother**2
    totals = counts.sum(axis=1, keepdims=True)
    variance = counts @ squares + 2 * totals**2 * squares.mean(axis=0)
    width = NormalDist().inv_cdf((1 + _LEVEL) / 2) * np.sqrt(variance)
    # A mean lies among the values.
    curve = np.stack([mean, mean - width, mean + width])
    return places, np.clip(curve, Y.min(axis=0), Y.max(axis=0))


def _smoother(z: Array, ranks: Array, places: Array, at: Array, span: float) -> Array:
    """Return the matrix (m, n) that maps y of rows at z (n,) to its mean at `places` (m,).

    `ranks` (n,) and `at` (m,) are their ranks from 0 to 1.
    """
    distances = np.abs(ranks - at[:, None])
    # Rows that share a value leave places without any rows near by.
    distances /= np.maximum(span, 2 * distances.min(axis=1, keepdims=True))
    roots = np.maximum(1 - distances * distances * distances, 0)
    weights = roots * roots * roots
    weights /= weights.sum(axis=1, keepdims=True)
    offset = z - places[:, None]
    centre = (weights * offset).sum(axis=1, keepdims=True)
    variance = (weights * (offset - centre) ** 2).sum(axis=1, keepdims=True)
    slope = (offset - centre) / np.maximum(variance, _LEAST_VARIANCE * (z.var() or 1.0))
    return weights * (1 - centre * slope)


def _errors(smoother: Array, Y: Array) -> Array:
    """Return the errors (n, r) with which the other rows predict each row of Y."""
    own = np.minimum(np.diag(smoother), 0.99)
    return (Y - smoother @ Y) / (1 - own)[:, None]
