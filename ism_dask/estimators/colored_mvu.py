"""Colored maximum variance unfolding: coordinates that keep neighbours and depend on y."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ism_dask._types import Array
from ism_dask._validation import (
    check_bool,
    check_choice,
    check_open_interval,
    check_positive_int,
    positive_float,
)
from ism_dask.estimators.base import RowTransformer
from ism_dask.estimators.input_rows import (
    check_rows,
    distinct_rows,
    in_given_order,
    row_order,
    without_gaps,
)
from ism_dask.estimators.unfolding_input import (
    SIDE_TARGETS,
    all_rows_in_memory,
    checked_side,
    mean_and_deviation,
    side_kernel,
    sizes,
)
from ism_dask.gamma.row_values import on_this_host
from ism_dask.status import ComponentsWarning, Status
from ism_dask.threads import single_threaded_blas
from ism_dask.unfolding.nearest_rows import Placement, precision
from ism_dask.unfolding.neighbour_graph import neighbour_graph, smooth_basis
from ism_dask.unfolding.program import GAP, Scales, correlation_with, solved_program
from ism_dask.unfolding.refinement import CoordinateObjective, along_principal_axes, refine
from ism_dask.words import count_noun

# Beyond these weights, coordinates leave the range of single precision.
_WEIGHTS = (1e-20, 1e20)
# Eigenvalues of K that are a smaller share of the largest are 0.
_ROUNDING = 1e-12


class _Unfolded(RowTransformer):
    """Declares the fitted attributes that the methods of `ColoredMVU` read."""

    embedding_: Array
    _placement: Placement


@dataclass(eq=False, repr=False)
class ColoredMVU(_Unfolded):
    """Colored maximum variance unfolding: a picture of X that keeps neighbours and shows y.

    Finds coordinates of the rows that keep the distances between neighbouring rows and depend as
    strongly as possible on side information y (Song, Smola, Borgwardt and Gretton, 2007). Without
    y it is plain maximum variance unfolding: the coordinates vary as much as neighbours allow.

    It maximises `tr(K L) / gain - penalty * sum (K_ii + K_jj - 2 K_ij - d_ij^2)^2` over positive
    semi-definite K, where L is the centred kernel of y and the sum runs over pairs of neighbours
    with their distances d_ij. K is `V A V^T` with V the smoothest functions on the graph of
    neighbours, and A a small matrix from a semi-definite program. Steps on the coordinates
    themselves then refine the leading eigenvectors of K.

    Parameters
    ----------
    n_components : int, default 2
        Number of coordinates q.
    target : {"auto", "classes", "labels", "linear", "gaussian", "multiscale", "factor"}, \
default "auto"
        How to read y. "factor": y (n, r) is a thin factor of the kernel, `L = y y^T`, such as a
        table of which author wrote which paper. Of a kernel L, `vectors * np.sqrt(values.clip(0))`
        of `values, vectors = scipy.linalg.eigh(L)` is one. All others are as in `SupervisedIKDR`.
    n_neighbors : int, optional
        Number of nearest rows that are neighbours of a row. Default: 10.
    n_eigenvectors : int, optional
        Number m of columns of V, at most 30. Default: 20, or fewer below 40 rows. V has all of
        several equally smooth functions or none, whichever is nearer to m.
    nu : float, default 1
        Weight of the distances. Larger values keep them better; smaller ones show more of y. Both
        terms weigh alike at 1, whatever the number of rows and the units of X and y.
    standardize : bool, default True
        Whether to scale the columns to mean 0 and standard deviation 1 first. Not for columns that
        all have one unit, such as coordinates or pixels.
    missing : {"mean"} or None, default None
        What to do about gaps in X, as in `PredictiveIKDR`.
    refine : bool, default True
        Whether to refine the leading eigenvectors of K, which keeps distances better.
    max_iter : int, default 5000
        Maximum number of steps of the refinement.

    Attributes
    ----------
    embedding_ : (n, q) array
        The coordinates Z along their principal axes, in units of deviations, or of X if it is not
        standardised; the largest entry of each column is positive. Columns of axes that K leaves
        empty are 0, with a `ComponentsWarning`.
    eigenvalues_ : (m,) array, or longer or shorter where functions are equally smooth
        Those of K = V A V^T, descending: variances along its axes, times the different rows.
    distance_error_ : float
        Root mean square error of the distances of neighbours, as a share of their root mean square.
    hsic_ : float
        Root of HSIC of the kernels `Z Z^T` and L as a share of the most that it could be, from 0 to
        1. Without y, L is the centred identity.
    objective_, program_objective_ : float
        The objective at K = Z Z^T, and at K = V A V^T.
    duality_gap_ : float
        Bound on what `program_objective_` lacks, as a share of what it gains over A = 0.
    scales_ : Scales
        The numbers `gain` and `penalty` of the objective.
    edge_weights_ : (n, n) sparse array
        How strongly each pair of neighbours pulls together, or pushes apart if negative: the
        multiplier `2 penalty (|z_i - z_j|^2 - d_ij^2)` of its distance. At a maximum, the forces
        balance those of y: `L Z / gain` is the graph Laplacian of these weights, times Z. Equal
        rows are one node, and the first of them has its weights.
    converged_, status_, n_iter_ : bool, Status, int
        Whether the program is solved, with `duality_gap_` at most 1e-8, and the objective is
        stationary at `embedding_`; how the fit ended; and the number of steps of the refinement.
    mean_, scale_ : (d,) arrays
        Distances are those of `(X - mean_) / scale_`.
    gap_means_, gap_counts_ : (d,) arrays or None
        As in `PredictiveIKDR`.
    n_neighbors_, n_edges_, part_sizes_ : int, int, tuple of int
        Numbers of neighbours of a row and of pairs of neighbours; sizes of the parts of their graph
        before they were joined, largest first. Equal rows are one.
    n_features_in_, feature_names_in_ : int, (d,) array
        Number of columns of X, and their names if X was a frame.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import ColoredMVU
    >>> X, y = load_wine(return_X_y=True)
    >>> ColoredMVU().fit_transform(X, y).shape
    (178, 2)
    """

    n_components: int = 2
    _: KW_ONLY
    target: str = "auto"
    n_neighbors: int | None = None
    n_eigenvectors: int | None = None
    nu: float = 1.0
    standardize: bool = True
    missing: str | None = None
    refine: bool = True
    max_iter: int = 5000

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the coordinates of the rows of X.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set
            Rows, which are read into memory.
        y : (n,) or (n, t) labels or numbers, (n, r) factor, or None
            Side information, read as `target` says. A factor may be sparse.
        """
        self._check_parameters()
        rows = all_rows_in_memory(X)
        X = check_rows(self, rows, ensure_min_features=1)
        X, gaps = without_gaps(self.missing, X, getattr(rows, "columns", ()))
        validate_data(self, rows, skip_check_array=True)
        target = checked_side(on_this_host(y), X.shape[0], self.target)
        with single_threaded_blas():
            fitted = self._unfolded(X, target)
        self.__dict__.update(fitted | gaps)
        q, used = self.embedding_.shape[1], int(self.embedding_.any(axis=0).sum())
        if used < q:
            warnings.warn(
                f"{type(self).__name__} uses {used} of {q} axes; the others are 0, since the "
                f"unfolding has no variance there at `nu` = {self.nu:g}. Raise `nu` to keep "
                "distances better, which takes more axes",
                ComponentsWarning,
                stacklevel=2,
            )
        status: Status = fitted["status_"]
        if not status.is_expected:
            steps, gap = count_noun(fitted["n_iter_"], "step"), fitted["duality_gap_"]
            warnings.warn(
                f"{type(self).__name__} {status.meaning} in {steps} of the refinement, with a "
                f"duality gap of {gap:.2g}; {status.advice}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the coordinates of the rows of X and return them, as `transform` of X does."""
        return self.fit(X, y).embedding_

    def transform(self, X: Any) -> Any:
        """Return coordinates of X, each from those of its nearest neighbours among the fitted rows.

        A row is written as a weighted mean of its neighbours, as nearly as possible. Its
        coordinates are the same weighted mean of theirs.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set

        Returns
        -------
        (n, q) array or frame, as `set_output` says.
        """
        check_is_fitted(self)
        return self._rowwise(X, self._placement, self.embedding_.shape[1])

    def _unfolded(self, X: Any, y: Array | None) -> dict[str, Any]:
        """Return the fitted attributes for rows X and y (n,) or (n, t)."""
        n = X.shape[0]
        # Equal rows are one node of the graph. All sums are over rows in an order of their own, so
        # that they are the same in any; y orders equal rows.
        first, node = distinct_rows(X)
        order = np.arange(n) if (by_y := row_order(X, y)) is None else by_y
        order = order[np.argsort(node[order], kind="stable")]
        node = node[order]
        given = self.n_components, self.n_neighbors, self.n_eigenvectors
        q, k, m = sizes(len(first), *given)
        mean, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.standardize:
            mean, scale = mean_and_deviation(X[order])
        placement = Placement.among(X[first], scale, k)
        graph = neighbour_graph(placement.search.rows, placement.search.nearest_others())

        # The program for K, its leading eigenvectors as coordinates, and the refinement of these.
        side = side_kernel(n, None if y is None else y[order], self.target)
        nodes, nu = side.summed(node, len(first)), float(self.nu)
        basis = smooth_basis(graph, m, q)
        program = solved_program(graph, basis, nodes, nu)
        eigenvalues, vectors = (each[..., ::-1] for each in scipy.linalg.eigh(program.A))
        eigenvalues = np.where(eigenvalues > _ROUNDING * eigenvalues[0], eigenvalues, 0.0)
        start = basis.vectors @ (vectors[:, :q] * np.sqrt(eigenvalues[:q]))
        objective = CoordinateObjective(graph, nodes, program)
        max_iter = self.max_iter if self.refine else 0
        refined, stationary, n_iter = refine(objective, start, max_iter)
        status = Status.CONVERGED
        if program.gap > GAP:
            status = Status.UNCERTIFIED
        elif not stationary:
            status = Status.MAX_ITER if n_iter == max_iter else Status.ROUNDING

        Y = along_principal_axes(refined, np.bincount(node))
        embedding = in_given_order(Y[node].astype(precision(X), copy=False), order)
        lengths, distances = np.linalg.norm(graph.along(Y), axis=1), np.sqrt(graph.squared)
        error = np.linalg.norm(lengths - distances) / np.linalg.norm(distances)
        pulls = 2.0 * program.penalty * (lengths**2 - graph.squared)
        upper = csr_array((pulls, (first[graph.heads], first[graph.tails])), shape=(n, n))
        return {
            "mean_": mean,
            "scale_": scale,
            "embedding_": embedding,
            "eigenvalues_": eigenvalues,
            "distance_error_": float(error),
            "hsic_": correlation_with(side, Y[node]),
            "duality_gap_": program.gap,
            "program_objective_": program.objective,
            "objective_": objective.with_gradient(refined)[0],
            "scales_": Scales(program.gain, program.penalty),
            "edge_weights_": csr_array(upper + upper.T),
            "n_iter_": n_iter,
            "status_": status,
            "converged_": status is Status.CONVERGED,
            "n_neighbors_": k,
            "n_edges_": len(graph.heads),
            "part_sizes_": graph.part_sizes,
            "_placement": replace(placement, positions=embedding[first].astype(np.float64)),
        }

    def _check_parameters(self) -> None:
        check_choice("`target`", self.target, SIDE_TARGETS)
        check_open_interval("`nu`", positive_float("`nu`", self.nu), *_WEIGHTS)
        for name in ("standardize", "refine"):
            check_bool(f"`{name}`", getattr(self, name))
        for name in ("n_components", "max_iter"):
            check_positive_int(f"`{name}`", getattr(self, name))
        for name in ("n_neighbors", "n_eigenvectors"):
            if getattr(self, name) is not None:
                check_positive_int(f"`{name}`", getattr(self, name), "or None")

    @property
    def _n_features_out(self) -> int:
        return self.embedding_.shape[1]
