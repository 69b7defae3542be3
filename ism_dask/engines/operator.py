"""Operators: what a solver asks of an engine, and the evaluations that it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.row_space import RowSpace

# Rounding of J and Phi, as a share, that is taken for granted in double precision.
DOUBLE_NOISE = 1e-12


@dataclass(frozen=True)
class Evaluation:
    """J at some W, with Phi(W) (d, d) or with Phi(W) W (d, q), whichever was asked for.

    `noise` is how far J and the matrix vary by rounding, as a share. `bound` returns `error`:
    most evaluations are steps of an iteration that does not need it. `standard_error` is that of
    J, as a share, where it is an estimate.
    """

    objective: float
    matrix: Array
    bound: Callable[[], float] = float
    noise: float = DOUBLE_NOISE
    approximate: bool = False
    standard_error: float = 0.0

    @property
    def error(self) -> float:
        """A bound on the relative error of J, by approximation and rounding."""
        return self.bound()


class Operator(Protocol):
    """The questions the solver asks of an engine."""

    def phi0(self) -> Array:
        """Return the (d, d) matrix of the start, which does not depend on W."""

    def phi(self, W: Array) -> Evaluation:
        """Return J and the (d, d) matrix Phi at W (d, k)."""

    def gradient(self, W: Array) -> Evaluation:
        """Return J and the (d, k) product Phi(W) W, half the gradient of J."""

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the (d, k) derivative of Phi(W) W along Z (d, k)."""


def space_of(operator: Operator) -> RowSpace | None:
    """Return the space that an operator says W lives in, None for that of its matrices."""
    return getattr(operator, "space", None)


def relative_residual(W: Array, product: Array) -> float:
    """Return `||P - W (W^T P)|| / ||P||` for P = Phi W (d, k), or 0 where P is."""
    norm = float(np.linalg.norm(product))
    return float(np.linalg.norm(product - W @ (W.T @ product))) / norm if norm > 0 else 0.0


def check_finite(matrix: Array) -> Array:
    """Return `matrix`, or raise the error of a kernel that overflows."""
    if np.isfinite(matrix).all():
        return matrix
    raise overflow_error()


def overflow_error() -> ValueError:
    """Return the error of a kernel whose values are beyond what a float holds."""
    return ValueError(
        "Phi is not finite: the kernel overflows on these rows. Standardise X, or take a lower "
        "degree, a smaller offset or weight, a width nearer the distances between the rows, or "
        "float64 rows"
    )
