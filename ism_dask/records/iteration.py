"""Records of an iteration: its history, its states and its solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
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
    residual : float
        The residual of W under the engine's own Phi: `||Phi W - W (W^T Phi W)|| / ||Phi W||`.
    seconds : float
        Time since the run began, including that before an interruption.
    ascent : bool
        Whether J is at least as large as before, up to the error of an approximation.
    settled : bool
        Whether this iteration was the last because it met the stopping rule.
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
class Candidate:
    """A subspace with its eigenvalues and its J.

    Attributes
    ----------
    W : (d, q) array
    eigenvalues : (q,) array
        The eigenvalues that belong to W, of the Phi whose eigenvectors W has.
    following : float
        The largest other eigenvalue of that Phi; NaN if it is unknown.
    objective : float
        J.
    """

    W: Array
    eigenvalues: Array
    following: float
    objective: float


@dataclass(frozen=True)
class State:
    """All that the iteration needs to continue: the current W and the best so far.

    `peak` is the largest J of any W with all q columns. J of the best W may be lower by the error
    of an approximation. `curvature` is what L-BFGS remembers: its last steps (d, q), each with the
    change of the slope along it.
    """

    iteration: int
    current: Candidate
    best: Candidate
    history: tuple[Record, ...]
    peak: float = -np.inf
    curvature: tuple[tuple[Array, Array], ...] = ()

    @classmethod
    def initial(cls, start: Candidate) -> State:
        """Return the state before the first iteration, which starts at a candidate."""
        return cls(iteration=0, current=start, best=start, history=())


@dataclass(frozen=True)
class Solution:
    """The solution of a solver run.

    Attributes
    ----------
    W : (d, q) array
        Orthonormal columns: of all W in the run, the one of largest J.
    eigenvalues : (q,) array
        The diagonal of `W^T Phi W`, which is a diagonal matrix, in decreasing order.
    eigengap : float
        The smallest of these eigenvalues minus the largest outside of W.
    objective : float
        J(W).
    error : float
        A bound on the relative error of the objective.
    product : (d, q) array
        Phi(W) W.
    residual : float
        The residual of W, under the true kernel as far as that was affordable.
    residual_rows : int
        The number of rows that the residual compares with all rows.
    in_double : bool
        Whether the objective and the product are of double precision.
    engine, engine_note : str
        The name of the engine; its device, and why others before it declined.
    """

    W: Array
    eigenvalues: Array
    eigengap: float
    objective: float
    error: float
    product: Array
    n_iter: int
    status: Status
    history: tuple[Record, ...]
    residual: float = 1.0
    residual_rows: int = 0
    in_double: bool = False
    engine: str = ""
    engine_note: str = ""


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 if all values (q,) are 0."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0
