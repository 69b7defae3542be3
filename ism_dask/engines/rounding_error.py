"""Bound the rounding error of J, and decide whether single precision is enough for a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import overflow_error
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.kernels.pairing import CANCELLED_SHARE, DISTANCE, TOLERATED_ROUNDINGS

# Single precision is enough if its rounding error is at most this share of what distinguishes
# typical rows. The final J and the residual are computed in double precision in any case.
_SINGLE_SHARE = 0.01
# Rows whose median width counts as typical.
_TYPICAL_ROWS = 500
# Shares of the largest beta at which the extremes of a kernel are evaluated, and a factor by which
# the true extremes, between these points, may be larger.
_BETA_SHARES, _BETWEEN_POINTS = np.append(0.0, np.geomspace(1e-14, 1.0, 400)), 1.1
# The largest beta is assumed to be at least this.
_LEAST_BETA = 1e-280
# Roundings of a standardised number, of a value of Gamma, and of a value of f beside those that
# its class declares.
_STANDARDISED_ROUNDINGS, _GAMMA_ROUNDINGS, _VALUE_ROUNDINGS = 4, 64, 16


class Maximum:
    """A number that Dask folds by maximum: the sum of two is the larger one."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __add__(self, other: Maximum) -> Maximum:
        return Maximum(max(self.number, other.number))


@dataclass(frozen=True)
class ProblemSize:
    """The sizes of a problem that rounding errors grow with.

    Attributes
    ----------
    n, d, q : int
        The numbers of rows, columns of X and columns of W.
    max_row_norm : float
        A bound on the length of a row of X.
    finest : float
        The largest inverse per-row width, 1 without any.
    """

    n: int
    d: int
    q: int
    max_row_norm: float
    finest: float = 1.0


@dataclass(frozen=True)
class _Extremes:
    """Bounds on a kernel and its derivatives over all pairs of rows.

    `value` bounds |f|, `slope` |f'|, `by_distance` |df / dt| for beta = t^2, and `by_share`
    `|beta f'|`, the change of f per relative change of beta.
    """

    value: float
    slope: float
    by_distance: float
    by_share: float

    @classmethod
    def of(cls, term: PointwiseKernel, largest: float) -> _Extremes:
        """Return the bounds over all beta up to `largest` in absolute value."""
        beta = max(largest, _LEAST_BETA) * _BETA_SHARES
        if term.pairing is not DISTANCE:
            beta = np.append(beta, -beta)
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.abs(term.value(beta.copy()))
            slope = np.abs(term.slope(beta.copy()))
            curves = value, slope, 2.0 * np.sqrt(np.abs(beta)) * slope, np.abs(beta) * slope
        return cls(*(_BETWEEN_POINTS * float(np.max(curve)) for curve in curves))


def rounding_error(
    kernel: Kernel, sizes: ProblemSize, unit: float, sums: int, *, factored: bool
) -> float:
    """Return the bound on the rounding error of J, divided by the sum of |Gamma|.

    Parameters
    ----------
    kernel : Kernel
    sizes : ProblemSize
    unit : float
        The unit roundoff: half the distance from 1 to the next number.
    sums : int
        The number of roundings in a sum over all pairs, or over all rows.
    factored : bool
        Whether the engine sums over a low-rank factor of f', so that beta is expanded into
        squares less products.
    """
    total = 0.0
    for weight, term in kernel.terms:
        error, size = _term_error_bound(term, sizes, unit)
        if factored:
            size += _factored_size(term, sizes)
        total += weight * (error + (sums + _GAMMA_ROUNDINGS) * unit * size)
    return total


def _factored_size(term: PointwiseKernel, sizes: ProblemSize) -> float:
    """Return a bound on what a pair adds to J, with all its summands taken as positive."""
    constant, rate = term.value_by_slope or (0.0, 0.0)
    beta = abs(constant) + 4 * abs(rate) * sizes.max_row_norm**2
    return sizes.q * abs(term.amplitude) * largest_unit_slope(term, sizes) * beta


def largest_unit_slope(term: PointwiseKernel, sizes: ProblemSize) -> float:
    """Return a bound on the unit slope of a row with itself, the largest over all pairs."""
    beta = np.full((1, 1), 0.0 if term.pairing is DISTANCE else sizes.max_row_norm**2)
    with np.errstate(over="ignore"):
        largest = float(abs(term.unit_slope(beta)[0, 0]))
    return largest * sizes.finest**2 if term.per_row_width else largest


def _term_error_bound(
    term: PointwiseKernel, sizes: ProblemSize, unit: float
) -> tuple[float, float]:
    """Return bounds on the error of f and on f, for any pair of rows."""
    # The error of a projected row: each entry is a sum of d products with standardised numbers.
    projection_error = (
        (2 * sizes.d + _STANDARDISED_ROUNDINGS) * np.sqrt(sizes.q) * unit * sizes.max_row_norm
    )
    roundings = sizes.q + 4
    if term.pairing is not DISTANCE:
        extremes = _Extremes.of(term, sizes.max_row_norm**2)
        beta = 2 * sizes.max_row_norm * projection_error + roundings * unit * sizes.max_row_norm**2
        error = extremes.slope * beta
    else:
        finest = sizes.finest if term.per_row_width else 1.0
        extremes = _Extremes.of(term, (2 * sizes.max_row_norm * finest) ** 2)
        # Squared lengths cancel, but no more than the kernel tolerates: see `Distance.beta`.
        cancellation = (
            2
            * unit
            * min(TOLERATED_ROUNDINGS * term.resolution, 4 * roundings * sizes.max_row_norm**2)
        )
        relative_error = roundings * unit * 2 / CANCELLED_SHARE
        if term.per_row_width:
            relative_error += 4 * projection_error * finest + _VALUE_ROUNDINGS * unit
        error = 2 * projection_error * finest * extremes.by_distance
        error += cancellation * extremes.slope + relative_error * extremes.by_share
    return error + (term.roundings + _VALUE_ROUNDINGS) * unit * extremes.value, extremes.value


def needs_double(kernel: Kernel, sample: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype`, that of the rows, is too coarse to distinguish typical rows.

    Single precision is too coarse if distances are far smaller than the lengths of the rows, or
    if the kernel is so wide that it is almost constant. A kernel that is almost constant in
    double precision too is an error.

    Parameters
    ----------
    kernel : Kernel
        A resolved kernel.
    sample : (s, d) array
        Some rows, in double precision.
    dtype : numpy.dtype
    """
    size = float(np.einsum("ij,ij->", sample, sample)) / len(sample)
    worst_loss = max(_precision_loss(term, size, sample) for _, term in kernel.terms)
    if float(np.finfo(np.float64).eps) * worst_loss >= 1.0:
        _raise_constant(kernel, size, dtype)
    eps, least, most = (float(each) for each in _limits(dtype))
    squares_fit = least < eps**2 * size < eps**4 * most
    return not squares_fit or eps * worst_loss > _SINGLE_SHARE


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    limits = np.finfo(dtype)
    return limits.eps, limits.tiny, limits.max


def _raise_constant(kernel: Kernel, size: float, dtype: np.dtype[Any]) -> None:
    """Raise ValueError: the kernel is almost constant over rows of squared length `size`.

    If the kernel overflows, raise `overflow_error` instead.
    """
    beta = np.array([[0.0, size]])
    with np.errstate(over="ignore"):
        values = [term.value(beta.copy()).astype(dtype) for _, term in kernel.terms]
    if not np.isfinite(values).all():
        raise overflow_error()
    names = " and ".join(term.title for _, term in kernel.terms)
    raise ValueError(
        f"{names} is all but constant over these rows: its values differ by less than rounding. "
        "Take a width or an offset nearer the distances between the rows"
    )


def _precision_loss(term: PointwiseKernel, size: float, sample: Array) -> float:
    """Return the factor by which f loses relative precision, for rows of squared length `size`."""
    if term.constant_slope or not size > 0:
        return 1.0
    if term.per_row_width:
        size /= float(np.median(term.widths(sample[:_TYPICAL_ROWS]))) ** 2
    # beta of two rows that differ in one direction of X.
    beta = np.full((1, 1), 2.0 * size / sample.shape[1])
    zero = np.zeros((1, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        at_zero = term.value(zero.copy())
        difference = np.abs(term.value(beta.copy()) - at_zero)
        steepest = zero if term.pairing is DISTANCE else beta
        error_size = np.abs(at_zero) + 4 * size * np.abs(term.slope(steepest))
        share = float(np.divide(error_size, difference)[0, 0]) if difference > 0 else np.inf
    return share if np.isfinite(share) else np.inf
