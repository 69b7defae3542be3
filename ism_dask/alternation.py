"""W and the embedding in turns: each is fitted to what the other says.

Like `solver`, it knows neither Dask nor storage: how to embed and how to solve are callables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ism_dask.spectral import Embedding
from ism_dask.states import Solution, Status
from ism_dask.typing import Array

_Solved = TypeVar("_Solved")

# Eigenvalues below this share of the largest may change as they like: they are rounding.
_NULL = 1e-6


@dataclass(frozen=True)
class Round:
    """One turn of both.

    Attributes
    ----------
    number : int
    objective : float
        J of W, under the embedding that it was fitted to.
    affinity : float
        What the embedding of X W maximises: the sum of its eigenvalues.
    eigenvalues : tuple of float
        Those, falling.
    change : float
        The largest of an eigenvalue, relative to itself, against the round before.
    iterations : int
        What it took to find W.
    seconds : float
        Since the beginning.
    """

    number: int
    objective: float
    affinity: float
    eigenvalues: tuple[float, ...]
    change: float
    iterations: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Pair(Generic[_Solved]):
    """A W and the embedding of X W.

    Attributes
    ----------
    solved : whatever `solve` returned
    solution : Solution
        In it.
    embedding : Embedding
    """

    solved: _Solved
    solution: Solution
    embedding: Embedding


@dataclass(frozen=True, eq=False)
class Outcome(Generic[_Solved]):
    """The best pair, and how it was come by."""

    best: Pair[_Solved]
    rounds: tuple[Round, ...]
    converged: bool
    over_cap: bool = False


def alternate(
    begin: Embedding,
    solve: Callable[[Embedding, Solution | None], tuple[_Solved, Solution]],
    embed: Callable[[Solution], Embedding],
    *,
    tol: float,
    max_outer: int,
    comparable: bool,
    on_round: Callable[[Round], None] | None = None,
) -> Outcome[_Solved]:
    """Take turns until the eigenvalues of the embedding change by less than `tol`.

    Where they settle, the last pair is the answer. Where they do not, that with the highest J is,
    if J of different rounds can be compared. Else it is the last again: each W is at least as
    good as the one before under the Gamma of its own round, in which it began with that.

    Parameters
    ----------
    begin : Embedding
        Of all features, or of a first W.
    solve : callable
        Takes an embedding, and the last solution to start from, if any.
    embed : callable
        Takes a solution.
    tol : float
    max_outer : int
        Rounds at most.
    comparable : bool
        Whether the Gammas of all embeddings weigh the same.
    on_round : callable, optional
        Called after each round.
    """
    started = time.perf_counter()
    embedding, solution = begin, None
    rounds: list[Round] = []
    best: Pair[_Solved] | None = None
    while True:
        last = solution
        solved, solution = solve(embedding, last)
        following = embed(solution)
        change = _change(following.values, embedding.values)
        embedding = following
        rounds.append(
            Round(
                number=len(rounds) + 1,
                objective=solution.objective,
                affinity=float(embedding.values.sum()),
                eigenvalues=tuple(embedding.values.tolist()),
                change=change,
                iterations=solution.n_iter,
                seconds=time.perf_counter() - started,
            )
        )
        if on_round is not None:
            on_round(rounds[-1])
        # A W that was given back as it came has found nothing to settle at: so would the next.
        stalled = solution.status is not Status.CONVERGED and _same(solution, last)
        settled = change < tol and not stalled
        better = best is None or solution.objective >= best.solution.objective
        if best is None or settled or better or not comparable:
            best = Pair(solved, solution, embedding)
        over = solution.status is Status.OVER_CAP
        if settled or stalled or over or len(rounds) >= max_outer:
            return Outcome(best, tuple(rounds), settled and not over, over)


def _same(solution: Solution, last: Solution | None) -> bool:
    return last is not None and np.array_equal(solution.W, last.W)


def _change(values: Array, before: Array) -> float:
    """Return the largest change of an eigenvalue, relative to itself.

    Relative to their norm the first few would drown what the last ones tell of small clusters.
    """
    size = np.maximum(np.abs(values), _NULL * np.abs(values).max(initial=0.0))
    changes = np.abs(values - before)
    return float(np.divide(changes, size, out=np.zeros_like(changes), where=size > 0).max())
