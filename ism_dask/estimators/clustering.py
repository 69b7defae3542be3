"""Base classes of the clusterers: W and the embedding in turns, then k-means, and `predict`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ism_dask._types import Array
from ism_dask._validation import check_choice, check_positive_int, is_whole, positive_float
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.clustering.alternation import ROUND_TOL, Alternation, AlternationResult
from ism_dask.clustering.kmeans import kmeans, nearest_centres, order_of_appearance
from ism_dask.clustering.spectral_embedding import PUBLISHED, REGULARISED, Graph
from ism_dask.engines import EngineOptions, Problem, as_engine
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.callbacks import EXTRA_FRAMES, reported_fit, with_callbacks
from ism_dask.estimators.checks import check_dense, check_rows, row_source
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.fitted import rotated, solution_attributes
from ism_dask.estimators.preparation import Report, prepare_rows
from ism_dask.estimators.problem import rows_in_memory
from ism_dask.estimators.row_order import in_given_order, row_order
from ism_dask.gamma.base import GAMMA_FACTS, ThinGamma
from ism_dask.gamma.embedding_guides import (
    EMBEDDING,
    ClusterGuide,
    EmbeddingGuide,
    PublishedClusterGuide,
    normalise_rows,
    weighted_facts,
)
from ism_dask.gamma.row_values import check_weights
from ism_dask.kernels import Affinity, Kernel, as_kernel
from ism_dask.observe import FitPlan, fit_watcher
from ism_dask.records.checkpoint import Round, current_fit
from ism_dask.records.stopping_rule import StoppingOfRounds
from ism_dask.rows.blocks import fits_memory
from ism_dask.rows.shards import Shards
from ism_dask.rows.standardise import project
from ism_dask.solvers import Solver
from ism_dask.solvers.options import solver_name
from ism_dask.solvers.search import Search
from ism_dask.solvers.time_limit import TimeLimit
from ism_dask.status import Status, components_advice

# The graphs of X W, by name, with the guide that makes Gamma of their embedding alone.
_GRAPHS = {"regularised": (REGULARISED, ClusterGuide), "kernel": (PUBLISHED, PublishedClusterGuide)}
# Seed of k-means if `random_state` is None.
_SEED = 0
# Rows that `predict` embeds at a time.
_ROWS_AT_ONCE = 8_192


@dataclass(eq=False, repr=False)
class ClusteringIKDR(ClusterMixin, IKDR):
    """A projection and clusters of its rows; each is fitted to the other in turns."""

    n_clusters: int = 2
    n_components: int | None = None
    _: KW_ONLY
    kernel: str | Kernel = "gaussian"
    solver: str | Solver = "ism"
    engine: str | EngineOptions = "auto"
    standardize: bool = True
    graph: str = "regularised"
    outer_tol: float = 0.01
    max_outer: int = 100
    n_init: int | str = "auto"
    rotation: str | None = None
    random_state: Any = None
    on_round: Callable[[Round], None] | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set
        y : labels or scores, optional
            What guides the clusters, if the clusterer takes any; without it they are those of
            `UnsupervisedIKDR`.
        sample_weight : (n,) numbers, optional
            Weights of the rows, as in `SupervisedIKDR`. A row of weight 0 gets its cluster as
            `predict` gives it.

        Returns
        -------
        The estimator itself.
        """
        return self._fit_clusters(X, y, sample_weight)

    def fit_predict(self, X: Any, y: Any = None, **parameters: Any) -> Array:
        """Learn the projection and the clusters, guided by y; return the cluster of each row."""
        self.fit(X, y, **parameters)
        return self.labels_

    def _guide(self, y: Any, n: int, weights: Array | None) -> EmbeddingGuide:  # noqa: ARG002
        """Return the embedding guide for the n rows with weights, made from y, or without it."""
        return self._guide_without_y

    @property
    def _guide_without_y(self) -> EmbeddingGuide:
        return _GRAPHS[self.graph][1]()

    def predict(self, X: Any) -> Any:
        """Return the cluster of each row; the rows need not have been in the fit.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set

        Returns
        -------
        (n,) whole numbers; a lazy Dask array for a Dask array.
        """
        check_is_fitted(self)
        return self._rowwise(X, self._clusters_of, None)

    @with_callbacks
    def _fit_clusters(self, X: Any, y: Any, sample_weight: Any) -> Self:
        self.check_parameters()
        given = row_source(X)
        X = check_rows(self, given)
        check_dense(X, type(self).__name__)
        X = rows_in_memory(X)
        n = int(X.shape[0])
        weights = None if sample_weight is None else check_weights(sample_weight, n)
        self._check_clusters(n if weights is None else int(np.count_nonzero(weights)))
        validate_data(self, given, skip_check_array=True)
        # Without a y, all clusterers are unsupervised.
        guide = self._guide_without_y if y is None else self._guide(y, n, weights)
        order, all_rows = _order_of_counted(X, guide.Y, weights), X
        if order is not None:
            X, guide = X[order], guide.reordered(order)
            weights = None if weights is None else weights[order]
        with single_threaded_blas(), reported_fit(self, X, y, sample_weight) as report:
            result, attributes = self._learned(X, guide, weights, report)
            embedding = result.last.embedding
            U = embedding.shards.gather_fact(EMBEDDING)[:, :-1]
            attributes |= {
                "embedding_": in_given_order(U, order),
                "embedding_eigenvalues_": embedding.values,
                **self._clustered(normalise_rows(U), guide, order, weights),
            }
            self._set_fitted(attributes)
            if order is not None and len(order) < n:
                self._add_rows_of_no_weight(all_rows, np.sort(order))
        self._warn_about_fit(result.last.solution)
        last, rounds = result.rounds[-1], len(result.rounds)
        moves = last.movement >= result.tol and self.status_ is not Status.OVER_CAP
        unsettled = not result.converged and (moves or rounds >= self.max_outer)
        if unsettled and not fit_watcher().reports_endings:
            warnings.warn(
                f"{type(self).__name__} did not converge in {rounds} rounds: the last one "
                f"changed the eigenvalues of the embedding by {last.change:.2g} and turned W by an "
                f"angle whose sine is {last.turn:.2g}; `outer_tol` is {self.outer_tol:g}. The "
                "last round is returned; raise `max_outer`, or `outer_tol`",
                ConvergenceWarning,
                stacklevel=3 + EXTRA_FRAMES,
            )
        return self

    def _learned(
        self, X: Any, guide: EmbeddingGuide, weights: Array | None, report: Report
    ) -> tuple[AlternationResult, dict[str, Any]]:
        """Return the rounds of a fit, and the attributes of their last W."""
        kernel = as_kernel(self.kernel)
        prepared = prepare_rows(X, kernel, standardize=self.standardize, weights=weights)
        q = prepared.n_components(self.n_components, self.n_clusters)
        # The kernel width for all columns, as for the affinity: narrower kernels split clusters.
        rows = DependenceRows.of(prepared, kernel, self.random_state, X.shape[1], weights=weights)
        affinity = Affinity.for_kernel(kernel.with_rows_mapped(prepared.lower_rows), rows.sample)
        normalisation, _ = _GRAPHS[self.graph]
        graph = Graph.from_shards(
            rows.shards, affinity, as_engine(self.engine), normalisation, weights, **rows.parameters
        )

        def problem(gamma: ThinGamma, embedded: Shards) -> Problem:
            weighted = embedded.derive(GAMMA_FACTS, weighted_facts).persisted()
            shards = rows.shards.with_fact_of(weighted, GAMMA_FACTS)
            return Problem.from_gamma(shards, rows.kernel, gamma, **rows.parameters)

        solver, watcher = self._solver, partial(report, prepared)
        saved_fit = current_fit()
        time_limit = TimeLimit(solver.max_seconds, saved_fit.earlier_seconds)
        search = Search(as_engine(self.engine), solver, watcher, time_limit)
        alternation = Alternation(graph, guide, problem, self.n_clusters, q, search, saved_fit)
        result = alternation.run(self.outer_tol, self.max_outer, self._report_round)
        last, pair, tol = result.last, result.pair, self.plan.iterations.tol
        affine, extension = prepared.affine, last.embedding.extension
        assert extension is not None  # which every embedding of X W has
        # The last round may not have been solved until stationary.
        by_rounds = tol is None and pair.status is Status.TOLERANCE
        note = "; ".join(filter(None, [pair.engine_note, last.embedding.note]))
        attributes = {
            **solution_attributes(
                replace(rotated(pair, prepared, self.rotation), engine_note=note),
                prepared,
                rows.sample,
                solver=solver_name(self._solver),
                components_advice=components_advice(pair.eigenvalues.tolist(), pair.eigengap),
            ),
            "tolerance_": ROUND_TOL if by_rounds else result.tol if tol is None else tol,
            "kernel_": rows.fitted_kernel,
            "rounds_": result.rounds,
            "converged_": pair.status is Status.CONVERGED and result.converged,
            # The extension of the embedding to other rows, for `predict`.
            "_projection": (affine.mean, affine.scale, prepared.lift(last.solution.W.T)),
            "_extension": extension,
            "affinity_": extension.kernel,
        }
        return result, attributes

    @property
    def plan(self) -> FitPlan:
        """The stopping rules of the iterations of each round, and of the rounds."""
        rounds = StoppingOfRounds(self.outer_tol, max_iter=self.max_outer)
        return FitPlan(self._solver.stopping, rounds)

    def _report_round(self, done: Round) -> None:
        fit_watcher().on_round(done)
        if self.on_round is not None:
            self.on_round(done)

    def _clustered(
        self,
        rows: Array,
        guide: EmbeddingGuide,  # noqa: ARG002
        order: Array | None,
        weights: Array | None,
    ) -> dict[str, Any]:
        """Return centres and clusters of rows (n, k) of the embedding in the order of the fit.

        The clusters are numbered in the order in which they first appear as the rows were given.
        """
        seed = _SEED if self.random_state is None else self.random_state
        starts = None if isinstance(self.n_init, str) else self.n_init
        centres, found = kmeans(rows, self.n_clusters, seed=seed, starts=starts, weights=weights)
        labels = in_given_order(found, order)
        numbers = order_of_appearance(labels, self.n_clusters)
        return {"cluster_centers_": centres[numbers], "labels_": np.argsort(numbers)[labels]}

    def _add_rows_of_no_weight(self, X: Array, counted: Array) -> None:
        """Add all rows (n, d), of which only the `counted` (k,) were in the fit, to its rows."""
        U, labels = self._embedding_of(X), self._clusters_of(X)
        U[counted], labels[counted] = self.embedding_, self.labels_
        self.__dict__.update(embedding_=U, labels_=labels)

    def _clusters_of(self, X: Array) -> Array:
        return nearest_centres(normalise_rows(self._embedding_of(X)), self.cluster_centers_)

    def _embedding_of(self, X: Array) -> Array:
        """Return the rows of U (b, k) for rows X (b, d), which need not have been in the fit."""
        U = np.empty((X.shape[0], self.n_clusters))
        # A block of a lazy array may also have no rows.
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            batch = slice(start, start + _ROWS_AT_ONCE)
            U[batch] = self._extension(project(X[batch], *self._projection))[:, :-1]
        return U

    def __sklearn_tags__(self) -> Tags:
        """Declare that rows may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_clusters(self, n: int) -> None:
        """Raise a ValueError if a parameter does not suit n rows that count."""
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
        check_choice("`graph`", self.graph, _GRAPHS)


def _order_of_counted(X: Any, Y: Array | None, weights: Array | None) -> Array | None:
    """Return the indices (k,) of the rows that count in an order of their own.

    None means that all rows stay as they are, if they are too large to be in memory.
    """
    if weights is None or not fits_memory(X.shape):
        return row_order(X, Y, weights)
    counted = np.flatnonzero(weights)
    order = row_order(X[counted], None if Y is None else Y[counted], weights[counted])
    return counted if order is None else counted[order]
