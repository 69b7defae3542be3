"""What an engine is: a way to answer the solver's questions about one problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ism_dask.engines.curvature import curvature, curvature_bytes
from ism_dask.gamma import Dependence, Gamma
from ism_dask.kernels import Kernel
from ism_dask.shards import Piece, Shards, task_budget
from ism_dask.solver import Evaluation
from ism_dask.typing import Array


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
    """

    shards: Shards
    kernel: Kernel
    gamma: Gamma
    engine_tol: float = 1e-4
    sample: Array | None = field(default=None, repr=False)
    seed: int = 0

    @classmethod
    def of(
        cls, shards: Shards, kernel: Kernel, dependence: Dependence, **approximation: Any
    ) -> Problem:
        """Return the problem with all that tasks need attached to the shards.

        `approximation` are `engine_tol`, `sample` and `seed`, where they are not the defaults.
        """
        facts = shards.with_rows(dependence.facts)
        return cls.attached(facts, kernel, dependence.gamma, **approximation)

    @classmethod
    def attached(
        cls, shards: Shards, kernel: Kernel, gamma: Gamma, **approximation: Any
    ) -> Problem:
        """Return the problem of shards whose only facts are those of `gamma`."""
        if any(term.local for _, term in kernel.terms):
            shards = shards.derive(_inverse_widths, kernel).settled()
        # The anchors of local kernels have done their work: they need not travel with every task.
        return cls(shards, kernel.carried(_nothing_of), gamma, **approximation)

    @property
    def d(self) -> int:
        """Columns of X."""
        return self.shards.n_columns

    def flat(self) -> Problem:
        """Return the problem of the start: every slope is what it is at beta = 0."""
        return replace(self, kernel=self.kernel.flat())


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
    """

    name: ClassVar[str]
    note: str = ""
    approximate: ClassVar[bool] = False

    def __init__(self, problem: Problem, q: int) -> None:
        self.problem = problem
        self.q = q
        self._afforded = 0

    @classmethod
    @abstractmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Return why the engine cannot serve `problem` with q columns of W, or None."""

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Say whether the engine, if it can serve, is worth it here: the rule of "auto"."""
        return True

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

    @abstractmethod
    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi W (d, k) at W (d, k); the gradient of J is twice that."""

    @abstractmethod
    def objective(self, W: Array) -> float:
        """Return J at W (d, k)."""

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (d, k) at W along Z (d, k), of the true kernel."""
        shards, k = self.problem.shards, W.shape[1]
        needed = curvature_bytes(shards, k) + 2 * shards.raw_bytes
        self._afford(k, needed, f"second derivatives of {shards.n_rows} rows")
        return curvature(self.problem, W, Z)


def _nothing_of(rows: Array) -> Array:
    return rows[:0]


def _inverse_widths(piece: Piece, kernel: Kernel) -> Array:
    widths = [term.widths(piece.X) for _, term in kernel.terms if term.local]
    return (1.0 / np.column_stack(widths)).astype(piece.X.dtype)
