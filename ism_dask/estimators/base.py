"""Base classes of the estimators: parameters, attributes, `transform`, reports of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import assert_all_finite, check_array, check_is_fitted, validate_data

from ism_dask._types import Array
from ism_dask._validation import check_bool, check_choice, check_seed
from ism_dask.engines import EngineOptions
from ism_dask.estimators.input_rows import (
    FILL_MEAN,
    array_checks,
    check_lazy,
    check_no_gaps,
    is_lazy,
    row_source,
)
from ism_dask.gamma.row_values import Device, is_foreign, on_host, on_this_host, readable
from ism_dask.kernels import Kernel
from ism_dask.linalg.subspaces import ROTATIONS, subspace_shares
from ism_dask.observe import fit_watcher
from ism_dask.records.fit_report import Certificate, FitReport
from ism_dask.records.iteration import ANGLE, RESIDUAL, Record, StoppingOfRounds
from ism_dask.rows.execution import is_dask
from ism_dask.rows.raw import column_contributions, filled, project
from ism_dask.selection.sample import Setting
from ism_dask.solvers import ISM, Solver
from ism_dask.solvers.base import as_solver, check_serves
from ism_dask.status import ComponentsWarning, Status, WeightsWarning
from ism_dask.words import count_noun

if TYPE_CHECKING:
    import pandas as pd

# The types of numbers that rows are computed in.
_FLOATS = [np.float64, np.float32]
# The most pairs of columns that a warning names.
_PAIRS = 3


class RowTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Computes new features row by row; `set_output` names their container."""

    missing: str | None
    n_features_in_: int
    gap_means_: Array | None

    def __sklearn_tags__(self) -> Tags:
        """Declare that float32 stays float32, and that rows may be sparse, and may have gaps."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == FILL_MEAN
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _rowwise(self, X: Any, function: Callable[[Any], Any], *shape: int) -> Any:
        """Apply `function` to blocks of rows of X (n, d), lazily for a Dask array.

        `shape` is that of what `function` returns for a row, in the precision of X; without it, it
        returns one whole number for a row.
        """
        X, means = row_source(X), self.gap_means_
        names = getattr(self, "feature_names_in_", ())
        means = None if means is None else on_host(means)
        function = partial(_on_complete_rows, function, means, names)
        if not is_lazy(X):
            checks = array_checks(self)
            X = validate_data(self, readable(X), reset=False, **checks, dtype=_FLOATS)
            return function(X)
        check_lazy(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        if is_dask(X):
            X = X.rechunk({1: -1})
            if not shape:
                return X.map_blocks(function, dtype=np.intp, drop_axis=1)
            dtype = np.float32 if X.dtype == np.float32 else np.float64
            chunks, further = (X.chunks[0], *shape), [*range(2, 1 + len(shape))]
            return X.map_blocks(function, dtype=dtype, chunks=chunks, new_axis=further)
        n, step = X.shape[0], X.chunk_rows
        reads = (X.read(start, min(start + step, n)) for start in range(0, n, step))
        return np.concatenate([function(rows) for rows in reads])


class _Projector(RowTransformer):
    """A projection of rows."""

    components_: Array
    mean_: Array
    scale_: Array

    def transform(self, X: Any) -> Any:
        """Return the new features of X, in a frame if `set_output` requests one."""
        return self._new_features(X)

    def explain(self, X: Any) -> Any:
        """Return what each column of X adds to each new feature of each row.

        Entry (i, j, k) is `(X[i, j] - mean_[j]) / scale_[j] * components_[k, j]`. The sum over the
        columns is `transform(X)`, and nothing is estimated; a column adds 0 where it is `mean_`, 0
        with standardize=False. Columns are in the order of `feature_names_in_`, new features in
        that of `get_feature_names_out()`. `ism_dask.plot.row` draws those of one row.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set

        Returns
        -------
        (n, d, q) array, in the precision of `transform(X)`; a lazy Dask array for a Dask array.
        """
        check_is_fitted(self)
        return self._affine(X, column_contributions, "explain", self.n_features_in_)

    def _new_features(self, X: Any) -> Any:
        return self._affine(X, project, "transform")

    def _affine(self, X: Any, function: Callable[..., Array], method: str, *columns: int) -> Any:
        """Return a function (n, *columns, q) of X and the map of the fit, for a `method`."""
        here, there = map(Device.of_array, (self.components_, row_source(X)))
        if here != there:
            of_fit, of_rows = ("NumPy" if each is None else each.title for each in (here, there))
            raise ValueError(
                f"rows for {type(self).__name__}.{method}() must use the same namespace and "
                f"device as those of the fit: they are of {of_rows}, the fit is of {of_fit}; move "
                "the rows, or take `on_host()`, the estimator in arrays of NumPy"
            )
        mean, scale, W = map(on_host, (self.mean_, self.scale_, self.components_))
        function = partial(function, mean=mean, scale=scale, components=W)
        computed = self._rowwise(on_this_host(X), function, *columns, len(W))
        return computed if there is None else there.put(computed)

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
        mean, scale, components = map(on_host, (self.mean_, self.scale_, self.components_))
        q, library = len(components), Device.of_array(Z)
        if not is_dask(Z):
            Z = check_array(readable(on_this_host(Z)), dtype=_FLOATS, input_name="Z")
        if len(Z.shape) != 2 or Z.shape[1] != q:
            raise ValueError(f"Z must have the {q} new features; got shape {Z.shape}")
        outwards = np.linalg.pinv(components).T * scale
        rows = (Z @ outwards + mean).astype(Z.dtype)
        return rows if library is None else library.put(rows)


class IKDR(_Projector, auto_wrap_output_keys=None):  # type: ignore[call-arg]  # scikit-learn has no types
    """A projection `(X - mean_) / scale_ @ components_.T`, learned from the rows of a fit."""

    kernel: str | Kernel
    solver: str | Solver
    standardize: bool
    rotation: str | None
    random_state: Any
    # What some of the estimators have, and the others leave as it is.
    engine: str | EngineOptions = "auto"
    max_features: int | str | None = None
    # Fitted attributes; clusterers lack `certificate_` and `_sides`, dependence the last two, too.
    status_: Status
    n_iter_: int
    residual_: float
    history_: tuple[Record, ...]
    kernel_: Kernel
    certificate_: Certificate
    report_: FitReport
    _sides: tuple[str, ...]
    _fit_parameters: dict[str, Any]
    setting_: Setting
    scales_: Array | None

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
    def weights_(self) -> Array:
        """The weights (d, q) for X in its own units: `X @ weights_ + offset_` is `transform(X)`."""
        check_is_fitted(self)
        here = self.on_host()
        return np.asarray((here.components_ / here.scale_).T)

    @property
    def offset_(self) -> Array:
        """What `transform` adds (q,) to `X @ weights_`."""
        return -on_host(self.mean_) @ self.weights_

    def weights_table(self, result: Any = None) -> pd.DataFrame:
        """Return the weights and shares of all columns of X as a frame, the largest share first.

        `weights_table().to_latex(float_format="%.2f", escape=True)` is a table for a paper.

        Parameters
        ----------
        result : Intervals, optional
            That of `ism_dask.intervals` for this fit. The frame then has the ends of
            the 90% intervals, too, in columns such as `("share", "low")`.

        Returns
        -------
        pandas.DataFrame of d rows. The weights are in standardised units, as `components_`.
        """
        import pandas as pd  # noqa: PLC0415 - no dependency, as for `set_output` of scikit-learn

        new = [*self.get_feature_names_out(), "share"]

        def frame(weights: Array, shares: Array) -> pd.DataFrame:
            return pd.DataFrame(np.vstack([weights, shares]).T, column_names(self), new)

        components = on_host(self.components_)
        table = frame(components, self.feature_importances_)
        order = np.argsort(-self.feature_importances_, kind="stable")
        if result is None:
            return table.iloc[order]
        if not np.array_equal(result.components, components):
            raise ValueError("`result` is of another fit; give that of `intervals` for this one")
        low = frame(result.components_low, result.shares_low)
        high = frame(result.components_high, result.shares_high)
        parts = pd.concat({"estimate": table, "low": low, "high": high}, axis=1)
        return parts.swaplevel(axis=1)[new].iloc[order]

    @property
    def feature_importances_(self) -> Array:
        """The share (d,) of each feature in the space of the new features, all together 1.

        Unlike the weights of one new feature, the shares do not change if W is rotated within its
        space. They compare features in units of their standard deviation. `SelectFromModel` of
        scikit-learn selects by them.
        """
        check_is_fitted(self)
        return subspace_shares(on_host(self.components_))

    def get_support(self, indices: bool = False) -> Array:
        """Return which features (d,) have a weight in any new feature, or their indices (k,)."""
        check_is_fitted(self)
        support = (on_host(self.components_) != 0).any(axis=0)
        return np.flatnonzero(support) if indices else support

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def on_host(self) -> Self:
        """Return the estimator with the arrays of its fit as those of NumPy."""
        foreign = {name: on_host(each) for name, each in vars(self).items() if is_foreign(each)}
        if not foreign:
            return self
        here = copy(self)
        here.__dict__.update(foreign)
        return here

    def as_fitted(self) -> Self:
        """Return the estimator with the parameters of its fit, and its arrays as those of NumPy."""
        fitted = copy(self.on_host())
        fitted.__dict__.update(self._fit_parameters)  # whatever `set_params` has changed since
        return fitted

    def _set_fitted(self, attributes: dict[str, Any]) -> None:
        """Set the attributes of a fit, in place of all of an earlier one but those of columns."""
        if pairs := attributes.pop("_interchangeable"):
            names = column_names(self)
            words = [f"{names[j]!r} and {names[k]!r} ({r:.3f})" for j, k, r in pairs[:_PAIRS]]
            more = f" and {len(pairs) - _PAIRS} more" if len(pairs) > _PAIRS else ""
            advice = (
                "columns are so alike (correlation in brackets) that either of two would do: "
                f"{', '.join(words)}{more}. Leave one of each out, or read both weights together"
            )
            attributes["report_"] = replace(attributes["report_"], weights_advice=advice)
        of_columns = ("n_features_in_", "feature_names_in_")
        for name in [each for each in vars(self) if each.endswith("_") and each not in of_columns]:
            delattr(self, name)
        self.__dict__.update(attributes)

    def _warn_about_fit(self) -> None:
        """Warn if the fit has not converged, and pass on advice on the number of new features."""
        name, depth = type(self).__name__, 3  # the user's call of `fit`
        if fit_watcher().reports_endings:
            return
        if advice := self.report_.components_advice:
            warnings.warn(f"{name}: {advice}", ComponentsWarning, stacklevel=depth)
        if advice := self.report_.weights_advice:
            warnings.warn(f"{name}: {advice}", WeightsWarning, stacklevel=depth)
        status = self.status_
        if status.is_expected:
            return
        after, advice, solver = "after", status.advice, self._solver
        if status is Status.MAX_ITER:
            after = "in"
            advice += f", as by `solver={type(solver).__name__}(max_iter={2 * solver.max_iter})`"
        warnings.warn(
            f"{name} {status.meaning} {after} {count_noun(self.n_iter_, 'iteration')}: "
            f"{self._residual_in_words()}. The best W so far is returned; {advice}",
            ConvergenceWarning,
            stacklevel=depth,
        )

    def _residual_in_words(self) -> str:
        """Return in words how far the fit is from the limits of its solver."""
        residual = f"the residual is {self.residual_:.2g}"
        solver, last = self._solver, self.history_[-1]
        if not isinstance(solver, ISM):
            return f"{residual}; {self.report_.tolerance:.2g} was to be reached"
        turned = f"the last step turned W by an angle whose sine is {last.angle:.2g}"
        if solver.tol is None:
            return f"{residual}, {turned}; {RESIDUAL:g} and {ANGLE:g} were to be reached"
        angle = f", `angle_tol` {solver.angle_tol:g}" if solver.angle_tol else ""
        change = f"changed the eigenvalues by {last.change:.2g}; `tol` is {solver.tol:g}{angle}"
        return f"{residual}, {turned} and {change}"

    @property
    def _solver(self) -> Solver:
        return as_solver(self.solver)

    @property
    def stopping_of_rounds(self) -> StoppingOfRounds | None:
        """The stopping rule of the rounds of the fit, None for a fit without rounds."""
        return None

    def check_parameters(self) -> None:
        """Raise a ValueError if a parameter is out of range."""
        check_serves(self._solver, type(self))
        check_bool("`standardize`", self.standardize)
        check_seed(self.random_state)
        if self.rotation is not None:
            check_choice("`rotation`", self.rotation, ROTATIONS)


@contextmanager
def watched_fit(estimator: IKDR) -> Iterator[None]:
    """Announce the block as the fit of an estimator to the watcher."""
    watcher = fit_watcher()
    watcher.begun(estimator._solver, estimator.stopping_of_rounds)
    yield
    watcher.ended()


def column_names(model: RowTransformer) -> list[str]:
    """Return the names of the d columns of a fit, or their numbers where X had no names."""
    numbered = [f"feature {j}" for j in range(model.n_features_in_)]
    return [*map(str, getattr(model, "feature_names_in_", numbered))]


def _on_complete_rows(
    function: Callable[[Array], Array], means: Array | None, names: Sequence[str], X: Array
) -> Array:
    """Return a function of rows (b, d), whose gaps the means (d,) of a fit fill, if it has some."""
    if means is None:
        check_no_gaps(X, names)
    else:
        X = filled(X, means)
    assert_all_finite(X, input_name="X")
    return function(X)
