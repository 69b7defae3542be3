"""Supervised dimension reduction: fit W so that X W depends on y."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ism_dask._validation import check_bool, check_choice, positive_float
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import EngineOptions
from ism_dask.estimators.callbacks import fit_task, with_callbacks
from ism_dask.estimators.dependence_score import DependenceScore
from ism_dask.estimators.few_features import check_max_features
from ism_dask.estimators.partial_fit import PartialFit
from ism_dask.estimators.supervised_fit import (
    CRITERIA,
    PREDICTION,
    SupervisedFit,
    check_criterion,
    solver_for,
)
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.linalg.rotation import ROTATIONS
from ism_dask.observe.fit_events import announce
from ism_dask.records.certificate import Certificate
from ism_dask.solvers import Solver
from ism_dask.solvers.certificates import certify


class SupervisedIKDR(PartialFit, DependenceScore, SupervisedFit):
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
        How "dependence" computes Phi; "prediction" computes it in blocks of some 600 rows. "auto"
        takes the cheapest engine that applies, and the next one if that engine declines.
        "landmarks", which "auto" considers from 4,000 rows up, approximates Phi; "blocks", from
        10,000 rows up, estimates it from pairs within blocks of 2,500 rows; the other engines leave
        nothing out. `engine_error_` says what that does to J. An engine may also be an object with
        its options, such as
        `ism_dask.engines.Landmarks(tol=1e-3)`.
    standardize : bool, default True
        Whether to scale the features to mean 0 and standard deviation 1 first.
    whiten : bool, default False
        Whether to transform the features first so that their covariance is I, up to a small ridge.
        Correlated features then count as one, and the rows of `components_` are not orthonormal.
    max_features : int, "auto" or None, default None
        The number of features that W may use; None means all. W is fitted to all features first.
        Then 30 half-samples of up to 1,000 rows, in complementary pairs, start at that W and drop
        the features with the smallest shares in stages. The features that most of them choose are
        the support. W is fitted again on all rows with these features alone; all other weights
        are exactly zero. `history_`, `n_iter_` and `converged_` belong to this last fit. "auto"
        takes the fewest features with which J on the other half of the rows is as large as with
        any number of features, up to one standard error, and of these the ones that at least
        three quarters of the half-samples choose.
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
        nothing, unless `whiten` is set.
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
    stability_ : (d,) array
        With `max_features`: the share of the half-samples that choose each feature. 1 for all
        features if all are used.
    full_objective_ : float
        With `max_features`: J of the fit to all features.
    objective_ : float
        J. With "prediction": the share of y that the ridge regression explains, from 0 to 1, by
        its regularised loss on the rows of the fit. With "dependence": HSIC,
        `sum_ij Gamma_ij f(beta_ij)`; see `ism_dask.hsic`.
    criterion_, solver_ : str
        The criterion and the solver of the fit.
    setting_ : Setting or None
        With "prediction": the kernel's `width`, as a multiple of its own, and the `ridge`.
    selection_ : tuple of Trial
        With "prediction": the trials that unseen rows have judged, best first.
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
        Why "auto" dropped an engine that it tried first; empty if it did not.
    engine_error_ : float
        Bound on the relative error of `objective_` due to approximation and rounding; infinite if
        no bound is available. With "blocks", the standard error of `objective_` between blocks.
    kernel_ : Kernel
        The kernel with the numbers, such as widths, that the data gave it.
    components_advice_ : str
        Reason to choose another number of new features; empty if there is none.
    n_samples_seen_ : int
        Number of rows of all calls of `partial_fit`.
    sampling_error_ : float
        After `partial_fit`: the residual that W is expected to have under all rows so far, with
        the mean and scale of the fit, because a sample of them was fitted; 0 up to 10,000 rows.
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

    def __init__(
        self,
        n_components: int | str | None = "auto",
        *,
        criterion: str = "prediction",
        kernel: str | Kernel = "gaussian",
        target: str = "auto",
        solver: str | Solver = "auto",
        engine: str | EngineOptions = "auto",
        standardize: bool = True,
        whiten: bool = False,
        max_features: int | str | None = None,
        rotation: str | None = None,
        avoid_weight: float = 10.0,
        class_weight: dict[Any, float] | str | None = None,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.criterion = criterion
        self.kernel = kernel
        self.target = target
        self.solver = solver
        self.engine = engine
        self.standardize = standardize
        self.whiten = whiten
        self.max_features = max_features
        self.rotation = rotation
        self.avoid_weight = avoid_weight
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, avoid: Any = None, given: Any = None
    ) -> SupervisedIKDR:
        """Learn the projection.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set
            A Dask array is computed anew on each pass, two passes per iteration, so it need not fit
            into memory. If it fits, `persist` it first.
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
        for name in ("_reservoir", "n_samples_seen_", "sampling_error_"):
            self.__dict__.pop(name, None)
        return self._fit_to(X, y, sample_weight, avoid=avoid, given=given)

    @with_callbacks
    def _fit_to(
        self, X: Any, y: Any, sample_weight: Any, *, avoid: Any = None, given: Any = None
    ) -> Self:
        for name in ("classes_", "stability_", "full_objective_"):
            self.__dict__.pop(name, None)
        check_choice("`criterion`", self.criterion, CRITERIA)
        self._check_avoid_weight()
        checked = self._checked_input(X, y, sample_weight, avoid=avoid, given=given)
        if checked.dependence.classes is not None:
            self.classes_ = checked.dependence.classes
        self._check_parameters()
        self.sides_ = checked.target.sides
        reported = fit_task(self, checked.X, checked.target.y, sample_weight)
        with announce(self.plan), single_threaded_blas(), reported:
            solution, advice = self._learn(checked)
        self._warn_about_fit(solution, advice)
        return self

    def certify(
        self, X: Any, y: Any, sample_weight: Any = None, *, avoid: Any = None, given: Any = None
    ) -> Certificate:
        """Set and return `certificate_` by passes over all pairs of rows, whatever the engine.

        A fit does not spend this time, that of some dozens of gradients by engine="exact", if its
        engine approximates, or if `tol` or another solver than "ism" ended it.

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
        >>> fitted = SupervisedIKDR(2, criterion="dependence", engine="landmarks").fit(X, y)
        >>> fitted.certify(X, y).is_certified
        True
        """
        check_is_fitted(self)
        if self.criterion_ == PREDICTION:
            raise ValueError(
                "`certify` proves maxima of HSIC; this fit maximised the prediction of y. Fit with "
                'criterion="dependence" for a certificate'
            )
        checker = clone(self)  # checks set attributes
        checked = checker._checked_input(X, y, sample_weight, avoid=avoid, given=given)
        checked.check_dense("`certify`")
        self.check_same_sides(checked.target, "`certify`")
        if checker.n_features_in_ != self.n_features_in_:
            raise ValueError(
                f"X has {checker.n_features_in_} features, the fit had {self.n_features_in_}; "
                "`certify` takes the rows of the fit"
            )
        with single_threaded_blas():
            prepared = self._prepared(checked, as_kernel(self.kernel_))
            q = len(self.components_)
            fit_rows = self._fit_rows(prepared, self.kernel_, q, checked)
            W = prepared.coordinates(self.components_)
            self.certificate_ = certify(fit_rows.problem(checked.dependence), W, self.status_)
        return self.certificate_

    def _check_avoid_weight(self) -> None:
        if self.avoid_weight != 0:
            positive_float("`avoid_weight`", self.avoid_weight, "or 0")

    def _check_parameters(self) -> None:
        check_criterion(self.criterion, self.kernel, self.solver, self.engine)
        super()._check_parameters()
        check_max_features(self.max_features, self.n_features_in_)
        if self.rotation is not None:
            check_choice("`rotation`", self.rotation, ROTATIONS)
        for name in ("whiten", "warm_start"):
            check_bool(f"`{name}`", getattr(self, name))

    @property
    def _solver(self) -> Solver:
        return solver_for(self.criterion, self.solver)

    def __sklearn_tags__(self) -> Tags:
        """Declare that y is required and that float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
