"""Records of an iteration: its history, its states and its solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.status import Status


@dataclass(frozen=True)
class Record:
    """One line of the history: the W of one iteration.

    Attributes
    ----------
    iteration : int
    objective : float
    eigenvalues : tuple of float
    change : float
        The relative change of the eigenvalues since the previous W.
    angle : float
        The sine of the largest principal angle to the previous W.
    seconds : float
        Time since the fit began, including that before an interruption.
    ascent : bool
        Whether J is at least as large as before, up to the error of an approximation.
    settled : bool
        Whether this iteration was the last because it met the stopping rule.
    residual : float
        The residual of W under the engine's own Phi: `||Phi W - W (W^T Phi W)|| / ||Phi W||`.
    limit : float
        The residual that is small enough beside the noise between rows; 0 if that is not measured.
    """

    iteration: int
    objective: float
    eigenvalues: tuple[float, ...]
    change: float
    angle: float
    seconds: float
    ascent: bool
    settled: bool = False
    residual: float = 1.0
    limit: float = 0.0


@dataclass(frozen=True)
class Round:
    """One round of a fit that alternates between W and the embedding.

    Attributes
    ----------
    number : int
    objective : float
        J of W under the embedding that W was fitted to.
    affinity : float
        The sum of the eigenvalues of the embedding of X W, which that embedding maximises.
    eigenvalues : tuple of float
        The eigenvalues of the embedding of X W, in decreasing order.
    change : float
        The largest change of an eigenvalue since the previous round, relative to the eigenvalue.
    turn : float
        The sine of the largest principal angle to the W of the previous round; 1 in the first.
    iterations : int
        Iterations that the solver took to W.
    seconds : float
        Time since the fit began.
    last : bool
        Whether this is the last round.
    """

    number: int
    objective: float
    affinity: float
    eigenvalues: tuple[float, ...]
    change: float
    turn: float
    iterations: int
    seconds: float
    last: bool = False

    @property
    def movement(self) -> float:
        """The larger of `change` and `turn`: when it is small, W and the embedding stay."""
        return max(self.change, self.turn)


@dataclass(frozen=True)
class Candidate:
    """A W (d, q) with the eigenvalues (q,) of the Phi whose eigenvectors it has, and its J.

    `following` is the largest other eigenvalue of that Phi, NaN if it is unknown; J is minus
    infinity before it is computed.
    """

    W: Array
    eigenvalues: Array
    following: float = np.nan
    objective: float = -np.inf


@dataclass(frozen=True)
class State:
    """All that a run of a solver needs to continue: the current W and the best so far.

    `peak` is the largest J of any W with all q columns. J of the best W may be lower by the error
    of an approximation. `curvature` is what L-BFGS remembers: its last steps (d, q), each with the
    change of the slope along it.
    """

    current: Candidate
    best: Candidate
    history: tuple[Record, ...] = ()
    peak: float = -np.inf
    curvature: tuple[tuple[Array, Array], ...] = ()

    @classmethod
    def at(
        cls, W: Array, eigenvalues: Array | None = None, history: tuple[Record, ...] = ()
    ) -> Self:
        """Return the state of a run that begins at W (d, q), after the steps of a history."""
        start = Candidate(W, np.zeros(W.shape[1]) if eigenvalues is None else eigenvalues)
        if history:
            history = (*history[:-1], replace(history[-1], settled=False))
        return cls(start, start, history)

    @property
    def iteration(self) -> int:
        """The number of iterations that have ended."""
        return len(self.history)

    def advanced(
        self,
        now: Candidate,
        residual: float,
        *,
        limit: float = 0.0,
        slack: float = 0.0,
        settled: bool = False,
        curvature: Sequence[tuple[Array, Array]] = (),
    ) -> Self:
        """Return the state after a step to another W; the driver adds the seconds.

        `slack` is the decrease of J that approximation and rounding may cause. Of two W that they
        hide from each other the later one is taken, which is nearer convergence.
        """
        record = Record(
            iteration=self.iteration + 1,
            objective=now.objective,
            eigenvalues=tuple(now.eigenvalues.tolist()),
            change=relative_change(now.eigenvalues, self.current.eigenvalues),
            angle=subspace_sine(self.current.W, now.W),
            seconds=0.0,
            ascent=now.objective >= self.current.objective - slack,
            settled=settled,
            residual=residual,
            limit=limit,
        )
        best = now if now.objective >= self.peak - slack else self.best
        peak = max(self.peak, now.objective)
        return type(self)(now, best, (*self.history, record), peak, tuple(curvature))


@dataclass(frozen=True)
class Solution:
    """The solution of a run, or of all runs of a fit.

    Attributes
    ----------
    W : (d, q) array
        Orthonormal columns: of all W in the run, the one of largest J.
    eigenvalues : (q,) array
        The diagonal of `W^T Phi W`, which is a diagonal matrix, in decreasing order.
    eigengap : float
        The smallest of these eigenvalues minus the largest outside of W.
    objective : float
        J(W), in double precision as the product.
    error : float
        A bound on the relative error of the objective.
    product : (d, q) array
        Phi(W) W.
    residual : float
        The residual of W; of a fit, under the true kernel as far as that was affordable.
    residual_rows : int
        The number of rows that the residual compares with all rows.
    engine, engine_note : str
        The name of the engine; its device, and why others before it declined.
    """

    W: Array
    eigenvalues: Array
    eigengap: float
    objective: float
    error: float
    product: Array
    status: Status
    history: tuple[Record, ...]
    residual: float = 1.0
    residual_rows: int = 0
    engine: str = ""
    engine_note: str = ""

    @property
    def n_iter(self) -> int:
        """The number of iterations."""
        return len(self.history)


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 if all values (q,) are 0."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0
