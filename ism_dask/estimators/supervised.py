"""Supervised dimension reduction: fit W so that X W depends on y."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import EngineOptions
from ism_dask.estimators.base import IKDR, in_library
from ism_dask.estimators.callbacks import reported_fit, with_callbacks
from ism_dask.estimators.checks import row_source
from ism_dask.estimators.dependence_fit import fit_dependence
from ism_dask.estimators.pose import (
    DEPENDENCE,
    PREDICTION,
    SupervisedProblem,
    column_target,
    pose,
    rows_in_memory,
    solver_for,
)
from ism_dask.estimators.prediction_fit import FittedMaximum, fit_prediction
from ism_dask.estimators.prediction_target import prediction_targets
from ism_dask.estimators.wide_rows import check_dense
from ism_dask.kernels import Kernel
from ism_dask.records.certificate import Certificate
from ism_dask.rows.devices import on_this_host
from ism_dask.selection.sample import share_explained
from ism_dask.selection.target import MEAN
from ism_dask.solvers import Solver
from ism_dask.solvers.certificates import certify


@dataclass(eq=False, repr=False)
class SupervisedIKDR(IKDR):
    """Interpretable kernel dimension reduction guided by labels or numbers.

    Finds W with orthonormal columns so that `X W` carries as much as possible of y, nonlinearly.
    Each new feature is a weighted sum of the (standardised) old ones; the weights are
    `components_`.

    Parameters
    ----------
    n_components : int, "auto" or None, default "auto"
        Number of new features q, at most d - 1. "auto" and None mean the same: with the criterion
        "prediction" up to six numbers are tried on a sample of rows, and `dimension_path_` has the
        trials; with "dependence", or with more than seven classes, it is one feature fewer than
        there are classes, and one for each column of numbers. "auto" always stays below the number
        of directions in which the rows vary.
    criterion : {"prediction", "dependence"}, default "prediction"
        What W maximises. "prediction": the share of y that a kernel ridge regression on `X W`
        explains. The kernel's width, the ridge and the start are chosen by rows that W has not
        seen. "dependence": the Hilbert-Schmidt independence criterion (HSIC) between `X W` and y,
        as published, by the Iterative Spectral Method. See docs/method.md for when each is right.
    kernel : str or Kernel, default "gaussian"
        A name in `ism_dask.kernels.KERNELS`, a kernel object, or a sum such as
        `0.5 * Gaussian() + 0.5 * Polynomial(degree=3)`. "prediction" needs a positive definite one:
        "gaussian", "polynomial" or "linear", and their sums.
    target : {"auto", "classes", "labels", "numbers", "linear", "gaussian", "multiscale"}, \
default "auto"
        How to read y: as classes, as several labels for each row ("labels": an indicator matrix of
        0 and 1, or columns of classes), or as numbers. "auto" takes labels, and whole numbers with
        up to 20 different values, as classes, or as "labels" if y has several columns, and other
        numbers as "numbers". It raises an error for whole numbers with more than 20 different
        values. "numbers" lets the criterion choose: "prediction" predicts the numbers themselves,
        or functions of them if only these depend on X; "dependence" takes "multiscale", or
        "gaussian" if y has several columns. "linear" means the numbers themselves, "gaussian"
        functions of a gaussian kernel of median width, "multiscale" those of three gaussian
        kernels: of the median width, half of it and a quarter of it.
    solver : {"auto", "ascent", "ism", "stiefel", "grassmann", "dimension-growth"} or Solver, \
default "auto"
        "auto" is "ascent" for "prediction", and "ism", the Iterative Spectral Method, for
        "dependence"; the others are the solvers that it is compared with. "grassmann" needs
        pymanopt. A solver may also be an object with its options, such as
        `ism_dask.solvers.ISM(tol=0.01, max_iter=500)`.
    engine : {"auto", "closed", "monomials", "landmarks", "blocks", "exact"} or EngineOptions, \
default "auto"
        How "dependence" computes Phi; "prediction" computes it in blocks of some 600 rows, on a GPU
        with `ism_dask.engines.Blocks(device="cuda:0")`. "auto" takes the cheapest engine that
        applies, and the next one if that engine declines. "landmarks", which "auto" considers from
        4,000 rows up, approximates Phi; "blocks", from 10,000 rows up, estimates it from pairs
        within blocks of 2,500 rows; the other engines leave nothing out. `engine_error_` says what
        that does to J. An engine may also be an object with its options, such as
        `ism_dask.engines.Landmarks(tol=1e-3)`.
    standardize : bool, default True
        Whether to scale the features to mean 0 and standard deviation 1 first.
    max_features : int, "auto" or None, default None
        With "prediction": the number of features that W may use; None means all. W is fitted to all
        features first. Then the weakest ones go in stages, while W climbs on the others, on a
        sample of up to 1,250 rows. With a number, those with the smallest shares go until so many
        remain. With "auto" those go whose weights noise alone may explain, at a chance of 1% that
        one of all remains by noise. W is fitted again to all rows with these features alone; all
        other weights are exactly zero. `history_`, `n_iter_` and `converged_` belong to this last
        fit. If there are more features than half as many rows, the first fit takes only those that
        explain most of y by themselves, one for every five rows: a feature that counts only beside
        others is missed.
    rotation : {"varimax"} or None, default None
        "varimax" rotates W within its space, so that each new feature has few large weights. The
        space, J and distances between rows of `X W` do not change.
    avoid_weight : float, default 10
        The weight of the dependence on what `fit` is to avoid, beside that on y. Both are divided
        by the norms of their kernels, so that 1 weighs equal correlations equally.
    class_weight : dict, "balanced" or None, default None
        Weights of classes: each row counts by the weight of its class, times its `sample_weight`.
        A class that the dict leaves out has weight 1. "balanced" gives all classes the same sum of
        weights. It is for classes only.
    warm_start : bool, default False
        Whether to start at `components_`, if there are some. For rows that have changed little,
        such a fit takes a few iterations.
    random_state : int, RandomState or None, default None
        Seed of the random starts, of the sample of rows that determines widths above 5,000 rows,
        and of the landmarks. None is a fixed seed, so that fits repeat.

    Attributes
    ----------
    components_ : (q, d) array
        The weights of the new features in standardised units; the largest entry of each row is
        positive. Rows are orthonormal to 1e-10, including rows of new features that carry
        nothing.
    mean_, scale_ : (d,) arrays
        Mean and scale of each feature: `transform` first computes `(X - mean_) / scale_`.
    eigenvalues_ : (q,) array
        The diagonal of `W^T Phi W`, in descending order: its eigenvalues, unless `rotation` is
        set. Each is half the derivative of J with respect to the logarithm of the scale of its
        new feature; it is not the part of J that the feature contributes, which `contributions_`
        has. A feature with a negative eigenvalue lowers J; a `ComponentsWarning` then reports
        this, with the number of new features that would do.
    eigengap_ : float
        The smallest entry of `eigenvalues_` minus the largest eigenvalue of Phi outside of W, in
        the whole feature space. If it is near zero, the last new feature is one of several
        equally good ones. If it is negative, J is largest at a W that the spectral step would
        leave. A rotation makes it larger, since it brings the entries of `eigenvalues_` closer
        together. With `max_features`, Phi has the features of the support alone.
    contributions_ : Contributions
        Two arrays (q,): `alone` is J of each new feature alone, `lost` is by how much J falls
        without it. Computed on a sample of up to 2,000 rows and scaled to `objective_`; exact if
        these are all rows.
    full_objective_ : float
        With `max_features`: J of the fit to all features, or, if there are more features than half
        as many rows, to those that explain most by themselves.
    objective_ : float
        J. With "prediction": the share of y that the ridge regression explains, from 0 to 1, by
        its regularised loss on the rows of the fit. With "dependence": HSIC,
        `sum_ij Gamma_ij f(beta_ij)`; see `ism_dask.hsic`.
    criterion_, solver_ : str
        The criterion and the solver of the fit.
    setting_ : Setting or None
        With "prediction": the kernel's `width`, as a multiple of its own, and the `ridge`.
    selection_ : tuple of Trial
        With "prediction": the trials that unseen rows have judged, best first; with `max_features`
        those of the fit to all features.
    other_maximum_ : float
        With "prediction": the sine of the angle to the features that another start led to, if
        rows do not tell which are better; else 0. Random halves of such rows may give either.
    target_ : str
        With "prediction" of numbers: "mean" if the numbers themselves are predicted, "law" if
        functions of them are; "mean" for classes.
    dimension_path_ : tuple of DimensionTrial
        What each number of new features explains, from 1 up, if "auto" tried them; else empty.
    residual_ : float
        Distance of W from a stationary point under the true kernel, whatever the engine:
        `||Phi W - W L|| / ||Phi W||`. With "blocks", Phi is that of the pairs within blocks.
    residual_rows_ : int
        Number of rows on which the residual was measured, each against all rows: n, or the size
        of a sample if n^2 q is more than some seconds of work.
    n_iter_ : int
        Number of iterations.
    status_ : Status
        How the fit ended: see `Status.meaning` and `Status.advice`, or docs/method.md.
    converged_ : bool
        Whether `status_` is `Status.CONVERGED`. With "ascent" this states that the residual is at
        most `tolerance_`. With "ism" and `tol=None` this states that W is
        stationary (`residual_` at most 1e-4), that fifty more iterations would gain less than
        0.1% of J, and that a search found no direction from W along which J rises. For the other
        solvers it states the residual alone.
    certificate_ : Certificate
        Whether W is proved to be a local maximum of J, or why not: see `ism_dask.Certificate`.
        "ism" with `tol=None` measures it if the engine leaves nothing out; `certify` does always.
    deal_error_ : float
        After `certify` of a "prediction": the distance by which another random deal of the rows
        into blocks would move W, from 0 to 1. It is 0 if one block has all rows.
    tolerance_ : float
        The limit in force: on the residual, or, with a number as `tol`, on the change of the
        eigenvalues.
    history_ : tuple of Record
        For each iteration: objective, eigenvalues, change, angle, residual (under the engine's
        Phi), seconds, and whether J rose. It includes steps along the gradient of J, but not the
        steps of `refine`.
    engine_ : str
        Name of the engine that computed the result.
    engine_note_ : str
        Why "auto" dropped an engine that it tried first, or the device that computed the steps;
        empty for none of both.
    engine_error_ : float
        Bound on the relative error of `objective_` due to approximation, with a wide estimate of
        that due to rounding; infinite if it exceeds 1. With "blocks", the standard error of
        `objective_` between blocks.
    kernel_ : Kernel
        The kernel with the numbers, such as widths, that the data gave it.
    components_advice_ : str
        Reason to choose another number of new features; empty if there is none.
    weights_advice_ : str
        Which columns are so alike that either could have the weight of both; empty if none are.
    target_remainder_ : float
        Share of the trace of the kernel of y that its low-rank factor leaves out.
    avoided_ : Avoidance or None
        How strongly all features (`features`) and the new ones (`new_features`) depend on what
        `fit` was to avoid: correlations from 0, if independent, to 1.
    sides_ : tuple of str
        Which of "avoid" and "given" the fit had.
    classes_ : (c,) array
        The classes, if y holds classes.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : (d,) array
        Names of the features, if X was a frame.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2).fit(X, y).transform(X).shape
    (178, 2)
    """

    n_components: int | str | None = "auto"
    _: KW_ONLY
    criterion: str = "prediction"
    kernel: str | Kernel = "gaussian"
    target: str = "auto"
    solver: str | Solver = "auto"
    engine: str | EngineOptions = "auto"
    standardize: bool = True
    max_features: int | str | None = None
    rotation: str | None = None
    avoid_weight: float = 10.0
    class_weight: dict[Any, float] | str | None = None
    warm_start: bool = False
    random_state: Any = None

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        avoid: Any = None,
        given: Any = None,
    ) -> SupervisedIKDR:
        """Learn the projection.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set
            Arrays of other libraries than NumPy, such as tensors of PyTorch on a GPU, are those of
            scikit-learn's `array_api_dispatch`; see docs/gpu.md. A Dask array of more than 50
            million numbers is computed anew on each pass, two passes per iteration, so it need not
            fit into memory. If it fits, `persist` it first.
        y : (n,) labels, (n, t) labels, also as a sparse indicator, or (n,) or (n, t) numbers
        sample_weight : (n,) numbers, optional
            Weights of the rows. A row of weight 2 counts as two equal rows, one of weight 0 not at
            all; other weights than whole numbers count in proportion.
        avoid : (n,) or (n, t) labels or numbers, or a frame, optional
            What `X W` is not to depend on, such as age and sex; `transform` does not need it.
            Strings and whole numbers of up to 20 different values are classes. See
            docs/avoiding.md.
        given : (n,) or (n, t) labels or numbers, or a frame, optional
            What is known: `X W` is to explain what these do not explain of y. `transform` does not
            need it.

        Returns
        -------
        The estimator itself.
        """
        problem = pose(self, X, y, sample_weight, avoid=avoid, given=given)
        validate_data(self, row_source(X), skip_check_array=True)
        return self._learn(problem, sample_weight)

    @with_callbacks
    def _learn(self, problem: SupervisedProblem, sample_weight: Any) -> Self:
        """Set the attributes of the fit that solves a problem."""
        fit = {PREDICTION: fit_prediction, DEPENDENCE: fit_dependence}[self.criterion]
        problem = problem.placed()
        with (
            single_threaded_blas(),
            reported_fit(self, problem.X, problem.y, sample_weight) as report,
        ):
            solution, attributes = fit(problem, report)
            classes = problem.dependence.classes
            self._set_fitted(
                {
                    **in_library(attributes, problem.library),
                    "criterion_": self.criterion,
                    "sides_": problem.sides,
                    "target_remainder_": problem.dependence.remainder,
                    **({} if classes is None else {"classes_": classes}),
                }
            )
        self._warn_about_fit(solution)
        return self

    def score(self, X: Any, y: Any) -> float:
        """Return the share of y that X W explains in these rows: 1 all of it, about 0 nothing.

        Each row is predicted by the others from X W, by a gaussian kernel ridge regression whose
        width and ridge these rows choose, whatever the criterion and the kernel of the fit. So the
        score compares any fits, and searches such as `GridSearchCV` use it. It is below 0 if the
        mean of y predicts better. W depends on the y of the rows that it was fitted to even if that
        is noise: score other rows.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) labels, or (n,) or (n, t) numbers
            Read as the parameter `target` says. Of numbers the mean is to be explained, or the law,
            if the fit has found that only this depends on X (`target_`).
        """
        Z = np.asarray(on_this_host(self._new_features(X)), dtype=np.float64)
        y = column_target(on_this_host(y))
        check_consistent_length(Z, y)
        if (y == y[:1]).all():
            raise ValueError(
                f"all {len(y)} rows have the same `y` ({y[0]!r}), on which nothing can depend; "
                "score rows of several, as the folds of StratifiedKFold or KFold(shuffle=True) are"
            )
        if not np.ptp(Z, axis=0).any():
            return 0.0
        targets = prediction_targets(SupervisedProblem(self, Z, y))
        target = targets.get(getattr(self, "target_", MEAN)) or next(iter(targets.values()))
        with single_threaded_blas():
            return share_explained(Z, target.Y, target.keys)

    def certify(
        self, X: Any, y: Any, sample_weight: Any = None, *, avoid: Any = None, given: Any = None
    ) -> Certificate:
        """Set and return `certificate_`: whether W is proved to be a local maximum of J.

        With "prediction" it takes one pass over the rows, for up to 1,000 free weights (d - q) q.
        With "dependence" it takes passes over all pairs of rows, whatever the engine: the time of
        some dozens of gradients by engine="exact", which a fit does not spend if its engine
        approximates, or if `tol` or another solver than "ism" ended it.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
            The rows of the fit. For others W is not stationary.
        y : (n,) labels, or (n,) or (n, t) numbers
            The target of the fit.
        sample_weight : (n,) numbers, optional
            The weights of the fit.
        avoid, given : (n,) or (n, t) labels or numbers, or a frame, optional
            Those of the fit.

        Returns
        -------
        Certificate

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from ism_dask import SupervisedIKDR
        >>> X, y = load_wine(return_X_y=True)
        >>> fitted = SupervisedIKDR(2).fit(X, y)
        >>> fitted.certify(X, y).is_certified
        True
        """
        check_is_fitted(self)
        validate_data(self, row_source(X), reset=False, skip_check_array=True)
        problem = pose(self, X, y, sample_weight, avoid=avoid, given=given)
        check_dense(problem.X, "`certify`")
        problem = replace(problem, X=rows_in_memory(problem.X, dense=True))
        problem.check_same_sides(self.sides_, "`certify`")
        with single_threaded_blas():
            if self.criterion_ == PREDICTION:
                maximum = FittedMaximum.of(problem)
                self.certificate_, self.deal_error_ = maximum.certificate, maximum.deal_error
                return self.certificate_
            prepared = problem.prepared(self.kernel_)
            W = prepared.coordinates(problem.parameters.components_)
            rows = problem.fit_rows(prepared, self.kernel_, W.shape[1])
            self.certificate_ = certify(rows.problem(problem.dependence), W, self.status_)
        return self.certificate_

    @property
    def _solver(self) -> Solver:
        return solver_for(self.criterion, self.solver)

    def __sklearn_tags__(self) -> Tags:
        """Declare that y is required and that rows may be sparse."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.array_api_support = True
        return tags
