"""Alternate between W and the spectral embedding: each is fitted to the other until both converge.

Like the solvers, this module knows neither Dask nor storage: its callers pass the steps that
embed and solve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.clustering.spectral_embedding import Embedding
from ism_dask.records.checkpoint import CheckpointedFit, OuterState, Round
from ism_dask.records.iteration import Solution
from ism_dask.status import Status

_Solved_co = TypeVar("_Solved_co", covariant=True)

# Eigenvalues below this share of the largest are rounding: their changes do not count.
_ROUNDING_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class EmbeddedW(Generic[_Solved_co]):
    """A W and the embedding of X W.

    Attributes
    ----------
    solved : whatever `AlternationSteps.solve` returned beside the solution
    solution : Solution
        The solution with this W.
    embedding : Embedding
    """

    solved: _Solved_co
    solution: Solution
    embedding: Embedding


@dataclass(frozen=True, eq=False)
class AlternationResult(Generic[_Solved_co]):
    """The best W with its embedding, all rounds, and how the alternation ended."""

    best: EmbeddedW[_Solved_co]
    rounds: tuple[Round, ...]
    converged: bool
    over_cap: bool = False


class AlternationSteps(Protocol[_Solved_co]):
    """The two steps of a round, embed and solve, and their variants."""

    def begin(self) -> Embedding:
        """Return the embedding of all features, or of a first W."""

    def solve(self, embedding: Embedding, last: Solution | None) -> tuple[_Solved_co, Solution]:
        """Fit W to an embedding, starting from the last solution if there is one."""

    def embed(self, solution: Solution) -> Embedding:
        """Return the embedding of X W."""

    def fully(self) -> AlternationSteps[_Solved_co]:
        """Return the same steps, with each W solved until it is stationary.

        They return themselves if they solve so far in any case.
        """

    def without_time_limit(self) -> AlternationSteps[_Solved_co]:
        """Return the same steps without the time limit of the fit."""


def alternate(
    turns: AlternationSteps[_Solved_co],
    saved_fit: CheckpointedFit,
    *,
    tol: float,
    max_outer: int,
    comparable: bool,
    on_round: Callable[[Round], None] | None = None,
) -> AlternationResult[_Solved_co]:
    """Alternate until the eigenvalues of the embedding change by less than `tol`.

    From then on each W is solved until it is stationary, and the alternation has converged when the
    eigenvalues change by less than `tol` even so. The last W is then the answer. If it does not
    converge, the answer is the W with the largest J, provided that J of different rounds is
    comparable. Otherwise it is the last W again: under the Gamma of its own round, each W is at
    least as good as the one before, from which that round started.

    Parameters
    ----------
    turns : AlternationSteps
    saved_fit : CheckpointedFit
        Its checkpoint may contain earlier rounds.
    tol : float
    max_outer : int
        Maximum number of rounds.
    comparable : bool
        Whether the Gammas of all embeddings have the same weight.
    on_round : callable, optional
        Called after each round.
    """
    outer = saved_fit.outer
    embedding = turns.begin() if outer is None else turns.embed(outer.last)
    best: EmbeddedW[_Solved_co] | None = None
    while True:
        rounds, last = ((), None) if outer is None else (outer.rounds, outer.last)
        fully = any(each.change < tol for each in rounds)
        solved, solution = (turns.fully() if fully else turns).solve(embedding, last)
        next_embedding = turns.embed(solution)
        change = _change(next_embedding.values, embedding.values)
        embedding = next_embedding
        # The solver returned the W it started from without converging: the next round would, too.
        stalled = solution.status is not Status.CONVERGED and _same_W(solution, last)
        converged = change < tol and not stalled and (fully or turns.fully() is turns)
        time_is_up = solution.status is Status.OVER_CAP
        is_last = converged or stalled or time_is_up or len(rounds) + 1 >= max_outer
        record = Round(
            number=len(rounds) + 1,
            objective=solution.objective,
            affinity=float(embedding.values.sum()),
            eigenvalues=tuple(embedding.values.tolist()),
            change=change,
            iterations=solution.n_iter,
            seconds=saved_fit.seconds,
            last=is_last,
        )
        rounds = (*rounds, record)
        if on_round is not None:
            on_round(record)
        better = outer is None or solution.objective >= outer.best.objective
        if outer is None or converged or better or not comparable:
            best = EmbeddedW(solved, solution, embedding)
            outer = OuterState(rounds, solution, solution, last, fully)
        else:
            outer = replace(outer, rounds=rounds, last=solution)
        if is_last:
            # After an interruption, the best round may be in the checkpoint only.
            best = _restored_best(turns, outer) if best is None else best
            return AlternationResult(best, rounds, converged and not time_is_up, time_is_up)
        saved_fit.commit_outer(outer)


def _restored_best(turns: AlternationSteps[_Solved_co], outer: OuterState) -> EmbeddedW[_Solved_co]:
    """Compute the best round again from the solutions in the checkpoint."""
    # That round ended within the time limit; a limit now could lead to another W.
    turns = turns.without_time_limit()
    before = outer.before
    embedding = turns.begin() if before is None else turns.embed(before)
    solved, solution = (turns.fully() if outer.fully else turns).solve(embedding, before)
    return EmbeddedW(solved, solution, turns.embed(solution))


def _same_W(solution: Solution, last: Solution | None) -> bool:
    return last is not None and np.array_equal(solution.W, last.W)


def _change(values: Array, before: Array) -> float:
    """Return the largest change of an eigenvalue, relative to itself.

    Relative to the norm of all eigenvalues, the first few would hide the changes of the last ones,
    which belong to small clusters.
    """
    size = np.maximum(np.abs(values), _ROUNDING_SHARE * np.abs(values).max(initial=0.0))
    changes = np.abs(values - before)
    return float(np.divide(changes, size, out=np.zeros_like(changes), where=size > 0).max())
