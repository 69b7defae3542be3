"""The interface between solvers and engines: operators, and the evaluations that they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ism_dask._types import Array
from ism_dask.linalg.subspaces import RowSpace

# The relative rounding error of J and Phi that double precision is assumed to have.
DOUBLE_NOISE = 1e-12


@dataclass(frozen=True)
class Evaluation:
    """J at some W, and how accurate it is.

    `noise` is the relative rounding noise of J and the matrix. `bound` computes `error` on
    demand: most evaluations are steps of an iteration that does not need it.
    """

    objective: float
    bound: Callable[[], float] = field(default=float, kw_only=True)
    noise: float = field(default=DOUBLE_NOISE, kw_only=True)
    approximate: bool = field(default=False, kw_only=True)

    @property
    def error(self) -> float:
        """A bound on the relative error of J from approximation and rounding."""
        return self.bound()


@dataclass(frozen=True)
class PhiEvaluation(Evaluation):
    """J at some W, with the matrix Phi(W) (d, d)."""

    phi: Array


@dataclass(frozen=True)
class ProductEvaluation(Evaluation):
    """J at some W (d, k), with the product Phi(W) W (d, k), half the gradient of J."""

    product: Array


class Operator(Protocol):
    """The methods of an engine that solvers call."""

    def phi0(self) -> Array:
        """Return Phi0, the (d, d) matrix of the start, which does not depend on W."""

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and the (d, d) matrix Phi at W (d, k)."""

    def gradient(self, W: Array) -> ProductEvaluation:
        """Return J and the (d, k) product Phi(W) W, half the gradient of J."""

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the (d, k) derivative of Phi(W) W along Z (d, k)."""


def space_of(operator: Operator) -> RowSpace | None:
    """Return the space of W that an operator declares, or None if it declares none."""
    return getattr(operator, "space", None)
