"""What an engine is: a way to answer the solver's questions about one problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ism_dask.gamma import Dependence, Gamma
from ism_dask.kernels import Kernel
from ism_dask.shards import Piece, Shards
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
    """

    shards: Shards
    kernel: Kernel
    gamma: Gamma

    @classmethod
    def of(cls, shards: Shards, kernel: Kernel, dependence: Dependence) -> Problem:
        """Return the problem with all that tasks need attached to the shards."""
        shards = shards.with_rows(dependence.facts)
        if any(term.local for _, term in kernel.terms):
            shards = shards.derive(_inverse_widths, kernel).settled()
        # The anchors of local kernels have done their work: they need not travel with every task.
        return cls(shards, kernel.carried(_nothing_of), dependence.gamma)

    @property
    def d(self) -> int:
        """Columns of X."""
        return self.shards.n_columns

    def flat(self) -> Problem:
        """Return the problem of the start: every slope is what it is at beta = 0."""
        return replace(self, kernel=self.kernel.flat())


class Engine(ABC):
    """Phi, objective and gradient of one problem.

    Attributes
    ----------
    name : str
        Its name in `ENGINES`.
    error : float
        A bound on the relative error of the objective; 0 for exact engines.
    """

    name: ClassVar[str]

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @classmethod
    @abstractmethod
    def refusal(cls, problem: Problem) -> str | None:
        """Return why the engine cannot serve `problem`, or None."""

    @property
    @abstractmethod
    def error(self) -> float:
        """A bound on the relative error of the objective."""

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


def _nothing_of(rows: Array) -> Array:
    return rows[:0]


def _inverse_widths(piece: Piece, kernel: Kernel) -> Array:
    widths = [term.widths(piece.X) for _, term in kernel.terms if term.local]
    return (1.0 / np.column_stack(widths)).astype(piece.X.dtype)
