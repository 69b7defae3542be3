"""Base classes of the estimators: shared parameters, fitted attributes and `transform`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    validate_data,
)

from ism_dask._types import Array
from ism_dask._validation import check_bool, check_choice, is_whole
from ism_dask.engines import Engine, EngineOptions, as_engine
from ism_dask.estimators.callbacks import EXTRA_FRAMES, CallbackSupport, FitTask
from ism_dask.estimators.missing_numbers import check_finite_block, check_no_missing
from ism_dask.estimators.preparation import Prepared
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import canonical_signs
from ism_dask.linalg.rotation import ROTATIONS, rotate_components
from ism_dask.linalg.subspaces import subspace_shares
from ism_dask.observe.fit_events import FitPlan, fit_watcher
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import ANGLE, RESIDUAL
from ism_dask.rows.execution import is_dask
from ism_dask.rows.source import is_row_source
from ism_dask.rows.standardise import project
from ism_dask.solvers import Solver, as_solver
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.solvers.options import solver_name
from ism_dask.status import ComponentsWarning, Status


class RowTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Computes new features row by row; `set_output` names their container."""

    n_features_in_: int

    def _rowwise(self, X: Any, function: Callable[[Any], Any], width: int | None) -> Any:
        """Apply `function` to blocks of rows of X (n, d), lazily for a Dask array.

        `width` is the number of columns that `function` returns, in the precision of X; None stands
        for one whole number per row.
        """
        X = row_source(X)
        if is_dask(X):
            self._check_lazy(X)
            dtype = np.float32 if X.dtype == np.float32 else np.float64
            X = X.rechunk({1: -1})
            if width is None:
                return X.map_blocks(function, dtype=np.intp, drop_axis=1)
            return X.map_blocks(function, dtype=dtype, chunks=(X.chunks[0], (width,)))
        if is_row_source(X):
            self._check_lazy(X)
            step = X.chunk_rows
            starts = range(0, X.shape[0], step)
            reads = (X.read(start, min(start + step, X.shape[0])) for start in starts)
            return np.concatenate([function(rows) for rows in reads])
        return function(self._validated(X, dtype=[np.float64, np.float32], reset=False))

    def _validated(self, X: Any, *y: Any, **checks: Any) -> Any:
        """Return X (n, d), and y if it is given, as scikit-learn's `validate_data` does."""
        checks = {"accept_sparse": "csr" if get_tags(self).input_tags.sparse else False, **checks}
        validated = validate_data(self, X, *y, ensure_all_finite="allow-nan", **checks)
        check_no_missing(validated[0] if y else validated)
        return validated

    def _check_lazy(self, X: Any) -> None:
        """Raise a ValueError if rows (n, d) that are not read yet do not fit this estimator."""
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must be of real numbers; got dtype {X.dtype}")
        if len(X.shape) != 2:
            raise ValueError(f"X must have rows and columns; got shape {X.shape}")
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )


class _Projector(RowTransformer):
    """A projection of rows."""

    components_: Array
    mean_: Array
    scale_: Array

    def transform(self, X: Any) -> Any:
        """Return the new features of X, in a frame if `set_output` requests one."""
        return self._new_features(X)

    def _new_features(self, X: Any) -> Any:
        projection = (self.mean_, self.scale_, self.components_)
        return self._rowwise(X, partial(_projected, projection), len(self.components_))

    def inverse_transform(self, Z: Any) -> Any:
        """Return rows with these new features, as near as possible to the mean of the fit.

        Many rows have the same new features. Among them, this is the one that departs least from
        the mean, in units of the deviations: `mean_ + scale_ * Z pinv(components_)^T`. It shows
        what the new features stand for; what they leave out, it does not bring back. `transform`
        of the result is Z. Without standardising, it is the smallest such row.

        Parameters
        ----------
        Z : (n, q) array, frame or Dask array

        Returns
        -------
        (n, d) array; a lazy Dask array for a Dask array.
        """
        check_is_fitted(self)
        q = len(self.components_)
        if not is_dask(Z):
            Z = check_array(Z, dtype=[np.float64, np.float32], input_name="Z")
        if len(Z.shape) != 2 or Z.shape[1] != q:
            raise ValueError(f"Z must have the {q} new features; got shape {Z.shape}")
        rows = Z @ (np.linalg.pinv(self.components_).T * self.scale_) + self.mean_
        return rows.astype(Z.dtype)


class IKDR(CallbackSupport, _Projector, auto_wrap_output_keys=None):  # type: ignore[call-arg]  # scikit-learn has no types
    """A projection `(X - mean_) / scale_ @ components_.T`, learned by the spectral iteration."""

    kernel: str | Kernel
    solver: str | Solver
    engine: str | EngineOptions
    standardize: bool
    rotation: str | None
    random_state: Any

    def transform(self, X: Any) -> Any:
        """Return the new features of X.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set

        Returns
        -------
        (n, q) array or frame, as `set_output` says; always a lazy Dask array for a Dask array.
        """
        check_is_fitted(self)
        # To put a lazy array into a frame would compute all of it.
        return self._new_features(X) if is_dask(X) else super().transform(X)

    def fit_transform(self, X: Any, y: Any = None, **parameters: Any) -> Any:
        """Learn the projection from the rows of X and return their new features."""
        if is_dask(X):
            return self.fit(X, y, **parameters).transform(X)
        return super().fit_transform(X, y, **parameters)

    @property
    def feature_importances_(self) -> Array:
        """The share (d,) of each feature in the space of the new features, all together 1.

        Unlike the weights of one new feature, the shares do not change if W is rotated within its
        space. They compare features in units of their standard deviation. `SelectFromModel` of
        scikit-learn selects by them.
        """
        check_is_fitted(self)
        return subspace_shares(self.components_)

    def get_support(self, indices: bool = False) -> Array:
        """Return which features have a weight in any new feature.

        Parameters
        ----------
        indices : bool, default False
            Whether to return the indices of these features.

        Returns
        -------
        (d,) boolean array, or the ascending indices (k,).
        """
        check_is_fitted(self)
        support = (self.components_ != 0).any(axis=0)
        return np.flatnonzero(support) if indices else support

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _set_n_features(self, X: Any) -> None:
        """Check the shape of rows that scikit-learn cannot inspect, and set `n_features_in_`."""
        if len(X.shape) != 2 or min(X.shape) < 2:
            raise ValueError(f"X must have 2 rows and 2 features or more; got shape {X.shape}")
        # The feature names of an earlier fit do not hold for these columns.
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = int(X.shape[1])
        self._check_lazy(X)

    def _warn_about_fit(self, solution: Solution, advice: str) -> None:
        """Warn if the fit has not converged, and pass on `advice` on the number of new features."""
        self.components_advice_ = advice
        depth = 4 + EXTRA_FRAMES
        if fit_watcher().reports_endings:
            return
        if advice:
            warnings.warn(f"{type(self).__name__}: {advice}", ComponentsWarning, stacklevel=depth)
        status, n_iter = solution.status, solution.n_iter
        if status.is_requested:
            return
        after = "in" if status is Status.MAX_ITER else "after"
        warnings.warn(
            f"{type(self).__name__} {status.meaning} {after} {n_iter} iterations: "
            f"{self._residual_in_words(solution)}. The best W so far is returned; {status.advice}",
            ConvergenceWarning,
            stacklevel=depth,
        )

    def _residual_in_words(self, solution: Solution) -> str:
        """Return in words how far a solution is from the limits of its solver."""
        residual = f"the residual is {solution.residual:.2g}"
        if not self._solver.ends_by_change:
            return residual
        stopping = self._solver.stopping
        last = solution.history[-1]
        turned = f"the last step turned W by an angle whose sine is {last.angle:.2g}"
        if stopping.tol is None:
            return f"{residual}, {turned}; {RESIDUAL:g} and {ANGLE:g} were to be reached"
        angle = f", `angle_tol` {stopping.angle_tol:g}" if stopping.angle_tol else ""
        change = f"changed the eigenvalues by {last.change:.2g}; `tol` is {stopping.tol:g}{angle}"
        return f"{residual}, {turned} and {change}"

    @property
    def _solver(self) -> Solver:
        return as_solver(self.solver)

    @property
    def _engine(self) -> EngineOptions:
        return as_engine(self.engine)

    def _search_with(self, prepared: Prepared) -> MultistartSearch:
        """Return the search for W that reports iterations on the prepared rows."""
        return MultistartSearch(
            engine=self._engine,
            stopping=self.plan.iterations,
            solver=self._solver,
            on_iteration=partial(self._report_state, prepared),
        )

    @property
    def plan(self) -> FitPlan:
        """The stopping rules of the fit."""
        return FitPlan(self._solver.stopping)

    def _report_state(self, prepared: Prepared, state: State) -> None:
        fit_watcher().on_iteration(state)
        task: FitTask | None = getattr(self, "_fit_task", None)
        if task is not None:
            task.on_iteration(partial(self._projection_of, state.current.W, prepared))

    def _set_engine_attributes(self, engine: Engine, solution: Solution) -> None:
        self.solver_ = solver_name(self._solver)
        self.residual_ = solution.residual
        self.residual_rows_ = solution.residual_rows
        self.tolerance_ = self.plan.iterations.limit
        self.engine_ = engine.name
        self.engine_note_ = engine.note
        self.engine_error_ = solution.error
        self.certificate_ = solution.certificate

    def _rotated(self, solution: Solution, prepared: Prepared) -> Solution:
        """Return `solution` with W rotated as `rotation` says; the eigengap keeps its meaning."""
        if self.rotation is None:
            return solution
        outside = float(solution.eigenvalues[-1]) - solution.eigengap
        components = prepared.lift(solution.W.T)
        rotation, values = rotate_components(components, solution.eigenvalues)
        return replace(
            solution,
            W=solution.W @ rotation,
            product=solution.product @ rotation,
            eigenvalues=values,
            eigengap=float(values[-1]) - outside,
        )

    def _set_solution_attributes(self, solution: Solution, prepared: Prepared) -> None:
        for name, array in self._projection_of(solution.W, prepared).items():
            setattr(self, name, array)
        self.eigenvalues_ = solution.eigenvalues
        self.eigengap_ = solution.eigengap
        self.objective_ = solution.objective
        self.n_iter_ = solution.n_iter
        self.status_ = solution.status
        self.converged_ = solution.status is Status.CONVERGED
        self.history_ = solution.history

    def _projection_of(self, W: Array, prepared: Prepared) -> dict[str, Array]:
        """Return the attributes that `transform` needs, for W in the space of prepared rows."""
        d = self.n_features_in_
        return {
            "components_": canonical_signs(prepared.lift(W.T).T).T,
            "mean_": prepared.affine.mean if self.standardize else np.zeros(d),
            "scale_": prepared.affine.scale if self.standardize else np.ones(d),
        }

    def _resolve_n_components(
        self, n_components: int | str | None, default: int, prepared: Prepared
    ) -> int:
        """Return q: the given number, or `default`, limited by the directions of the rows."""
        d, largest = self.n_features_in_, prepared.n_varying - 1
        if largest < 1:
            raise ValueError(
                f"X varies in {largest + 1} direction only; there is nothing to reduce"
            )
        if n_components is None or n_components == "auto":
            return min(default, largest)
        if not is_whole(n_components) or not 1 <= n_components < d:
            raise ValueError(
                f"`n_components` must be a whole number from 1 to {d - 1} for {d} features, "
                f'"auto" or None; got {n_components!r}'
            )
        return int(n_components)

    def _check_parameters(self) -> None:
        # Both raise a ValueError if a parameter is out of range.
        as_engine(self.engine)
        _ = self._solver
        check_bool("`standardize`", self.standardize)
        if self.rotation is not None:
            check_choice("`rotation`", self.rotation, ROTATIONS)


def row_source(X: Any) -> Any:
    """Return the rows of an opened data set; return anything else unchanged."""
    rows = getattr(X, "X", None)
    return rows if rows is not None and is_row_source(rows) else X


def _projected(projection: tuple[Array, Array, Array], X: Array) -> Array:
    check_finite_block(X)
    return project(X, *projection)
