"""Colored maximum variance unfolding: coordinates that keep neighbours and depend on y."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ism_dask._types import Array
from ism_dask._validation import (
    check_bool,
    check_choice,
    check_open_interval,
    check_positive_int,
    check_seed,
    positive_float,
)
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.estimators.base import RowTransformer
from ism_dask.estimators.checks import check_rows
from ism_dask.estimators.placement import Placement
from ism_dask.estimators.row_order import in_given_order
from ism_dask.estimators.unfolding_input import (
    SIDE_TARGETS,
    check_memory,
    checked_side,
    in_units_of,
    nodes_of_rows,
    side_kernel,
    sizes,
    unfolding_rows,
    unfolding_seed,
)
from ism_dask.estimators.unfolding_neighbours import (
    EUCLIDEAN,
    PRECOMPUTED,
    Neighbours,
    checked_distances,
    neighbours_by_distances,
    neighbours_of_rows,
)
from ism_dask.rows.devices import on_this_host
from ism_dask.status import ComponentsWarning, Status
from ism_dask.unfolding.ascent import along_principal_axes
from ism_dask.unfolding.neighbour_graph import (
    length_error,
    matrix_of_edges,
    squared_length_errors,
)
from ism_dask.unfolding.program import Scales
from ism_dask.unfolding.unfold import Unfolding, unfold

# Beyond these weights, one term of the objective over- or underflows.
_WEIGHTS = (1e-100, 1e100)


class _UnfoldingAttributes(RowTransformer):
    """Declares the fitted attributes that the methods of `ColoredMVU` read."""

    embedding_: Array
    eigenvalues_: Array
    arbitrary_eigenvectors_: bool
    status_: Status
    n_iter_: int
    duality_gap_: float
    _placement: Placement | None


@dataclass(eq=False, repr=False)
class ColoredMVU(_UnfoldingAttributes):
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
    target : {"auto", "classes", "labels", "linear", "gaussian", "multiscale", "factor", \
"precomputed"}, default "auto"
        How to read y. "factor": y (n, r) is a thin factor of the kernel, `L = y y^T`, such as a
        table of which author wrote which paper. "precomputed": y (n, n) is the kernel L itself,
        positive semi-definite once it is centred. All others are as in `SupervisedIKDR`.
    metric : {"euclidean", "precomputed"}, default "euclidean"
        "precomputed": X holds distances, of all pairs of rows as an array (n, n), or of neighbours
        alone as a sparse array, such as `kneighbors_graph(mode="distance")` of scikit-learn. There
        are no columns to standardise then, `transform` is refused, and so are graphs in parts.
    n_neighbors : int, optional
        Number of nearest rows that are neighbours of a row. Default: 10, or all other rows if there
        are fewer.
    n_eigenvectors : int, optional
        Number m of columns of V, at most 30. Default: 20, or fewer below 40 rows. Symmetric data
        have several equally smooth functions: V has all of them or none, whichever is nearer to m.
    nu : float, default 1
        Weight of the distances. Larger values keep them better; smaller ones show more of y.
        `scales_` is such that both terms weigh alike at 1, whatever the number of rows and the
        units of X and y.
    standardize : bool, default True
        Whether to scale the columns to mean 0 and standard deviation 1 first. Not for columns that
        all have one unit, such as coordinates or pixels.
    refine : bool, default True
        Whether to refine the coordinates, which keeps distances better. Otherwise they are the
        leading eigenvectors of K, which are smooth functions of the row.
    max_iter : int, default 5000
        Maximum number of its steps.
    random_state : int, RandomState or None, default None
        Seed of the start of the search for V. None is a fixed seed.

    Attributes
    ----------
    embedding_ : (n, q) array
        The coordinates along their principal axes, in units of deviations, or of X if it is not
        standardised; the largest entry of each column is positive. Columns that would not raise
        the objective are 0, with a `ComponentsWarning`.
    eigenvalues_ : (m,) array, or longer or shorter where functions are equally smooth
        The eigenvalues of K = V A V^T, in descending order: the variance along each axis, times the
        number of different rows. If few are large, a picture with as many axes shows nearly all.
    distance_error_ : float
        Root mean square error of the distances of neighbours in `embedding_`, as a share of the
        root mean square of these distances.
    hsic_ : float
        Correlation of the kernels `Z Z^T` of the coordinates and L, from 0 to 1: HSIC, divided by
        the most that it could be, and its root. Without y, L is the centred identity.
    duality_gap_ : float
        Bound on how far `program_objective_` is from the maximum over A, as a share of what it
        gains over A = 0.
    program_objective_ : float
        The objective at K = V A V^T.
    objective_ : float
        The objective at K = Z Z^T, with Z the coordinates.
    scales_ : Scales
        The numbers `gain` and `penalty` of the objective.
    extension_error_ : float
        How far `transform` puts the different rows of the fit from their coordinates if a row is
        not among its neighbours: root mean square, as a share of the deviation of the coordinates.
        Rows that the fit has not seen may be placed less well.
    edge_weights_ : (n, n) sparse array
        How strongly each pair of neighbours pulls together, or pushes apart if negative: the
        multiplier `2 penalty (|z_i - z_j|^2 - d_ij^2)` of its distance. At a maximum, the forces
        balance those of y: `L Z / gain` is the graph Laplacian of these weights, times Z. Equal
        rows are one node, and the first of them has its weights.
    n_iter_ : int
        Number of steps of the refinement, 0 without it.
    converged_ : bool
        Whether the program is solved, with `duality_gap_` at most 1e-8, and the refinement came to
        coordinates at which the objective is stationary. No use of a free axis was then found that
        raises it by more than a millionth of its terms.
    status_ : Status
        How the fit ended.
    n_neighbors_ : int
        Number of nearest rows that are neighbours of a row.
    arbitrary_eigenvectors_ : bool
        Whether more functions than V could have were equally smooth and rounding chose among them.
        A warning then says so: another choice may give another picture.
    exact_neighbors_ : bool
        Whether the nearest rows are exact. With more than 15 columns and so many rows that they
        would take tens of minutes, such as 200,000 of 784, pynndescent finds most of them, if it is
        installed (`pip install ism-dask[neighbors]`).
    mean_, scale_ : (d,) arrays
        Mean and scale of each column: distances are those of `(X - mean_) / scale_`. None, as
        `extension_error_`, if distances were given.
    n_edges_ : int
        Number of pairs of neighbours; equal rows are one.
    part_sizes_ : tuple of int
        Sizes of the connected parts of the graph of neighbours before they were joined, largest
        first.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : (d,) array
        Their names, if X was a frame.

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
    metric: str = EUCLIDEAN
    n_neighbors: int | None = None
    n_eigenvectors: int | None = None
    nu: float = 1.0
    standardize: bool = True
    refine: bool = True
    max_iter: int = 5000
    random_state: Any = None

    def __sklearn_tags__(self) -> Tags:
        """Declare that X may be sparse, or distances."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == PRECOMPUTED
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the coordinates of the rows of X.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set
            Rows, or distances as `metric` says. Read into memory; the workers of an active Dask
            client search the neighbours and compute the sums over edges.
        y : (n,) or (n, t) labels or numbers, (n, r) factor, (n, n) kernel, or None
            Side information, read as `target` says. A factor or kernel may be sparse; it is made
            dense.

        Returns
        -------
        The estimator itself.
        """
        self._check_parameters()
        rows = unfolding_rows(self, X)
        X = check_rows(self, rows, ensure_min_features=1)
        validate_data(self, rows, skip_check_array=True)
        if self.metric == PRECOMPUTED:
            X = checked_distances(X)
        target = checked_side(on_this_host(y), X.shape[0], self.target)
        with single_threaded_blas():
            self.__dict__.update(self._unfolded(X, target))
        self._warn_about_fit()
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the coordinates of the rows of X and return them.

        Returns
        -------
        (n, q) array or frame, as `set_output` says. `transform` of the same rows gives the same.
        """
        return self.fit(X, y).embedding_

    def transform(self, X: Any) -> Any:
        """Return coordinates of X, each from those of its nearest neighbours among the fitted rows.

        A row is written as a weighted mean of its neighbours, as nearly as possible. Its
        coordinates are the same weighted mean of theirs; or the mean of theirs, which is Nystrom's
        formula for smooth functions on the graph, plus the weighted mean of `corrections_`.
        `extension_error_` says how well this does.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set

        Returns
        -------
        (n, q) array or frame, as `set_output` says.
        """
        check_is_fitted(self)
        return self._rowwise(X, self._placed, self.embedding_.shape[1])

    def _unfolded(self, X: Any, y: Any) -> dict[str, Any]:
        """Return the fitted attributes for rows or distances X and y (n,) or (n, t)."""
        seed, known = unfolding_seed(self.random_state), self.metric == PRECOMPUTED
        first, order, node = [np.arange(X.shape[0])] * 3 if known else nodes_of_rows(X, y)
        side = side_kernel(X.shape[0], None if y is None else y[order], self.target)
        check_memory(self, X, side.n_columns)
        q, k, m = sizes(self, len(first))
        if known:
            neighbours = neighbours_by_distances(X, k)
        else:
            neighbours = neighbours_of_rows(self, X, first, order, k=k, seed=seed)
        graph, exponent = neighbours.graph, neighbours.exponent
        unfolding = unfold(
            graph,
            side.summed(node, len(first)),
            q=q,
            m=m,
            nu=float(self.nu),
            max_iter=self.max_iter if self.refine else 0,
            seed=seed,
        )
        Y = along_principal_axes(unfolding.refined.Y, np.bincount(node))
        pulls = 2.0 * unfolding.program.penalty * squared_length_errors(graph, Y)
        with np.errstate(over="ignore", under="ignore"):  # in extreme units
            pulls = np.ldexp(pulls, -2 * exponent)
        embedding = in_given_order(in_units_of(X, exponent, Y)[node], order)
        return {
            "mean_": neighbours.mean,
            "scale_": neighbours.scale,
            "embedding_": embedding,
            "hsic_": side.correlation(Y[node]),
            "n_neighbors_": k,
            "exact_neighbors_": neighbours.exact,
            "distance_error_": length_error(graph, Y),
            "n_edges_": graph.n_edges,
            "part_sizes_": graph.part_sizes,
            **_extension(neighbours, embedding, first, order, node),
            **self._solution(unfolding, exponent),
            "edge_weights_": matrix_of_edges(graph, pulls, first, X.shape[0]),
        }

    def _placed(self, X: Array) -> Array:
        """Return the coordinates (b, q) of rows X (b, d), or raise a ValueError."""
        if self._placement is None:
            raise ValueError(
                "`transform` writes a row as a weighted mean of rows of the fit, and "
                "metric='precomputed' gives a fit no rows; expected the rows of the fit alone, "
                "whose coordinates are `embedding_`, or a fit to rows"
            )
        placed = self._placement(X)
        far = np.flatnonzero(np.isnan(placed).any(axis=1))
        if len(far):
            raise ValueError(
                f"{len(far)} rows of X, the first number {far[0]}, are so far from all rows of the "
                "fit that their distances overflow; correct them, or leave them out"
            )
        return placed

    def _solution(self, unfolding: Unfolding, unit: int) -> dict[str, Any]:
        """Return the fitted attributes of an unfolding in units of a power of 2."""
        refined, program = unfolding.refined, unfolding.program
        with np.errstate(over="ignore", under="ignore"):  # fourth powers of extreme units
            eigenvalues = np.ldexp(unfolding.eigenvalues, 2 * unit)
            gain, penalty = np.ldexp([program.gain, program.penalty], [2 * unit, -4 * unit])
        status = Status.CONVERGED
        if not unfolding.exact:
            status = Status.UNCERTIFIED
        elif not refined.stationary:
            at_limit = refined.n_iter == self.max_iter
            status = Status.MAX_ITER if at_limit else Status.ROUNDING
        return {
            "eigenvalues_": eigenvalues,
            "arbitrary_eigenvectors_": unfolding.arbitrary,
            "scales_": Scales(float(gain), float(penalty)),
            "duality_gap_": program.gap,
            "program_objective_": program.objective,
            "objective_": unfolding.value,
            "n_iter_": refined.n_iter,
            "status_": status,
            "converged_": status is Status.CONVERGED,
        }

    def _warn_about_fit(self) -> None:
        """Warn of axes that are not used, and of a fit that has not converged."""
        q, used = self.embedding_.shape[1], int(self.embedding_.any(axis=0).sum())
        if used < q:
            warnings.warn(
                f"{type(self).__name__} uses {used} of {q} axes; the others are 0, since none was "
                f"found to raise the objective at `nu` = {self.nu:g}. Raise `nu` to keep distances "
                "better, which takes more axes",
                ComponentsWarning,
                stacklevel=3,
            )
        if self.arbitrary_eigenvectors_:
            warnings.warn(
                f"more than {len(self.eigenvalues_)} functions on the graph of neighbours are "
                "equally smooth, and rounding chose among them: another choice may give another "
                "picture. Raise `n_eigenvectors`, or take another `n_neighbors`",
                UserWarning,
                stacklevel=3,
            )
        if not self.status_.is_requested:
            warnings.warn(
                f"{type(self).__name__} {self.status_.meaning} in {self.n_iter_} steps of the "
                f"refinement, with a duality gap of {self.duality_gap_:.2g}; "
                f"{self.status_.advice}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_parameters(self) -> None:
        check_choice("`target`", self.target, SIDE_TARGETS)
        check_choice("`metric`", self.metric, (EUCLIDEAN, PRECOMPUTED))
        check_seed(self.random_state)
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


def _extension(
    neighbours: Neighbours, embedding: Array, first: Array, order: Array, node: Array
) -> dict[str, Any]:
    """Return the fitted attributes of how new rows are placed; None without rows to place them."""
    if neighbours.placement is None:
        return dict.fromkeys(("_placement", "extension_error_", "corrections_"))
    positions = np.ldexp(embedding[first].astype(np.float64), -neighbours.exponent)
    placement, error = neighbours.placement(positions).fitted(neighbours.graph.neighbours)
    corrections = placement.corrections
    if corrections is not None:
        corrections = in_given_order(np.ldexp(corrections, neighbours.exponent)[node], order)
    return {"_placement": placement, "extension_error_": error, "corrections_": corrections}
