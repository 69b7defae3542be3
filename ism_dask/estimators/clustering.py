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
from ism_dask._validation import check_positive_int, is_whole, positive_float
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.clustering.alternation import AlternationResult, EmbeddedW, alternate
from ism_dask.clustering.kmeans import kmeans, nearest_centres, order_of_appearance
from ism_dask.clustering.spectral_embedding import Embedding, Graph
from ism_dask.engines import Engine, EngineOptions, Problem, as_engine
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.callbacks import EXTRA_FRAMES, reported_fit, with_callbacks
from ism_dask.estimators.checks import check_finite_block, check_rows, row_source
from ism_dask.estimators.fitted import rotated, solution_attributes
from ism_dask.estimators.preparation import FitRows, Prepared, Report, prepare_rows
from ism_dask.estimators.row_order import in_given_order, row_order, sampling_order
from ism_dask.gamma.base import GAMMA_FACTS, ThinGamma
from ism_dask.gamma.from_embedding import (
    EMBEDDING,
    ClusterGuide,
    EmbeddingGuide,
    normalise_rows,
)
from ism_dask.kernels import Affinity, Kernel, as_kernel
from ism_dask.observe.fit_events import FitPlan, fit_watcher
from ism_dask.records.checkpoint import CheckpointedFit, Round, current_fit
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import Stopping
from ism_dask.rows.shards import Shards
from ism_dask.rows.standardise import project
from ism_dask.solvers import Solver
from ism_dask.solvers.ism import restart_from
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.solvers.options import solver_name
from ism_dask.status import Status, components_advice

# Seed of k-means if `random_state` is None.
_SEED = 0
# Change of the eigenvalues of Phi that ends the iteration in all but the last rounds: from round
# to round the embedding changes far more.
_ROUND_TOL = 0.01
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
    outer_tol: float = 0.01
    max_outer: int = 20
    n_init: int | str = "auto"
    rotation: str | None = None
    random_state: Any = None
    on_round: Callable[[Round], None] | None = None

    def fit_predict(self, X: Any, y: Any = None, **parameters: Any) -> Array:
        """Learn the projection and the clusters, guided by y; return the cluster of each row."""
        self.fit(X, y, **parameters)
        return self.labels_

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:  # noqa: ARG002
        """Return the embedding guide for the n rows, made from y, or without it."""
        return ClusterGuide()

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
        self.check_parameters()
        given = row_source(X)
        X = check_rows(self, given)
        n = int(X.shape[0])
        self._check_clusters(n)
        validate_data(self, given, skip_check_array=True)
        # Without a y, all clusterers are unsupervised.
        guide = ClusterGuide() if y is None else self._guide(y, n)
        order = row_order(X, guide.targets)
        if order is not None:
            X, guide = X[order], guide.reordered(order)
        with single_threaded_blas(), reported_fit(self, X, y) as report:
            result, attributes = self._learned(X, guide, report)
            self._set_fitted(attributes | self._clustered(result.best.embedding, guide, order))
        self._warn_about_fit(replace(result.best.solution, status=self.status_))
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

    def _learned(
        self, X: Any, guide: EmbeddingGuide, report: Report
    ) -> tuple[AlternationResult[Engine], dict[str, Any]]:
        """Return the rounds of a fit, and the attributes of their best W."""
        kernel = as_kernel(self.kernel)
        prepared = prepare_rows(X, kernel, standardize=self.standardize)
        q = prepared.n_components(self.n_components, self.n_clusters)
        # The kernel width for all columns, as for the affinity: narrower kernels split clusters.
        order = sampling_order(X, guide.targets)
        rows = prepared.fit_rows(kernel, self.random_state, X.shape[1], order=order)
        affinity = Affinity.of(kernel.with_rows_mapped(prepared.lower_rows), rows.sample)
        graph = Graph.of(rows.shards, affinity, as_engine(self.engine), **rows.parameters)
        saved_fit = current_fit()
        result = alternate(
            _FitSteps(self, rows, graph, guide, q, saved_fit, partial(report, prepared)),
            saved_fit,
            tol=self.outer_tol,
            max_outer=self.max_outer,
            comparable=guide.comparable,
            on_round=self._report_round,
        )
        best, tol = result.best, self.plan.iterations.tol
        # The best round may not have been solved until stationary.
        by_rounds = tol is None and best.solution.status is Status.TOLERANCE
        converged = best.solution.status is Status.CONVERGED and result.converged
        attributes = {
            **solution_attributes(rotated(best.solution, prepared, self.rotation), prepared),
            "solver_": solver_name(self._solver),
            "tolerance_": _ROUND_TOL if by_rounds else self.plan.iterations.limit,
            "engine_": best.solved.name,
            "engine_note_": "; ".join(filter(None, [best.solved.note, best.embedding.note])),
            "kernel_": rows.fitted_kernel,
            "rounds_": result.rounds,
            "converged_": converged,
            **({"status_": Status.OVER_CAP} if result.over_cap else {}),
            "components_advice_": components_advice(
                best.solution.eigenvalues.tolist(), best.solution.eigengap
            ),
            **self._extended(best, prepared),
        }
        return result, attributes

    @property
    def plan(self) -> FitPlan:
        """The stopping rules of the iterations of each round, and of the rounds."""
        rounds = Stopping(self.outer_tol, max_iter=self.max_outer)
        return replace(super().plan, rounds=rounds)

    def _report_round(self, done: Round) -> None:
        fit_watcher().on_round(done)
        if self.on_round is not None:
            self.on_round(done)

    @staticmethod
    def _extended(best: EmbeddedW[Engine], prepared: Prepared) -> dict[str, Any]:
        """Return the projection of the fit and the extension of its embedding, for `predict`."""
        affine, extension = prepared.affine, best.embedding.extension
        if extension is None:
            raise TypeError("only an embedding of all features has no extension")
        return {
            "_projection": (affine.mean, affine.scale, prepared.lift(best.solution.W.T)),
            "_extension": extension,
            "affinity_": extension.kernel,
        }

    def _clustered(
        self, embedding: Embedding, guide: EmbeddingGuide, order: Array | None
    ) -> dict[str, Any]:
        """Return the clusters of an embedding; `order` (n,) is that in which the fit took rows."""
        U = embedding.shards.gather_fact(EMBEDDING)[:, :-1]
        centres, found = self._cluster(normalise_rows(U), guide)
        labels, U = (each if order is None else in_given_order(each, order) for each in (found, U))
        return {
            "embedding_": U,
            "embedding_eigenvalues_": embedding.values,
            **self._numbered(centres, labels, guide),
        }

    def _cluster(self, rows: Array, guide: EmbeddingGuide) -> tuple[Array, Array]:  # noqa: ARG002
        """Return centres (k, k) and clusters (n,) of rows (n, k) of the embedding."""
        seed = _SEED if self.random_state is None else self.random_state
        starts = None if isinstance(self.n_init, str) else self.n_init
        return kmeans(rows, self.n_clusters, seed=seed, starts=starts)

    def _numbered(self, centres: Array, labels: Array, guide: EmbeddingGuide) -> dict[str, Any]:  # noqa: ARG002
        """Return the clusters (n,), numbered in the order in which they first appear."""
        numbers = order_of_appearance(labels, self.n_clusters)
        return {"cluster_centers_": centres[numbers], "labels_": np.argsort(numbers)[labels]}

    def _clusters_of(self, X: Array) -> Array:
        check_finite_block(X)
        labels = np.empty(len(X), dtype=np.intp)
        # A block of a lazy array may also have no rows.
        for start in range(0, len(X), _ROWS_AT_ONCE):
            batch = slice(start, start + _ROWS_AT_ONCE)
            embedded = self._extension(project(X[batch], *self._projection))
            labels[batch] = nearest_centres(normalise_rows(embedded[:, :-1]), self.cluster_centers_)
        return labels

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


@dataclass(frozen=True, eq=False)
class _FitSteps:
    """The `AlternationSteps` of one fit."""

    model: ClusteringIKDR
    rows: FitRows
    graph: Graph
    guide: EmbeddingGuide
    q: int
    saved_fit: CheckpointedFit
    report: Callable[[State], None]
    solves_fully: bool = False
    limits_time: bool = True

    def begin(self) -> Embedding:
        """Return the embedding of X, or of X W for the first W that the guide asks for."""
        embedding = self.graph.start(self.model.n_clusters)
        first = self.guide.initial_gamma(embedding.shards)
        if first is None:
            return embedding
        return self.embed(self._solve(*first, None)[1])

    def solve(self, embedding: Embedding, last: Solution | None) -> tuple[Engine, Solution]:
        """Fit W to an embedding, starting from the last solution if there is one."""
        gamma, rows = self.guide.gamma(embedding.shards)
        return self._solve(gamma, rows, None if last is None else restart_from(last))

    def embed(self, solution: Solution) -> Embedding:
        """Return the embedding of X W."""
        return self.graph.embedded(solution.W, self.model.n_clusters)

    def fully(self) -> _FitSteps:
        """Return steps that solve for W to the tolerance given as a parameter of the estimator."""
        solver = self.model._solver
        if self.solves_fully or solver.stopping.tol is not None or not solver.ends_by_change:
            return self
        return replace(self, solves_fully=True)

    def without_time_limit(self) -> _FitSteps:
        """Return the same steps without the time limit `max_seconds`."""
        return replace(self, limits_time=False)

    def _solve(
        self, gamma: ThinGamma, rows: Shards, state: State | None
    ) -> tuple[Engine, Solution]:
        shards = self.rows.shards.with_only_fact_of(rows, GAMMA_FACTS)
        problem = Problem.from_gamma(shards, self.rows.kernel, gamma, **self.rows.parameters)
        solver = self.model._solver
        stopping = solver.stopping
        if solver.ends_by_change and stopping.tol is None and not self.solves_fully:
            stopping = replace(stopping, tol=_ROUND_TOL)
        stopping = (
            stopping.after(self.saved_fit.seconds)
            if self.limits_time
            else replace(stopping, max_seconds=None)
        )
        search = MultistartSearch(as_engine(self.model.engine), stopping, solver, self.report)
        return search.run(problem, self.q, state, self.saved_fit)
