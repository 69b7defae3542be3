"""Whether single precision is enough for the rows under a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.kernels.base import overflow_error
from ism_dask.kernels.pairing import DISTANCE

# Single precision is enough if its rounding error is at most this share of what distinguishes
# typical rows. The final J and the residual are computed in double precision in any case.
_SINGLE_SHARE = 0.01
# Rows whose median width counts as typical.
_TYPICAL_ROWS = 500


def needs_double(kernel: Kernel, sample: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype`, that of the rows, is too coarse to distinguish typical rows.

    Single precision is too coarse if distances are far smaller than the lengths of the rows, or
    if the kernel is so wide that it is almost constant. A kernel that is almost constant in
    double precision too is an error. The kernel is resolved, and the sample (s, d) are some rows in
    double precision.
    """
    size = float(np.einsum("ij,ij->", sample, sample)) / len(sample)
    worst_loss = max(_precision_loss(term, size, sample) for _, term in kernel.terms)
    if float(np.finfo(np.float64).eps) * worst_loss >= 1.0:
        _raise_constant(kernel, size, dtype)
    limits: Any = np.finfo(dtype)
    eps = float(limits.eps)
    squares_fit = float(limits.tiny) < eps**2 * size < eps**4 * float(limits.max)
    return not squares_fit or eps * worst_loss > _SINGLE_SHARE


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
