"""What an iteration is told, notes and leaves: when to stop, where it is, what came out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.status import Status


@dataclass(frozen=True)
class Record:
    """One line of the history, of the W that the iteration came to.

    Attributes
    ----------
    iteration : int
    objective : float
    eigenvalues : tuple of float
    change, angle : float
        Against the W before.
    residual : float
        Of W, under the engine's own Phi: `||Phi W - W (W^T Phi W)|| / ||Phi W||`.
    seconds : float
        Since the beginning.
    ascent : bool
        Whether J is as large as before, as far as an approximation can tell.
    settled : bool
        Whether it was the last because the rules that are in force were met.
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


@dataclass(frozen=True)
class Candidate:
    """A subspace with what is known of it.

    Attributes
    ----------
    W : (d, q) array
    eigenvalues : (q,) array
        Of the Phi whose eigenvectors they are.
    following : float
        The largest other eigenvalue of that Phi; NaN where that is not known.
    objective : float
        J.
    """

    W: Array
    eigenvalues: Array
    following: float
    objective: float


@dataclass(frozen=True)
class State:
    """All that the iteration needs to go on from here: the current W and the best so far.

    `peak` is the largest J of a W with all columns, of which the best may fall short by what an
    approximation cannot tell.
    """

    iteration: int
    current: Candidate
    best: Candidate
    history: tuple[Record, ...]
    peak: float = -np.inf

    @classmethod
    def begun(cls, start: Candidate) -> State:
        """Return the state that begins with a candidate."""
        return cls(iteration=0, current=start, best=start, history=())


@dataclass(frozen=True)
class Solution:
    """What came out.

    Attributes
    ----------
    W : (d, q) array
        Orthonormal columns, the best seen by the objective.
    eigenvalues : (q,) array
        Of `W^T Phi W`, which is diagonal, falling.
    eigengap : float
        The smallest chosen eigenvalue minus the largest not chosen.
    objective : float
        J(W).
    error : float
        A bound on the relative error of the objective.
    product : (d, q) array
        Phi(W) W.
    residual : float
        Of W, under the true kernel as far as that was affordable.
    residual_rows : int
        How many rows were held against all rows for it, or against how many each row was.
    in_double : bool
        Whether the objective and the product are of double precision.
    standard_error : float
        Of the objective, as a share of it, where it is an estimate by some pairs of rows; else 0.
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
    standard_error: float = 0.0


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 where values (q,) are."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0
