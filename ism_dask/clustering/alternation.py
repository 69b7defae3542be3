"""W and the embedding in turns: each is fitted to what the other says.

Like `solver`, it knows neither Dask nor storage: how to embed and how to solve are callables.
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

# Eigenvalues below this share of the largest may change as they like: they are rounding.
_NULL = 1e-6


@dataclass(frozen=True, eq=False)
class EmbeddedW(Generic[_Solved_co]):
    """A W and the embedding of X W.

    Attributes
    ----------
    solved : whatever `solve` returned
    solution : Solution
        In it.
    embedding : Embedding
    """

    solved: _Solved_co
    solution: Solution
    embedding: Embedding


@dataclass(frozen=True, eq=False)
class AlternationResult(Generic[_Solved_co]):
    """The best pair, and how it was come by."""

    best: EmbeddedW[_Solved_co]
    rounds: tuple[Round, ...]
    converged: bool
    over_cap: bool = False


class AlternationSteps(Protocol[_Solved_co]):
    """How to embed, and how to solve."""

    def begin(self) -> Embedding:
        """Return the embedding of all features, or of a first W."""

    def solve(self, embedding: Embedding, last: Solution | None) -> tuple[_Solved_co, Solution]:
        """Return W under an embedding, from the last solution on, if there is one."""

    def embed(self, solution: Solution) -> Embedding:
        """Return the embedding of X W."""

    def fully(self) -> AlternationSteps[_Solved_co]:
        """Return the same turns, each W of which is solved for until it is stationary.

        Themselves, where it is in any case.
        """

    def unhurried(self) -> AlternationSteps[_Solved_co]:
        """Return the same turns, for which the time that the fit may take does not count."""


def alternate(
    turns: AlternationSteps[_Solved_co],
    saved_fit: CheckpointedFit,
    *,
    tol: float,
    max_outer: int,
    comparable: bool,
    on_round: Callable[[Round], None] | None = None,
) -> AlternationResult[_Solved_co]:
    """Take turns until the eigenvalues of the embedding change by less than `tol`.

    From then on each W is solved for fully, and the turns end where the eigenvalues change by no
    more even so. Then the last pair is the answer. Where they come to no such end, that with the
    highest J is, if J of different rounds can be compared. Else it is the last again: each W is at
    least as good as the one before under the Gamma of its own round, in which it began with that.

    Parameters
    ----------
    turns : Turns
    saved_fit : Journal
        Which may know of rounds already.
    tol : float
    max_outer : int
        Rounds at most.
    comparable : bool
        Whether the Gammas of all embeddings weigh the same.
    on_round : callable, optional
        Called after each round.
    """
    standing = saved_fit.outer
    embedding = turns.begin() if standing is None else turns.embed(standing.last)
    best: EmbeddedW[_Solved_co] | None = None
    while True:
        rounds, last = ((), None) if standing is None else (standing.rounds, standing.last)
        fully = any(each.change < tol for each in rounds)
        solved, solution = (turns.fully() if fully else turns).solve(embedding, last)
        following = turns.embed(solution)
        change = _change(following.values, embedding.values)
        embedding = following
        # A W that was given back as it came has found nothing to settle at: so would the next.
        stalled = solution.status is not Status.CONVERGED and _same(solution, last)
        settled = change < tol and not stalled and (fully or turns.fully() is turns)
        over = solution.status is Status.OVER_CAP
        ends = settled or stalled or over or len(rounds) + 1 >= max_outer
        done = Round(
            number=len(rounds) + 1,
            objective=solution.objective,
            affinity=float(embedding.values.sum()),
            eigenvalues=tuple(embedding.values.tolist()),
            change=change,
            iterations=solution.n_iter,
            seconds=saved_fit.seconds,
            last=ends,
        )
        rounds = (*rounds, done)
        if on_round is not None:
            on_round(done)
        better = standing is None or solution.objective >= standing.best.objective
        if standing is None or settled or better or not comparable:
            best = EmbeddedW(solved, solution, embedding)
            standing = OuterState(rounds, solution, solution, last, fully)
        else:
            standing = replace(standing, rounds=rounds, last=solution)
        if ends:
            # The best may be of a round before the fit was cut off.
            best = _restored_best(turns, standing) if best is None else best
            return AlternationResult(best, rounds, settled and not over, over)
        saved_fit.commit_outer(standing)


def _restored_best(
    turns: AlternationSteps[_Solved_co], standing: OuterState
) -> EmbeddedW[_Solved_co]:
    """Return the best pair, of whose round only the solutions are known."""
    # It is known to have ended in time: cut short now, it would come to another W.
    turns = turns.unhurried()
    before = standing.before
    embedding = turns.begin() if before is None else turns.embed(before)
    solved, solution = (turns.fully() if standing.fully else turns).solve(embedding, before)
    return EmbeddedW(solved, solution, turns.embed(solution))


def _same(solution: Solution, last: Solution | None) -> bool:
    return last is not None and np.array_equal(solution.W, last.W)


def _change(values: Array, before: Array) -> float:
    """Return the largest change of an eigenvalue, relative to itself.

    Relative to their norm the first few would drown what the last ones tell of small clusters.
    """
    size = np.maximum(np.abs(values), _NULL * np.abs(values).max(initial=0.0))
    changes = np.abs(values - before)
    return float(np.divide(changes, size, out=np.zeros_like(changes), where=size > 0).max())
