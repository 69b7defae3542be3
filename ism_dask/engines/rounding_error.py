"""How far J may be off by rounding alone, and whether single precision serves a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import overflow_error
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.kernels.pairing import DISTANCE, HARMLESS, SHORT

# Single precision serves where it leaves this share of what the kernel makes of typical rows.
# The last J and the residual are computed in double precision in any case.
_SINGLE_SHARE = 0.01
# Rows that typical widths are taken from.
_TYPICAL_ROWS = 500
# Shares of the largest beta at which the largest slopes of a kernel are looked for, and what the
# true ones may be larger by.
_POINTS, _BETWEEN = np.append(0.0, np.geomspace(1e-14, 1.0, 400)), 1.1
# Roundings of a standardised number, of a value of Gamma, and of one of f beside those that its
# class declares.
# No largest beta is taken to be smaller.
_LEAST_BETA = 1e-280
_STANDARDISED, _OF_GAMMA, _OF_VALUE = 4, 64, 16


class Maximum:
    """A number of some rows; the sum of two is the larger one."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __add__(self, other: Maximum) -> Maximum:
        return Maximum(max(self.number, other.number))


@dataclass(frozen=True)
class ProblemSize:
    """What rounding errors grow with.

    Attributes
    ----------
    n, d, q : int
        Rows, columns of X, columns of W.
    reach : float
        No row of X is longer.
    finest : float
        The largest inverse width of a local kernel, 1 where there is none.
    """

    n: int
    d: int
    q: int
    reach: float
    finest: float = 1.0


@dataclass(frozen=True)
class _Extremes:
    """The largest values of a kernel over all pairs of rows.

    `value` of |f|, `slope` of |f'|, `by_distance` of |df / dt| for beta = t^2, and `by_share` of
    `|beta f'|`: what f changes by as beta changes by a share of itself.
    """

    value: float
    slope: float
    by_distance: float
    by_share: float

    @classmethod
    def of(cls, term: PointwiseKernel, largest: float) -> _Extremes:
        """Return those over all beta up to `largest` in size."""
        beta = max(largest, _LEAST_BETA) * _POINTS
        if term.pairing is not DISTANCE:
            beta = np.append(beta, -beta)
        scale = np.ones_like(beta) if term.per_row_width else None
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.abs(term.value(beta.copy(), scale))
            slope = np.abs(term.slope(beta.copy(), scale))
            sides = value, slope, 2.0 * np.sqrt(np.abs(beta)) * slope, np.abs(beta) * slope
        return cls(*(_BETWEEN * float(np.max(side)) for side in sides))


def rounding_error(
    kernel: Kernel, sizes: ProblemSize, unit: float, sums: int, *, factored: bool
) -> float:
    """Return what, times the sum of |Gamma|, bounds the error of J by rounding.

    Parameters
    ----------
    kernel : Kernel
    sizes : Sizes
    unit : float
        Half the distance from 1 to the next number.
    sums : int
        Roundings of a sum over all pairs, or over all rows.
    factored : bool
        Whether pairs are summed by factors of f', so that beta is squares less products.
    """
    total = 0.0
    for weight, term in kernel.terms:
        error, size = _term_error(term, sizes, unit)
        if factored:
            size += _factored_size(term, sizes)
        total += weight * (error + (sums + _OF_GAMMA) * unit * size)
    return total


def _factored_size(term: PointwiseKernel, sizes: ProblemSize) -> float:
    """Return a bound on what a pair brings to J, each of its summands being taken as positive."""
    constant, rate = term.value_by_slope or (0.0, 0.0)
    beta = abs(constant) + 4 * abs(rate) * sizes.reach**2
    return sizes.q * abs(term.amplitude) * largest_unit_slope(term, sizes) * beta


def largest_unit_slope(term: PointwiseKernel, sizes: ProblemSize) -> float:
    """Return a bound on the shape of a row with itself: no other pair has a larger one."""
    at = np.full((1, 1), 0.0 if term.pairing is DISTANCE else sizes.reach**2)
    with np.errstate(over="ignore"):
        scale = np.full((1, 1), sizes.finest**2) if term.per_row_width else None
        return float(abs(term.unit_slope(at, scale)[0, 0]))


def _term_error(term: PointwiseKernel, sizes: ProblemSize, unit: float) -> tuple[float, float]:
    """Return bounds on the error of f and on f, for any pair of rows."""
    # Of a projected row: each entry is a sum of d products, of rows that were standardised.
    moved = (2 * sizes.d + _STANDARDISED) * np.sqrt(sizes.q) * unit * sizes.reach
    terms = sizes.q + 4
    if term.pairing is not DISTANCE:
        extremes = _Extremes.of(term, sizes.reach**2)
        beta = 2 * sizes.reach * moved + terms * unit * sizes.reach**2
        error = extremes.slope * beta
    else:
        finest = sizes.finest if term.per_row_width else 1.0
        extremes = _Extremes.of(term, (2 * sizes.reach * finest) ** 2)
        # Squared lengths cancel, but no further than the kernel can tell: see `Distance.beta`.
        cancelled = 2 * unit * min(HARMLESS * term.resolution, 4 * terms * sizes.reach**2)
        shares = terms * unit * 2 / SHORT
        if term.per_row_width:
            shares += 4 * moved * finest + _OF_VALUE * unit
        error = 2 * moved * finest * extremes.by_distance
        error += cancelled * extremes.slope + shares * extremes.by_share
    return error + (term.roundings + _OF_VALUE) * unit * extremes.value, extremes.value


def needs_double(kernel: Kernel, sample: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether tiles in `dtype`, that of the rows, would not tell typical rows apart.

    Single precision does not where distances are far smaller than the lengths of the rows, nor
    where the kernel is so wide that it is all but constant. What is all but constant in double
    precision too is an error.

    Parameters
    ----------
    kernel : Kernel
        With nothing left to resolve.
    sample : (s, d) array
        Some rows, in double precision.
    dtype : numpy.dtype
    """
    size = float(np.einsum("ij,ij->", sample, sample)) / len(sample)
    loss = max(_digits_lost(term, size, sample) for _, term in kernel.terms)
    if float(np.finfo(np.float64).eps) * loss >= 1.0:
        _refuse_constant(kernel, size, dtype)
    eps, least, most = (float(each) for each in _limits(dtype))
    squares_fit = least < eps**2 * size < eps**4 * most
    return not squares_fit or eps * loss > _SINGLE_SHARE


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    limits = np.finfo(dtype)
    return limits.eps, limits.tiny, limits.max


def _refuse_constant(kernel: Kernel, size: float, dtype: np.dtype[Any]) -> None:
    """Raise a ValueError for a kernel that is all but constant over rows of squared length `size`.

    Where it overflows that is the error.
    """
    beta = np.array([[0.0, size]])
    with np.errstate(over="ignore"):
        scales = [np.ones_like(beta) if term.per_row_width else None for _, term in kernel.terms]
        pairs = zip(kernel.terms, scales, strict=True)
        values = [term.value(beta.copy(), scale).astype(dtype) for (_, term), scale in pairs]
    if not np.isfinite(values).all():
        raise overflow_error()
    names = " and ".join(term.title for _, term in kernel.terms)
    raise ValueError(
        f"{names} is all but constant over these rows: its values differ by less than rounding. "
        "Take a width or an offset nearer the distances between the rows"
    )


def _digits_lost(term: PointwiseKernel, size: float, sample: Array) -> float:
    """Return how many times its own precision f loses, between rows of squared length `size`."""
    if term.constant_slope or not size > 0:
        return 1.0
    scale = None
    if term.per_row_width:
        widths = term.widths(sample[:_TYPICAL_ROWS])
        scale = np.full((1, 1), 1.0 / float(np.median(widths)) ** 2)
    # What differs in one direction of X.
    beta = np.full((1, 1), 2.0 * size / sample.shape[1])
    zero = np.zeros((1, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        at_zero = term.value(zero.copy(), scale)
        told_apart = np.abs(term.value(beta.copy(), scale) - at_zero)
        at = zero if term.pairing is DISTANCE else beta
        lost = np.abs(at_zero) + 4 * size * np.abs(term.slope(at, scale))
        share = float(np.divide(lost, told_apart)[0, 0]) if told_apart > 0 else np.inf
    return share if np.isfinite(share) else np.inf
