"""Base classes of the clusterers: W and the embedding in turns, then k-means, and `predict`."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ism_dask._types import Array
from ism_dask._validation import check_positive_int, is_whole, positive_float
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.clustering.alternation import AlternationResult, alternate
from ism_dask.clustering.kmeans import kmeans, nearest_centres, order_of_appearance
from ism_dask.clustering.spectral_embedding import Embedding, Graph
from ism_dask.engines import Engine, EngineOptions, Problem
from ism_dask.estimators.base import IKDR, row_source
from ism_dask.estimators.callbacks import EXTRA_FRAMES, fit_task, with_callbacks
from ism_dask.estimators.missing_numbers import check_finite_block
from ism_dask.estimators.preparation import FitRows, Prepared, prepare_rows
from ism_dask.estimators.row_order import row_order, sampling_order
from ism_dask.gamma.base import GAMMA_FACTS, ThinGamma
from ism_dask.gamma.from_embedding import (
    EMBEDDING,
    ClusterGuide,
    EmbeddingGuide,
    normalise_rows,
)
from ism_dask.kernels import Affinity, Kernel, as_kernel
from ism_dask.observe.fit_events import FitPlan, announce, fit_watcher
from ism_dask.records.checkpoint import CheckpointedFit, Round, current_fit
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import Stopping
from ism_dask.rows.execution import is_dask
from ism_dask.rows.shards import Shards
from ism_dask.rows.source import is_row_source
from ism_dask.rows.standardise import project
from ism_dask.solvers import Solver
from ism_dask.solvers.ism import restart_from
from ism_dask.status import Status, components_advice

# Seed of k-means if `random_state` is None.
_SEED = 0
# Change of the eigenvalues of Phi that ends the iteration in all but the last rounds: from round
# to round the embedding changes far more.
_ROUND_TOL = 0.01
# Rows that `predict` embeds at a time.
_ROWS_AT_ONCE = 8_192


class ClusteringIKDR(ClusterMixin, IKDR):
    """A projection and clusters of its rows; each is fitted to the other in turns."""

    def __init__(
        self,
        n_clusters: int = 2,
        n_components: int | None = None,
        *,
        kernel: str | Kernel = "gaussian",
        solver: str | Solver = "ism",
        engine: str | EngineOptions = "auto",
        standardize: bool = True,
        outer_tol: float = 0.01,
        max_outer: int = 20,
        n_init: int | str = "auto",
        rotation: str | None = None,
        random_state: Any = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.kernel = kernel
        self.solver = solver
        self.engine = engine
        self.standardize = standardize
        self.outer_tol = outer_tol
        self.max_outer = max_outer
        self.n_init = n_init
        self.rotation = rotation
        self.random_state = random_state
        self.on_round = on_round

    @abstractmethod
    def _guide(self, y: Any, n: int) -> EmbeddingGuide:
        """Return the embedding guide for the n rows, made from y."""

    def predict(self, X: Any) -> Any:
        """Return the cluster of each row; the rows need not have been in the fit.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set

        Returns
        -------
        (n,) whole numbers; a lazy Dask array for a Dask array.
        """
        check_is_fitted(self)
        return self._rowwise(X, self._clusters_of, None)

    @with_callbacks
    def _fit_clusters(self, X: Any, y: Any) -> Self:
        self._check_parameters()
        X = self._validated_rows(row_source(X))
        n = int(X.shape[0])
        self._check_clusters(n)
        # Without a y, the clusterers that take one are unsupervised.
        guide = ClusterGuide() if y is None else self._guide(y, n)
        order = row_order(X, guide.targets)
        if order is not None:
            X, guide = X[order], guide.reordered(order)
        with announce(self.plan), single_threaded_blas(), fit_task(self, X, y):
            result = self._learn_clusters(X, guide)
            self._set_labels(result.best.embedding, guide, order)
        solution = replace(result.best.solution, status=self.status_)
        advice = components_advice(solution.eigenvalues.tolist(), solution.eigengap)
        self._warn_about_fit(solution, advice)
        out_of_rounds = not result.converged and len(result.rounds) >= self.max_outer
        if out_of_rounds and not fit_watcher().reports_endings:
            chosen = "best" if guide.comparable else "last"
            warnings.warn(
                f"{type(self).__name__} did not converge in {self.max_outer} rounds: the "
                f"eigenvalues of the embedding last changed by {result.rounds[-1].change:.2g}, "
                f"`outer_tol` is {self.outer_tol:g}. The {chosen} round is returned; raise "
                "`max_outer`",
                ConvergenceWarning,
                stacklevel=3 + EXTRA_FRAMES,
            )
        return self

    def _learn_clusters(self, X: Any, guide: EmbeddingGuide) -> AlternationResult[Engine]:
        kernel = as_kernel(self.kernel)
        prepared = prepare_rows(X, kernel, standardize=self.standardize)
        q = self._resolve_n_components(self.n_components, self.n_clusters, prepared)
        # The kernel width for all columns, as for the affinity: narrower kernels split clusters.
        d = self.n_features_in_
        order = sampling_order(X, guide.targets)
        fit_rows = prepared.fit_rows(kernel, self.random_state, d, order=order)
        affinity = Affinity.of(kernel.with_rows_mapped(prepared.lower_rows), fit_rows.sample)
        graph = Graph.of(
            fit_rows.shards,
            affinity,
            self._engine,
            **fit_rows.parameters,
        )
        saved_fit = current_fit()
        steps = _FitSteps(
            self,
            prepared=prepared,
            fit_rows=fit_rows,
            graph=graph,
            guide=guide,
            q=q,
            saved_fit=saved_fit,
        )
        result = alternate(
            steps,
            saved_fit,
            tol=self.outer_tol,
            max_outer=self.max_outer,
            comparable=guide.comparable,
            on_round=self._report_round,
        )
        best = result.best
        self._set_solution_attributes(self._rotated(best.solution, prepared), prepared)
        self._set_engine_attributes(best.solved, best.solution)
        if self.plan.iterations.tol is None and best.solution.status is Status.TOLERANCE:
            self.tolerance_ = _ROUND_TOL  # the best round was not solved until stationary
        self.kernel_ = fit_rows.kernel.with_rows_mapped(prepared.lift_rows)
        self.rounds_ = result.rounds
        self.converged_ = self.converged_ and result.converged
        if result.over_cap:
            self.status_ = Status.OVER_CAP
        self._set_prediction(best.solution, prepared, best.embedding)
        return result

    @property
    def plan(self) -> FitPlan:
        """The stopping rules of the iterations of each round, and of the rounds."""
        rounds = Stopping(self.outer_tol, max_iter=self.max_outer)
        return FitPlan(self._solver.stopping, rounds)

    def _report_round(self, done: Round) -> None:
        fit_watcher().on_round(done)
        if self.on_round is not None:
            self.on_round(done)

    def _set_prediction(self, solution: Solution, prepared: Prepared, embedding: Embedding) -> None:
        """Set the projection of the fit and the extension of its embedding, for `predict`."""
        affine = prepared.affine
        self._projection = affine.mean, affine.scale, prepared.lift(solution.W.T)
        if embedding.extension is None:
            raise TypeError("only an embedding of all features has no extension")
        self._extension = embedding.extension
        self.affinity_ = embedding.extension.kernel
        self.engine_note_ = "; ".join(filter(None, [self.engine_note_, embedding.note]))

    def _set_labels(self, embedding: Embedding, guide: EmbeddingGuide, order: Array | None) -> None:
        """Cluster the embedding; `order` (n,) is the order in which the fit took the rows."""
        U = embedding.shards.gather_fact(EMBEDDING)[:, :-1]
        order = np.arange(len(U)) if order is None else order
        self.embedding_ = np.empty_like(U)
        self.embedding_[order] = U
        self.embedding_eigenvalues_ = embedding.values
        labels = np.empty(len(U), dtype=np.intp)
        self.cluster_centers_, labels[order] = self._cluster(normalise_rows(U), guide)
        self._number_clusters(labels, guide)

    def _cluster(self, rows: Array, guide: EmbeddingGuide) -> tuple[Array, Array]:  # noqa: ARG002
        """Return centres (k, k) and clusters (n,) of rows (n, k) of the embedding."""
        seed = _SEED if self.random_state is None else self.random_state
        starts = None if isinstance(self.n_init, str) else self.n_init
        return kmeans(rows, self.n_clusters, seed=seed, starts=starts)

    def _number_clusters(self, labels: Array, guide: EmbeddingGuide) -> None:  # noqa: ARG002
        """Renumber the clusters (n,) in the order in which they first appear among the rows."""
        numbers = order_of_appearance(labels, self.n_clusters)
        self.cluster_centers_ = self.cluster_centers_[numbers]
        self.labels_ = np.argsort(numbers)[labels]

    def _clusters_of(self, X: Array) -> Array:
        check_finite_block(X)
        labels = np.empty(len(X), dtype=np.intp)
        # A block of a lazy array may also have no rows.
        for start in range(0, len(X), _ROWS_AT_ONCE):
            batch = slice(start, start + _ROWS_AT_ONCE)
            embedded = self._extension(project(X[batch], *self._projection))
            labels[batch] = nearest_centres(normalise_rows(embedded[:, :-1]), self.cluster_centers_)
        return labels

    def _validated_rows(self, X: Any) -> Any:
        if is_row_source(X) or is_dask(X):
            if is_dask(X) and np.isnan(X.shape[0]):
                X = X.copy().compute_chunk_sizes()
            self._set_n_features(X)
            return X
        checks = {"ensure_min_samples": 2, "ensure_min_features": 2}
        return self._validated(X, dtype="numeric", **checks)

    def _check_clusters(self, n: int) -> None:
        k: Any = self.n_clusters
        if not is_whole(k) or not 1 <= k < n:
            raise ValueError(
                f"`n_clusters` must be a whole number from 1 to {n - 1} for {n} rows "
                f"(n_samples={n}); got {k!r}"
            )
        check_positive_int("`max_outer`", self.max_outer)
        if not (isinstance(self.n_init, str) and self.n_init == "auto"):
            check_positive_int("`n_init`", self.n_init, 'or "auto"')
        positive_float("`outer_tol`", self.outer_tol)

    def __sklearn_tags__(self) -> Tags:
        """Declare that float32 stays float32."""
        tags = super().__sklearn_tags__()
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class GuidedIKDR(ClusteringIKDR):
    """A clusterer guided by scores or labels of the rows; without these it is unsupervised."""

    def __init__(
        self,
        n_clusters: int = 2,
        n_components: int | None = None,
        *,
        mu: float = 1.0,
        kernel: str | Kernel = "gaussian",
        solver: str | Solver = "ism",
        engine: str | EngineOptions = "auto",
        standardize: bool = True,
        outer_tol: float = 0.01,
        max_outer: int = 20,
        n_init: int | str = "auto",
        rotation: str | None = None,
        random_state: Any = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_components,
            kernel=kernel,
            solver=solver,
            engine=engine,
            standardize=standardize,
            outer_tol=outer_tol,
            max_outer=max_outer,
            n_init=n_init,
            rotation=rotation,
            random_state=random_state,
            on_round=on_round,
        )
        self.mu = mu

    def fit_predict(self, X: Any, y: Any = None, **parameters: Any) -> Array:
        """Learn the projection and the clusters, guided by y; return the cluster of each row."""
        self.fit(X, y, **parameters)
        return self.labels_


class _FitSteps:
    """The `AlternationSteps` of one fit."""

    def __init__(
        self,
        model: ClusteringIKDR,
        *,
        prepared: Prepared,
        fit_rows: FitRows,
        graph: Graph,
        guide: EmbeddingGuide,
        q: int,
        saved_fit: CheckpointedFit,
    ) -> None:
        self._model, self._prepared, self._fit_rows = model, prepared, fit_rows
        self._graph, self._guide, self._q, self._saved_fit = graph, guide, q, saved_fit
        self._limits_time = True
        tol = model.plan.iterations.tol
        self._tol: float | None = _ROUND_TOL if tol is None else tol

    def begin(self) -> Embedding:
        """Return the embedding of X, or of X W for the first W that the guide asks for."""
        embedding = self._graph.start(self._model.n_clusters)
        first = self._guide.initial_gamma(embedding.shards)
        if first is None:
            return embedding
        return self.embed(self._solve(*first, None)[1])

    def solve(self, embedding: Embedding, last: Solution | None) -> tuple[Engine, Solution]:
        """Fit W to an embedding, starting from the last solution if there is one."""
        gamma, rows = self._guide.gamma(embedding.shards)
        return self._solve(gamma, rows, None if last is None else restart_from(last))

    def embed(self, solution: Solution) -> Embedding:
        """Return the embedding of X W."""
        return self._graph.embedded(solution.W, self._model.n_clusters)

    def fully(self) -> _FitSteps:
        """Return steps that solve for W to the tolerance given as a parameter of the estimator."""
        tol = self._model.plan.iterations.tol
        if self._tol == tol or not self._model._solver.ends_by_change:
            return self
        other = copy(self)
        other._tol = tol
        return other

    def without_time_limit(self) -> _FitSteps:
        """Return the same steps without the time limit `max_seconds`."""
        other = copy(self)
        other._limits_time = False
        return other

    def _solve(
        self, gamma: ThinGamma, rows: Shards, state: State | None
    ) -> tuple[Engine, Solution]:
        fit_rows = self._fit_rows
        shards = fit_rows.shards.with_only_fact_of(rows, GAMMA_FACTS)
        problem = Problem.from_gamma(shards, fit_rows.kernel, gamma, **fit_rows.parameters)
        search = self._model._search_with(self._prepared)
        stopping = search.stopping
        if search.solver.ends_by_change:
            stopping = replace(stopping, tol=self._tol)
        limited_search = replace(search, stopping=self._remaining(stopping))
        return limited_search.run(problem, self._q, state, self._saved_fit)

    def _remaining(self, stopping: Stopping) -> Stopping:
        """Return the stopping rules with the time that remains for the next W."""
        if self._limits_time:
            return stopping.after(self._saved_fit.seconds)
        return replace(stopping, max_seconds=None)
