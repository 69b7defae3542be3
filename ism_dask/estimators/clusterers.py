"""The clusterers: without labels, with labels to avoid, with scores of some rows.

W and the embedding of the rows are fitted in turns, and k-means clusters the embedding.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ism_dask._types import Array
from ism_dask._validation import check_choice, check_positive_int, is_whole, positive_float
from ism_dask.clustering import AVOID_WEIGHT, SCORES_WEIGHT
from ism_dask.clustering.alternation import ROUND_TOL, Alternation, AlternationResult
from ism_dask.clustering.kmeans import kmeans, nearest_centres, order_of_appearance, seeded_kmeans
from ism_dask.clustering.spectral_embedding import Graph
from ism_dask.engines import EngineOptions, Problem, as_engine
from ism_dask.estimators.base import IKDR, watched_fit
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.fitted import rotated, solution_attributes
from ism_dask.estimators.input_rows import (
    check_rows,
    in_given_order,
    row_order,
    row_source,
    rows_in_memory,
    without_gaps,
)
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.gamma.embedding_guides import EMBEDDING, ClusterGuide, EmbeddingGuide, normalise_rows
from ism_dask.gamma.target_input import labels_to_avoid, partial_scores
from ism_dask.kernels import Affinity, Kernel, as_kernel
from ism_dask.observe import current_fit, fit_watcher
from ism_dask.records.iteration import StoppingOfRounds
from ism_dask.rows.raw import project
from ism_dask.rows.shards import Shards
from ism_dask.solvers import Solver
from ism_dask.solvers.base import TimeLimit, solver_name
from ism_dask.solvers.search import Search
from ism_dask.status import Status, components_advice
from ism_dask.threads import single_threaded_blas
from ism_dask.words import count_noun

# The graphs of X W, by name, with the guide that makes Gamma of their embedding alone.
_GRAPHS = {"regularised": ClusterGuide(), "kernel": ClusterGuide(published=True)}
# Seed of k-means if `random_state` is None.
_SEED = 0
# Rows that `predict` embeds at a time.
_ROWS_AT_ONCE = 1_024


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
    missing: str | None = None
    graph: str = "regularised"
    outer_tol: float = 0.01
    max_outer: int = 100
    rotation: str | None = None
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set
        y : labels or scores, optional
            What guides the clusters, if the clusterer takes any; without it they are those of
            `UnsupervisedIKDR`.
        """
        self.check_parameters()
        given = row_source(X)
        X = rows_in_memory(check_rows(self, given), type(self).__name__)
        X, gaps = without_gaps(self.missing, X, getattr(given, "columns", ()))
        n = int(X.shape[0])
        self._check_clusters(n)
        validate_data(self, given, skip_check_array=True)
        # Without a y, all clusterers are unsupervised.
        guide = (ClusteringIKDR if y is None else type(self))._guide(self, y, n)
        order = row_order(X, guide.Y)
        if order is not None:
            X, guide = X[order], guide.reordered(order)
        with single_threaded_blas(), watched_fit(self):
            result, attributes = self._learned(X, guide)
            embedding = result.embedding
            U = embedding.shards.gather_fact(EMBEDDING)[:, :-1]
            attributes |= gaps | {
                "embedding_": in_given_order(U, order),
                **self._clustered(normalise_rows(U), guide, order),
            }
            self._set_fitted(attributes)
        self._fit_parameters = deepcopy(self.get_params(deep=False))
        self._warn_about_fit()
        last, rounds = result.rounds[-1], len(result.rounds)
        moves = last.movement >= result.tol and self.status_ is not Status.OVER_CAP
        unsettled = not result.converged and (moves or rounds >= self.max_outer)
        if unsettled and not fit_watcher().reports_endings:
            ended_early = rounds < self.max_outer  # since the movement did not fall any more
            advice = "or take engine='exact'" if ended_early else "or `max_outer`"
            warnings.warn(
                f"{type(self).__name__} did not converge in {count_noun(rounds, 'round')}: the "
                f"last one changed the eigenvalues of the embedding by {last.change:.2g} and "
                f"turned W by an angle whose sine is {last.turn:.2g}; `outer_tol` is "
                f"{self.outer_tol:g}. The last round is returned; raise `outer_tol`, {advice}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Array:
        """Learn the projection and the clusters, guided by y; return the cluster of each row."""
        return self.fit(X, y).labels_

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:  # noqa: ARG002
        """Return the embedding guide for the n rows, made from y, or without it."""
        return _GRAPHS[self.graph]

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
        return self._rowwise(X, self._clusters_of)

    def _learned(self, X: Any, guide: EmbeddingGuide) -> tuple[AlternationResult, dict[str, Any]]:
        """Return the rounds of a fit, and the attributes of their last W."""
        kernel, engine = as_kernel(self.kernel), as_engine(self.engine)
        prepared = prepare_rows(X, kernel, standardize=self.standardize)
        q = prepared.n_components(self.n_components, self.n_clusters)
        # The kernel width for all columns, as for the affinity: narrower kernels split clusters.
        rows = DependenceRows.sampled(prepared, kernel, self.random_state, X.shape[1])
        affinity = Affinity.for_kernel(kernel.with_rows_mapped(prepared.lower_rows), rows.sample)
        published = _GRAPHS[self.graph].published
        graph = Graph.from_shards(
            rows.shards, affinity, engine, published=published, **rows.parameters
        )

        def problem(gamma: Gamma, embedded: Shards) -> Problem:
            shards = rows.shards.with_fact_of(embedded, GAMMA_FACTS)
            return Problem.from_gamma(shards, rows.kernel, gamma, **rows.parameters)

        solver, saved_fit = self._solver, current_fit()
        time_limit = TimeLimit(solver.max_seconds, saved_fit)
        search = Search(engine, solver, fit_watcher().on_iteration, time_limit, saved_fit)
        alternation = Alternation(graph, guide, problem, self.n_clusters, q, search)
        result = alternation.run(self.outer_tol, self.max_outer)
        pair, tol = result.pair, solver.tol
        affine, extension = prepared.affine, result.embedding.extension
        assert extension is not None  # which every embedding of X W has
        # The last round may not have been solved until stationary.
        by_rounds = tol is None and pair.status is Status.TOLERANCE
        note = "; ".join(filter(None, [pair.report.engine_note, result.embedding.note]))
        attributes = {
            **solution_attributes(
                rotated(pair, prepared, self.rotation),
                prepared,
                rows.sample,
                prepared,
                engine_note=note,
                solver=solver_name(solver),
                tolerance=ROUND_TOL if by_rounds else result.tol if tol is None else tol,
                components_advice=components_advice(pair.eigenvalues.tolist(), pair.eigengap),
            ),
            "kernel_": rows.fitted_kernel,
            "rounds_": result.rounds,
            "converged_": pair.status is Status.CONVERGED and result.converged,
            # The extension of the embedding to other rows, for `predict`, by `affinity_`.
            "_projection": (affine.mean, affine.scale, prepared.lift(result.solution.W.T)),
            "_extension": extension,
        }
        return result, attributes

    @property
    def affinity_(self) -> Kernel:
        """The kernel that weighs the edges of the graph of the rows of `X W`."""
        check_is_fitted(self)
        return self._extension.kernel

    @property
    def stopping_of_rounds(self) -> StoppingOfRounds:
        """The stopping rule of the rounds."""
        return StoppingOfRounds(tol=self.outer_tol, max_iter=self.max_outer)

    def _clustered(
        self,
        rows: Array,
        guide: EmbeddingGuide,  # noqa: ARG002
        order: Array | None,
    ) -> dict[str, Any]:
        """Return centres and clusters of rows (n, k) of the embedding in the order of the fit.

        The clusters are numbered in the order in which they first appear as the rows were given.
        """
        seed = _SEED if self.random_state is None else self.random_state
        centres, found = kmeans(rows, self.n_clusters, seed=seed)
        labels = in_given_order(found, order)
        numbers = order_of_appearance(labels, self.n_clusters)
        return {"cluster_centers_": centres[numbers], "labels_": np.argsort(numbers)[labels]}

    def _clusters_of(self, X: Array) -> Array:
        """Return the clusters of rows X (b, d) by their rows of U (b, k)."""
        U = np.empty((X.shape[0], self.embedding_.shape[1]))
        # A block of a lazy array may also have no rows.
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            batch = slice(start, start + _ROWS_AT_ONCE)
            U[batch] = self._extension(project(X[batch], *self._projection))[:, :-1]
        return nearest_centres(normalise_rows(U), self.cluster_centers_)

    def _check_clusters(self, n: int) -> None:
        """Raise a ValueError if a parameter does not suit n rows."""
        k: Any = self.n_clusters
        if not is_whole(k) or not 1 <= k < n:
            raise ValueError(
                f"`n_clusters` must be a whole number from 1 to {n - 1} for {n} rows "
                f"(n_samples={n}); got {k!r}"
            )
        check_positive_int("`max_outer`", self.max_outer)
        positive_float("`outer_tol`", self.outer_tol)
        check_choice("`graph`", self.graph, _GRAPHS)


@dataclass(eq=False, repr=False)
class UnsupervisedIKDR(ClusteringIKDR):
    """Interpretable kernel dimension reduction for clustering, without labels.

    Finds W with orthonormal columns and clusters of the rows in alternating rounds. W makes `X W`
    depend as strongly as possible on a spectral embedding U of the rows; U is the embedding of the
    graph of the rows of `X W`.

    Parameters
    ----------
    n_clusters : int, default 2
        Number of clusters k.
    n_components : int, optional
        Number of new features q. Default: as many as clusters, if the rows vary in enough
        directions.
    kernel, engine, standardize, missing
        As in `SupervisedIKDR`, for the W of each round.
    solver : "ism" or Solver, default "ism"
        As in `SupervisedIKDR`, for the W of each round. With None as its `tol`, "ism" solves each
        round by the published rule with 0.01; once W and the embedding stay, the last rounds
        continue until W is stationary. A number is the published rule for all rounds. Its
        `max_seconds` limit all rounds together: the round in progress ends with the best W that it
        has.
    graph : {"regularised", "kernel"}, default "regularised"
        The graph of the rows of `X W`. "kernel" is the published one: the affinity is the kernel
        itself, as wide as for W, degrees are its row sums, nothing is centred, and
        `Gamma = D^-1/2 H U U^T H D^-1/2`. The default has a narrower gaussian, raises each degree
        by 0.3 n, and centres (docs/clustering.md compares them).
    outer_tol : float, default 0.01
        Stop when from round to round, with each W solved to convergence, the eigenvalues of the
        embedding change by less than this, and W turns by an angle with a smaller sine, and if
        `residual_` is below it as well. A rough graph of many rows raises it to 0.03, and then
        ends the rounds once five of them have not halved the movement (docs/clustering.md).
    max_outer : int, default 100
        Maximum number of rounds.
    rotation : {"varimax"} or None, default None
        As in `PredictiveIKDR`, for the W of the result. The clusters do not change.
    random_state : int, RandomState or None, default None
        Seed of everything that is drawn at random. None is a fixed seed, so that fits repeat.

    Attributes
    ----------
    labels_ : (n,) array
        The cluster of each row. Clusters are numbered in the order in which they first appear.
    embedding_ : (n, k) array
        The spectral embedding U; `labels_` come from k-means on its rows, scaled to length 1.
    cluster_centers_ : (k, k) array
        The centres of the clusters, among the rows of U scaled to length 1.
    rounds_ : tuple of Round
        A record of each round, with the objectives of W and of the embedding. J of a round is that
        under the embedding before, to which W was fitted. The `eigenvalues` (k,) of the last round
        are those of `embedding_`.
    affinity_ : Kernel
        The kernel that weighs the edges of the graph of the rows of `X W`; docs/clustering.md
        explains why it differs from `kernel_`.
    components_, mean_, scale_, gap_means_, gap_counts_, eigenvalues_, eigengap_, \
    objective_, residual_, kernel_, report_, n_features_in_, feature_names_in_
        As in `SupervisedIKDR`, for the W of the last round under the Gamma of `embedding_`.
    n_iter_, status_, history_
        As in `SupervisedIKDR`, for the fit of this W to the embedding before.
    converged_ : bool
        Whether W and the embedding stay when each is fitted to the other: the rounds have ended by
        `outer_tol`, and `status_` is `Status.CONVERGED`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import UnsupervisedIKDR
    >>> X, _ = load_wine(return_X_y=True)
    >>> UnsupervisedIKDR(3).fit_predict(X).shape
    (178,)
    """


@dataclass(eq=False, repr=False)
class AlternativeIKDR(ClusteringIKDR):
    """Interpretable kernel dimension reduction for a clustering that avoids given labels.

    As `UnsupervisedIKDR`, but W also makes `X W` depend as little as possible on the given labels:
    `Gamma = Omega / tr Omega - mu H Y Y^T H / tr(H Y Y^T H)`, `Omega = D^-1/2 U U^T D^-1/2`. The
    first W comes from the labels alone. `fit` takes one label for each row, none missing; -1 is a
    label like any other. If y has several columns (n, t), each is a clustering to avoid, with a
    part `-mu ...` of its own.

    Parameters
    ----------
    mu : float, default 30.0
        Weight of avoiding the labels, relative to the new clusters. Both parts of Gamma have trace
        one, whatever the number of rows, clusters and classes. (The published ones are not
        normalised.) The part of the labels is spread over as many directions as there are classes,
        so `mu` must be well above 1. On the Face data, `mu=1` finds the twenty persons again, and
        `mu` from 20 up finds the poses.
    n_clusters, n_components, kernel, solver, engine, standardize, missing, graph, outer_tol, \
max_outer, rotation, random_state
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    The same as those of `UnsupervisedIKDR`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import AlternativeIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> AlternativeIKDR(3).fit(X, y).labels_.shape
    (178,)
    """

    mu: float = field(default=AVOID_WEIGHT, kw_only=True)

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:
        return labels_to_avoid(y, n, positive_float("`mu`", self.mu))


@dataclass(eq=False, repr=False)
class SemiSupervisedIKDR(ClusteringIKDR):
    """Interpretable kernel dimension reduction for clustering, with scores of some of the rows.

    As `UnsupervisedIKDR`, but W makes `X W` depend on the scores of experts e as well:
    `Gamma = Omega / tr Omega + mu sum_e H K_e H / tr(H K_e H)`, `Omega = D^-1/2 U U^T D^-1/2`.
    In each round, a regression on the embedding predicts the scores of the rows that have none.
    `fit` takes labels or scores (n,), or those of t experts (n, t), also as a frame: NaN, None or
    pandas' NA marks a row that the expert has not scored; for classes so does -1, as elsewhere in
    scikit-learn.

    Parameters
    ----------
    mu : float, default 1.0
        Weight of the scores of each expert, relative to the clusters. All parts of Gamma have trace
        one, whatever the number of rows, clusters and classes.
    target : {"auto", "classes", "linear"}, default "auto"
        How to read the scores of each expert: as classes, or as numbers ("linear"). "auto" takes
        labels and whole numbers as classes.
    n_clusters, n_components, kernel, solver, engine, standardize, missing, graph, outer_tol, \
max_outer, rotation, random_state
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    classes_ : (c,) array
        The classes, if the first expert gives classes, no more than there are clusters. Clusters
        0 to c - 1 are then these classes: rows with a given class have its number in `labels_`, and
        pull other rows towards their cluster. `predict` takes the nearest centre for every row, so
        for rows with a given class it can differ from `labels_`.
    All others are the same as those of `UnsupervisedIKDR`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SemiSupervisedIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> scores = np.where(np.arange(178) % 10 == 0, y, np.nan)
    >>> SemiSupervisedIKDR(3, 2, target="classes").fit(X, scores).labels_.shape
    (178,)
    """

    mu: float = field(default=SCORES_WEIGHT, kw_only=True)
    target: str = field(default="auto", kw_only=True)

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:
        return partial_scores(y, n, self.target, positive_float("`mu`", self.mu))

    def _clustered(self, rows: Array, guide: EmbeddingGuide, order: Array | None) -> dict[str, Any]:
        """Return centres and clusters; with fewer classes than clusters, these stay together."""
        groups, classes = (getattr(guide, name, None) for name in ("groups", "classes"))
        if groups is None or classes is None or len(classes) > self.n_clusters:
            return super()._clustered(rows, guide, order)
        centres, labels = seeded_kmeans(rows, groups, self.n_clusters)
        return {
            "cluster_centers_": centres,
            "labels_": in_given_order(labels, order),
            "classes_": classes,
        }
