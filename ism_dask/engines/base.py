"""The base class of engines, the problem they solve, and the J, Phi and gradient they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.tiles import with_inverse_widths
from ism_dask.gamma.base import GAMMA_FACTS, Dependence, Gamma
from ism_dask.kernels import Kernel
from ism_dask.linalg.subspaces import RowSpace
from ism_dask.rows.execution import task_budget
from ism_dask.rows.shards import Shards

# The tolerance of approximate engines by default.
TOLERANCE = 1e-4
# The length of the step of a central difference: it balances its error and that of rounding.
_STEP = 1e-5
# The number of rows of the sample if the problem has none.
SAMPLE_ROWS = 5000
# The relative rounding error of J and Phi that double precision is assumed to have.
DOUBLE_NOISE = 1e-12


@dataclass(frozen=True)
class Evaluation:
    """J at some W, and how accurate it is.

    `noise` is the relative rounding noise of J and the matrix. `error` bounds the relative error
    of J from approximation.
    """

    objective: float
    error: float = field(default=0.0, kw_only=True)
    noise: float = field(default=DOUBLE_NOISE, kw_only=True)
    approximate: bool = field(default=False, kw_only=True)


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


@dataclass(frozen=True)
class Problem:
    """The problem to maximise `sum_ij Gamma_ij f(beta_ij)`: the rows, the kernel and Gamma.

    The shards have the standardised rows with the fact `GAMMA_FACTS`, and with `INVERSE_WIDTHS` if
    a term of the resolved kernel has per-row widths. The sample (s, d) are rows drawn at random,
    for engines that inspect rows first; without it they take evenly spaced rows. The seed is that
    of the random draws of engines, and `space` that of W, if it has directions beside those of X.
    """

    shards: Shards
    kernel: Kernel
    gamma: Gamma
    sample: Array | None = field(default=None, repr=False)
    seed: int = 0
    space: RowSpace | None = field(default=None, repr=False)

    @classmethod
    def from_dependence(
        cls, shards: Shards, kernel: Kernel, dependence: Dependence, **parameters: Any
    ) -> Problem:
        """Return the problem with everything that tasks need attached to the shards.

        `parameters` are the attributes that differ from their defaults.
        """
        gamma, facts = dependence.weighted
        return cls.from_gamma(shards.with_rows(GAMMA_FACTS, facts), kernel, gamma, **parameters)

    @classmethod
    def from_gamma(cls, shards: Shards, kernel: Kernel, gamma: Gamma, **parameters: Any) -> Problem:
        """Return the problem for shards whose only fact is `GAMMA_FACTS`."""
        shards = with_inverse_widths(shards, kernel)
        # The widths are computed, so the anchors need not travel with every task.
        return cls(shards, kernel.with_rows_mapped(lambda rows: rows[:0]), gamma, **parameters)

    def in_double(self) -> Problem:
        """Return the same problem in double precision."""
        double = self.shards.in_double()
        return self if double is self.shards else replace(self, shards=double)

    @property
    def d(self) -> int:
        """The number of columns of X."""
        return self.shards.n_columns

    def linearised(self) -> Problem:
        """Return the problem that defines Phi0: each slope takes its value at beta = 0."""
        return replace(self, kernel=self.kernel.linearised())


class DeclinedError(ValueError):
    """Raised by an engine that cannot solve the problem, as it sees once it inspects the rows."""


class Engine(ABC):
    """Computes Phi, the objective and the gradient of one problem.

    The name is the one in `ENGINES`. The note is a remark for the user, such as why other engines
    declined. If the engine is approximate, results have an error that varies with W, which
    `Evaluation` then bounds.
    """

    name: ClassVar[str]
    note: str = ""
    approximate: bool = False

    def __init__(self, problem: Problem, q: int) -> None:
        self.problem = problem
        self.q = q
        self._checked_size = 0

    @classmethod
    def refusal(cls, problem: Problem) -> str | None:
        """Return why the engine cannot solve `problem`, or None if it can."""
        return None

    @classmethod
    def advised(cls, problem: Problem) -> bool:
        """Return whether engine="auto" should consider the engine, if it does not refuse."""
        return True

    @cached_property
    def double(self) -> Engine:
        """The same engine in double precision."""
        double = self.problem.in_double()
        return self if double is self.problem else self._same_kind(double)

    def finer(self) -> Engine | None:
        """Return a more accurate engine of the same kind, or None if there is none."""
        return None if self.double is self else self.double

    def steady(self, W: Array) -> Engine:
        """Return an engine of the same kind whose J is continuous in W near this one (d, k)."""
        return self

    def _same_kind(self, problem: Problem) -> Engine:
        other = type(self)(problem, self.q)
        other.note = self.note
        return other

    def _accuracy(self, objective: float, left_out: float = 0.0) -> dict[str, Any]:
        """Return the fields of an `Evaluation` that say how accurate J is.

        `left_out` bounds the part of J that an approximation omits.
        """
        is_finite = np.isfinite(objective) and np.isfinite(left_out)
        share = float(left_out / abs(objective)) if objective and is_finite else np.inf
        # Divide by the true J, which may be smaller than the computed one.
        error = share / (1.0 - share) if share < 1.0 else np.inf
        # 16 times the unit roundoff in the precision of the rows.
        noise = max(DOUBLE_NOISE, 8 * float(np.finfo(self.problem.shards.dtype).eps))
        return {"error": error, "noise": noise, "approximate": self.approximate}

    @cached_property
    def sample(self) -> Array:
        """Some of the rows (s, d)."""
        if self.problem.sample is not None:
            return self.problem.sample
        n = self.problem.shards.n_rows
        chosen = np.unique(np.linspace(0, n - 1, min(n, SAMPLE_ROWS)).astype(int))
        return self.problem.shards.rows(chosen)

    def _check_memory(self, size: int, needed: float, what: str) -> None:
        """Raise MemoryError, before the first tile, unless `needed` bytes fit a task's budget.

        `what` describes the task in the error. The check runs once for each larger `size`, a
        number that grows with the memory needed: later calls would see less free memory because
        the fit itself uses some.
        """
        if size <= self._checked_size:
            return
        budget = task_budget()
        if needed > budget:
            raise MemoryError(
                f"a task of {what} needs {needed / 2**20:.0f} MiB, but may take "
                f"{budget / 2**20:.0f} MiB here; give the workers more memory or fewer threads, "
                "or the fit fewer rows in a chunk, or fewer columns"
            )
        self._checked_size = size

    @abstractmethod
    def phi0(self) -> Array:
        """Return Phi0, the (d, d) matrix of the start."""

    @abstractmethod
    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi (d, d) at W (d, k)."""

    def gradient(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W (d, k) at W (d, k), in double precision.

        Twice Phi W is the gradient of J. It costs a fraction of Phi, and the reported residual
        comes from the last one.
        """
        return self.double.product(W)

    @abstractmethod
    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W (d, k) at W (d, k), in the precision of the rows."""

    def value(self, W: Array) -> Evaluation:
        """Return J at W (d, k), in the precision of the rows."""
        return self.product(W)

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (d, k) at W along Z (d, k).

        It is the central difference of two gradients, which is right to about 1e-9.
        """
        length = float(np.linalg.norm(Z))
        if not length:
            return np.zeros_like(Z)
        step = _STEP / length
        ahead, behind = (self.gradient(W + sign * step * Z).product for sign in (1.0, -1.0))
        return np.asarray((ahead - behind) / (2.0 * step))
