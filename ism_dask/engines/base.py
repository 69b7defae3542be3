"""What an engine is: a way to answer the solver's questions about one problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.derivative import phi_derivative, phi_derivative_bytes
from ism_dask.engines.operator import DOUBLE_NOISE, Evaluation
from ism_dask.engines.rounding_error import Maximum, ProblemSize, rounding_error
from ism_dask.gamma.base import Dependence, Gamma
from ism_dask.kernels import Kernel
from ism_dask.linalg.row_space import RowSpace
from ism_dask.rows import LoadedShard, Shards, task_budget


@dataclass(frozen=True)
class Problem:
    """Maximise `sum_ij Gamma_ij f(beta_ij)`: the rows, the kernel and the dependence.

    Attributes
    ----------
    shards : Shards
        Rows as the mathematics sees them. Fact 0 of a piece is what `gamma` knows of its rows,
        fact 1 the (b, l) inverse widths of the l local terms of the kernel, if there are any.
    kernel : Kernel
        With nothing left to resolve.
    gamma : Gamma
    engine_tol : float
        What an approximate engine may leave out, as a share of the trace of the kernel.
    sample : (s, d) array or None
        Some of the rows, drawn at random, for engines that look before they start. None: some
        that are evenly spaced.
    seed : int
        Of what engines draw at random.
    space : Space or None
        Where W lives, if there are directions beside those of X.
    reach : float or None
        No row is longer, if that is known: rounding grows with it.
    """

    shards: Shards
    kernel: Kernel
    gamma: Gamma
    engine_tol: float = 1e-4
    sample: Array | None = field(default=None, repr=False)
    seed: int = 0
    space: RowSpace | None = field(default=None, repr=False)
    reach: float | None = None

    @classmethod
    def of(
        cls, shards: Shards, kernel: Kernel, dependence: Dependence, **parameters: Any
    ) -> Problem:
        """Return the problem with all that tasks need attached to the shards.

        `parameters` are the other attributes, where they are not the defaults.
        """
        facts = shards.with_rows(dependence.facts)
        return cls.attached(facts, kernel, dependence.gamma, **parameters)

    @classmethod
    def attached(cls, shards: Shards, kernel: Kernel, gamma: Gamma, **parameters: Any) -> Problem:
        """Return the problem of shards whose only facts are those of `gamma`."""
        if any(term.per_row_width for _, term in kernel.terms):
            # In double precision: a row must be no distance from itself among the anchors.
            widths = shards.in_double().derive(_inverse_widths, kernel).settled()
            shards = shards.joined(widths)
        # The anchors of local kernels have done their work: they need not travel with every task.
        return cls(shards, kernel.with_rows_mapped(_no_rows), gamma, **parameters)

    def in_double(self) -> Problem:
        """Return the same problem in double precision."""
        double = self.shards.in_double()
        return self if double is self.shards else replace(self, shards=double)

    @property
    def d(self) -> int:
        """Columns of X."""
        return self.shards.n_columns

    def linearised(self) -> Problem:
        """Return the problem of the start: every slope is what it is at beta = 0."""
        return replace(self, kernel=self.kernel.linearised())


class DeclinedError(ValueError):
    """An engine that found, looking at the rows, that it cannot do what was asked."""


class Engine(ABC):
    """Phi, objective and gradient of one problem.

    Attributes
    ----------
    name : str
        Its name in `ENGINES`.
    note : str
        What a user should know of how the answer came about; most often nothing.
    approximate : bool
        Whether answers have an error, which `Evaluation` then bounds.
    jumps : bool
        Whether J jumps a little from one W to the next: steps that are to raise it may fail.
    """

    name: ClassVar[str]
    note: str = ""
    approximate: ClassVar[bool] = False
    jumps: ClassVar[bool] = False

    def __init__(self, problem: Problem, q: int) -> None:
        self.problem = problem
        self.q = q
        self._afforded = 0
        self._rounding_errors: dict[int, float] = {}

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Return why the engine cannot serve `problem` with q columns of W, or None."""
        return None

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Say whether the engine, if it can serve, is worth it here: the rule of "auto"."""
        return True

    @cached_property
    def double(self) -> Engine:
        """The same engine in double precision."""
        double = self.problem.in_double()
        return self if double is self.problem else self._like(double)

    def finer(self) -> Engine | None:
        """Return an engine of the same kind that is nearer to the true kernel, if there is one."""
        return None if self.double is self else self.double

    def resolution(self, W: Array) -> float:
        """Return the residual at W (d, q) below which there is nothing but noise of the engine."""
        return 0.0

    def coarser(self) -> Engine | None:
        """Return an engine of fewer rows that tells where to begin, where all of them are dear."""
        return None

    def _like(self, problem: Problem) -> Engine:
        other = type(self)(problem, self.q)
        other.note = self.note
        return other

    def _evaluated(
        self, objective: float, matrix: Array, left_out: float = 0.0, summed: int = 0
    ) -> Evaluation:
        """Return an evaluation with the error that is known of it.

        Parameters
        ----------
        objective : float
        matrix : array
        left_out : float
            A bound on what an approximation leaves out of J.
        summed : int
            Columns of a factor of the kernel, if J is summed by them.
        """
        bound = partial(self._error, objective, left_out, summed)
        noise = max(DOUBLE_NOISE, 16 * self._unit)
        return Evaluation(objective, matrix, bound, noise, self.approximate)

    def _error(self, objective: float, left_out: float, summed: int) -> float:
        """Return a bound on the relative error of J."""
        off = left_out + self._rounded(summed)
        known = objective and np.isfinite(objective) and np.isfinite(off)
        share = float(off / abs(objective)) if known else np.inf
        # Relative to the true J, which may be the smaller one.
        return share / (1.0 - share) if share < 1.0 else np.inf

    @property
    def _unit(self) -> float:
        """Half the distance from 1 to the next number, in the precision of the rows."""
        return 0.5 * float(np.finfo(self.problem.shards.dtype).eps)

    def _rounded(self, summed: int) -> float:
        """Return a bound on what rounding changes J by, computed once: it holds for every W."""
        if summed not in self._rounding_errors:
            shards = self.problem.shards
            # Shards are summed one after the other, and what they come to in a tree.
            sums = shards.largest + len(shards.parts) + summed
            share = rounding_error(
                self.problem.kernel, self._sizes, self._unit, sums, factored=summed > 0
            )
            self._rounding_errors[summed] = share * self._absolute_sum
        return self._rounding_errors[summed]

    @cached_property
    def _sizes(self) -> ProblemSize:
        problem = self.problem
        reach = problem.reach
        if reach is None:
            reach = problem.shards.fold(_longest).number
        finest = 1.0
        local = sum(term.per_row_width for _, term in problem.kernel.terms)
        if local:
            finest = problem.shards.through(local, fact=1).fold(_largest).number
        return ProblemSize(problem.shards.n_rows, problem.d, self.q, reach, finest)

    @cached_property
    def _absolute_sum(self) -> float:
        return self.problem.gamma.absolute_sum(self.problem.shards)

    def _afford(self, size: int, needed: float, what: str) -> None:
        """Refuse, before the first tile, a task of `what` that needs more bytes than it may take.

        Once for each `size`, told by what grows from call to call: what is free later may be
        less because the fit itself is at work.
        """
        if size <= self._afforded:
            return
        budget = task_budget()
        if needed > budget:
            raise MemoryError(
                f"a task of {what} needs {needed / 2**20:.0f} MiB, but may take "
                f"{budget / 2**20:.0f} MiB here; give the workers more memory or fewer threads, "
                "or the fit fewer rows in a chunk, or fewer columns"
            )
        self._afforded = size

    @abstractmethod
    def phi0(self) -> Array:
        """Return the (d, d) matrix of the start."""

    @abstractmethod
    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi (d, d) at W (d, k)."""

    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi W (d, k) at W (d, k), in double precision.

        Twice Phi W is the gradient of J. It costs a share of what Phi does, and the last of them is
        what is reported.
        """
        return self.double.product(W)

    @abstractmethod
    def product(self, W: Array) -> Evaluation:
        """Return J and Phi W (d, k) at W (d, k), in the precision of the rows."""

    @abstractmethod
    def value(self, W: Array) -> Evaluation:
        """Return J at W (d, k) with its error, and no matrix: (d, 0)."""

    def objective(self, W: Array) -> float:
        """Return J at W (d, k), in double precision."""
        return self.double.value(W).objective

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (d, k) at W along Z (d, k), of the true kernel."""
        shards, k = self.problem.shards, W.shape[1]
        needed = phi_derivative_bytes(shards, k) + 2 * shards.raw_bytes
        self._afford(k, needed, f"second derivatives of {shards.n_rows} rows")
        return phi_derivative(self.problem, W, Z)


def _no_rows(rows: Array) -> Array:
    return rows[:0]


def _inverse_widths(piece: LoadedShard, kernel: Kernel) -> Array:
    return 1.0 / np.column_stack(
        [term.widths(piece.X) for _, term in kernel.terms if term.per_row_width]
    )


def _longest(piece: LoadedShard) -> Maximum:
    X = piece.X.astype(np.float64, copy=False)
    return Maximum(float(np.sqrt(np.einsum("ij,ij->i", X, X).max())))


def _largest(piece: LoadedShard) -> Maximum:
    return Maximum(float(piece.X.max()))
