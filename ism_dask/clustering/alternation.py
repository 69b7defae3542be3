"""Alternates between W and the spectral embedding: each is fitted to the other, until both stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.clustering.spectral_embedding import Embedding, Graph
from ism_dask.engines import Problem
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.gamma.embedding_guides import EmbeddingGuide
from ism_dask.linalg.subspaces import RowSpace, most_constant, subspace_sine
from ism_dask.observe import fit_watcher
from ism_dask.records.checkpoint import OuterState
from ism_dask.records.iteration import Round, Solution, State
from ism_dask.rows.raw import LoadedShard
from ism_dask.rows.shards import Shards
from ism_dask.solvers import ISM
from ism_dask.solvers.search import Search
from ism_dask.status import Status

# Change of the eigenvalues of Phi that ends the iteration in all but the last rounds: from round
# to round the embedding changes far more.
ROUND_TOL = 0.01
# Eigenvalues below this share of the largest are rounding: their changes do not count.
_ROUNDING_SHARE = 1e-6
# Two W between which the sine of the largest angle is below this are the same, up to rounding.
_SAME = 1e-12
# With a rough embedding, or a W that need not be stationary, the rounds end if the movement
# has not halved within this number of rounds: on 60,000 images W turned by 0.05 to 0.06 from round
# 7 to 15.
_PATIENCE = 5


@dataclass(frozen=True, eq=False)
class AlternationResult:
    """The last W with its embedding, all rounds, and how the alternation ended.

    The solution is W under Gamma of the embedding before, to which it was fitted; `pair` is the
    same W under Gamma of its own embedding. `tol` is the tolerance in force: a rough embedding
    moves more than the one that was given.
    """

    solution: Solution
    embedding: Embedding
    pair: Solution
    rounds: tuple[Round, ...]
    tol: float
    converged: bool


@dataclass(frozen=True, eq=False)
class Alternation:
    """Rounds of a fit of W to an embedding, and of an embedding to W.

    The graph embeds the rows, and the guide makes Gamma of an embedding, of which `problem` returns
    the problem of all rows, given the shards that have its facts. The search fits W; its time limit
    is that of all rounds, and the checkpoint of its saved fit may contain earlier rounds.
    """

    graph: Graph
    guide: EmbeddingGuide
    problem: Callable[[Gamma, Shards], Problem]
    n_clusters: int
    q: int
    search: Search

    def run(self, tol: float, max_outer: int) -> AlternationResult:
        """Alternate until W and the eigenvalues of the embedding move by less than `tol`.

        From then on each W is solved until it is stationary, and the alternation has converged when
        both move by less than `tol` even so, and the residual of W under Gamma of its own embedding
        is at most `tol`, if the solver ends at such a W. Rough embeddings, which never stay, end
        once the movement does not halve. The answer is the last W, after `max_outer` rounds at
        most: J of different rounds cannot be compared, since each has another Gamma.
        """
        saved_fit = self.search.saved_fit
        outer = None if saved_fit is None else saved_fit.checkpoint.outer
        embed = partial(self.graph.embedded, k=self.n_clusters)
        embedding = self._first_embedding() if outer is None else embed(outer.start.W)
        problem = self._problem(embedding)
        while True:
            rounds, start = ((), None) if outer is None else (outer.rounds, outer.start)
            limit, before = max(tol, embedding.movement), embedding.values
            fully = self._always_fully or any(each.movement < limit for each in rounds)
            solution = self._search(problem, start, fully=fully)
            embedding = embed(solution.W)
            record = Round(
                number=len(rounds) + 1,
                objective=solution.objective,
                affinity=float(embedding.values.sum()),
                eigenvalues=tuple(embedding.values.tolist()),
                change=_change(embedding.values, before),
                turn=1.0 if start is None else subspace_sine(start.W, solution.W),
                iterations=solution.state.iteration,
                seconds=self.search.time_limit.seconds,
            )
            problem = self._problem(embedding)
            # The solver returned the W it started from without converging: the next would, too.
            same = fully and record.turn < _SAME
            stalled = same and solution.status is not Status.CONVERGED
            settled = fully and record.movement < limit and not stalled
            pair = self.search.under(problem, solution) if settled else None
            time_is_up = solution.status is Status.OVER_CAP
            # The W of some solvers need not be stationary, however long this goes on.
            is_free = not self.search.solver.ends_stationary
            stationary = pair is not None and (is_free or pair.residual <= limit)
            converged = stationary and not time_is_up
            may_stick = embedding.movement > 0 or is_free
            stuck = may_stick and _has_not_halved((*rounds, record))
            is_last = converged or stalled or stuck or time_is_up or record.number >= max_outer
            record = replace(record, last=is_last)
            fit_watcher().on_round(record)
            start = State.from_weights(solution.W, solution.eigenvalues)
            outer = OuterState((*rounds, record), start)
            if is_last:
                pair = self.search.under(problem, solution) if pair is None else pair
                return AlternationResult(solution, embedding, pair, outer.rounds, limit, converged)
            if saved_fit is not None:
                saved_fit.commit_outer(outer)

    def _first_embedding(self) -> Embedding:
        """Return the embedding of X, or of X W for the first W that the guide asks for."""
        embedding = self.graph.start(self.n_clusters)
        first = self.guide.initial_gamma(embedding.shards)
        if first is None:
            return embedding
        problem = self.problem(*first)
        start = _start_in_equal_means(problem, self.q)
        solution = self._search(problem, start, fully=self._always_fully)
        return self.graph.embedded(solution.W, self.n_clusters)

    def _problem(self, embedding: Embedding) -> Problem:
        """Return the problem of all rows under Gamma of an embedding."""
        return self.problem(*self.guide.gamma(embedding.shards))

    @property
    def _always_fully(self) -> bool:
        """Whether each W is solved to the tolerance that the user gave, or until stationary."""
        return self.search.solver.tol is not None or not isinstance(self.search.solver, ISM)

    def _search(self, problem: Problem, state: State | None, *, fully: bool) -> Solution:
        solver = self.search.solver
        if not fully and isinstance(solver, ISM):
            solver = replace(solver, tol=ROUND_TOL)
        return replace(self.search, solver=solver).run(problem, self.q, state)


def _start_in_equal_means(problem: Problem, q: int) -> State | None:
    """Return the start along the widest directions in which the means of all classes are equal.

    Phi0 of a Gamma that only avoids classes is 0 in all of them, so that it prefers none. If they
    are fewer than q, those follow in which the means differ least. None means that the rows vary in
    fewer than q directions.
    """
    left, sizes, _ = np.linalg.svd(problem.shards.fold(_sums_of_classes))
    rank = np.count_nonzero(sizes > _ROUNDING_SHARE * sizes[0])
    rows = np.asarray(problem.sample) @ left[:, rank:]
    widest = left[:, rank:] @ np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
    W = np.hstack([widest, left[:, :rank][:, ::-1]])[:, :q]
    if W.shape[1] < q:
        return None
    # W is 0 in the directions in which the rows are constant.
    space = (problem.space or RowSpace(problem.d)).limited(most_constant(q))
    return State.from_weights(np.pad(W, [(0, space.n_constant), (0, 0)]))


def _sums_of_classes(shard: LoadedShard) -> Array:
    return np.asarray(shard.X.T @ shard.facts[GAMMA_FACTS])


def _has_not_halved(rounds: tuple[Round, ...]) -> bool:
    """Return whether the last `_PATIENCE` rounds have not halved the movement."""
    before = rounds[:-_PATIENCE][-1:]
    return any(rounds[-1].movement > each.movement / 2 for each in before)


def _change(values: Array, before: Array) -> float:
    """Return the largest change of an eigenvalue, relative to itself.

    Relative to the norm of all, the first few would hide the changes of small clusters.
    """
    size = np.maximum(np.abs(values), _ROUNDING_SHARE * np.abs(values).max(initial=0.0))
    changes = np.abs(values - before)
    return float(np.divide(changes, size, out=np.zeros_like(changes), where=size > 0).max())
