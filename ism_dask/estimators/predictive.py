"""Prediction of y from X W by kernel ridge regression, as an estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from ism_dask.estimators.fitted_maximum import FittedMaximum
from ism_dask.estimators.prediction_fit import fit_prediction
from ism_dask.estimators.problem import SupervisedProblem
from ism_dask.estimators.supervised import SupervisedBase
from ism_dask.kernels import as_kernel
from ism_dask.records.fit_report import Certificate
from ism_dask.solvers import Solver


@dataclass(eq=False, repr=False)
class PredictiveIKDR(SupervisedBase):
    """Features that predict labels or numbers: W maximises what a kernel ridge regression explains.

    Finds W with orthonormal columns so that a kernel ridge regression on `X W` explains as much as
    possible of y. The evidence of the regression chooses the start, the kernel's width and the
    ridge, and rows that W has not seen check this choice. Each new feature is a weighted sum of the
    (standardised) old ones; the weights are `components_`.

    Take it for features that predict y, with intervals (`ism_dask.intervals`), few features
    (`max_features`) and a number of new features that the rows choose: over 17 designs with a known
    answer, its mean distance from it is .005, and .091 with all features. `SupervisedIKDR` is the
    published system, HSIC by the Iterative Spectral Method; with the settings of the paper its mean
    distance is .58.

    Parameters
    ----------
    n_components : int, "auto" or None, default "auto"
        Number of new features q, at most d - 1, and no more than the directions in which the rows
        vary. "auto" and None mean the same: up to six numbers are tried on a sample of rows, and
        `report_.dimensions` has the trials. With more than seven classes, more than six numbers or
        labels for each row, or fewer than 20 rows, none is tried: q is the number of classes less
        one, or that of numbers or labels. "auto" always stays below the number of directions.
    kernel : str or Kernel, default "gaussian"
        The kernel of the regression, which must be positive definite: "gaussian", "polynomial",
        "linear", a kernel object, or a sum such as `0.5 * Gaussian() + 0.5 * Polynomial(degree=3)`.
    target : {"auto", "classes", "labels", "numbers", "linear", "gaussian", "multiscale"}, \
default "auto"
        How to read y: as classes, as several labels for each row ("labels": an indicator matrix of
        0 and 1, or columns of classes), or as numbers. "auto" takes labels, and whole numbers with
        up to 20 different values, as classes, or as "labels" if y has several columns, and other
        numbers as "numbers". It raises an error for whole numbers that may be either: with more
        than 20 different values, or from 8 on if one of them occurs in one or two rows. "numbers"
        predicts the numbers themselves, or functions of their ranks if these depend on X in more
        ways, as with outliers, skew or unequal spread. "linear" means the numbers themselves,
        "gaussian" functions of a gaussian kernel of median width, "multiscale" those of three
        gaussian kernels: of the median width, half of it and a quarter of it.
    max_features : int, "auto", "significant" or None, default "auto"
        The number of features that W may use; None means all. All other weights are exactly zero. W
        is fitted to all features first. Then the weakest ones go in stages, while W climbs on the
        others: with a number those with the smallest shares, until this number remains; with
        "significant" those whose weights noise alone may explain, at a chance of 1% that one of all
        remains by noise where y depends on X. "auto" does so where unseen rows are then predicted
        better, and otherwise takes all features; it is tried with up to some 900 rows and 300 free
        weights, (d - q) q. With a number or "significant", a sample chooses the features of more
        rows. W is fitted again to all rows with the features that remain; `history_`, `n_iter_` and
        `converged_` belong to this last fit. With a number or "significant", if there are more
        features than half as many rows, the first fit takes only those that explain most of y by
        themselves, one for every five rows: a feature that counts only beside others is missed.
    solver : "ascent" or Ascent, default "ascent"
        Limits of the steps, such as `ism_dask.solvers.Ascent(max_iter=200, max_seconds=60)`.
    standardize : bool, default True
        Whether to scale the features to mean 0 and standard deviation 1 first.
    missing : {"mean"} or None, default None
        What to do about gaps in X: NaN, None or pandas' NA. "mean" fills them with the mean of
        their column over the rows of the fit that have it; `transform` takes the same means. None
        raises an error that names the columns.
    rotation : {"varimax"} or None, default None
        "varimax" rotates W within its space, so that each new feature has few large weights. The
        space, J and distances between rows of `X W` do not change.
    avoid_weight : float, default 10
        The weight of what `fit` is to avoid: J is the share of y that is explained, minus this
        weight times the share of what is to be avoided. In `SupervisedIKDR` it is that of two
        Gamma of equal Frobenius norm, so that 1 weighs equal correlations equally.
    class_weight : dict, "balanced" or None, default None
        Weights of classes: each row counts by the weight of its class, times its `sample_weight`.
        A class that the dict leaves out has weight 1. "balanced" gives all classes the same sum of
        weights. It is for classes only.
    warm_start : bool, default False
        Whether to start at `components_`, if there are some, with the width, the ridge and the
        target of that fit, which are not chosen anew. For rows that have changed little, such a fit
        takes a few iterations. `SupervisedIKDR` starts at `components_`, and keeps nothing else.
    random_state : int, RandomState or None, default None
        Seed of what is random: how rows are dealt into samples, folds and blocks, the landmarks
        with more than some 900 rows, and the network that is a start from 5,000 rows up. None is a
        fixed seed, so that fits repeat.

    Attributes
    ----------
    components_ : (q, d) array
        The weights of the new features in standardised units; the largest entry of each row is
        positive. Rows are orthonormal to 1e-10, in `SupervisedIKDR` also those of new features
        that carry nothing.
    mean_, scale_ : (d,) arrays
        The mean and the standard deviation of each feature, 1 for a constant one; 0 and 1 with
        standardize=False. `transform` first computes `(X - mean_) / scale_`.
    gap_means_, gap_counts_ : (d,) arrays or None
        With `missing`: what is filled into the gaps of each column, and how many of its cells the
        fit has filled.
    eigenvalues_ : (q,) array
        The diagonal of `W^T Phi W`, in descending order: its eigenvalues, unless `rotation` is
        set. Each is half the derivative of J with respect to the logarithm of the scale of its
        new feature; it is not the part of J that the feature contributes, which `contributions_`
        has. A negative one says that J would rise if its new feature were scaled down.
        `SupervisedIKDR` and the clusterers then issue a `ComponentsWarning`, `PredictiveIKDR` if J
        is as large without a new feature, or unseen rows are hardly predicted.
    eigengap_ : float
        The smallest eigenvalue of `W^T Phi W` minus the largest eigenvalue of Phi outside of W, in
        the whole feature space. If it is near zero, the last new feature is one of several
        equally good ones. If it is negative, J is largest at a W that the spectral step would
        leave. A rotation makes it larger, since it brings the entries of `eigenvalues_` closer
        together. With few features, Phi has these alone, and with more than some 900 rows it is
        that of 600 of them.
    contributions_ : Contributions
        Two arrays (q,): `alone` is J of each new feature alone, `lost` is by how much J falls
        without it. Computed on a sample of rows, and scaled to `objective_`; exact with up to some
        900 rows, in `SupervisedIKDR` with up to 2,000.
    objective_ : float
        J: the share of y that the ridge regression explains, from 0 to 1, by its regularised loss
        on the rows of the fit; less `avoid_weight` times that of what `fit` was to avoid.
    setting_ : Setting
        The `width`, as a multiple of that of `kernel` itself, and the `ridge`, as a share of the
        mean kernel of a row with itself.
    scales_ : (q, q) array or None
        The own scales A of the new features: y is predicted of `transform(X) @ scales_`, in which
        it varies equally fast in all directions. None if one scale does for all, and with few
        features, one new feature, a kernel whose width is given, or more than some 900 rows.
    residual_ : float
        How far W is from stationary, from 0 to 1: `||Phi W - W L|| / ||Phi W||` with
        `L = W^T Phi W`.
    n_iter_ : int
        Number of iterations; 1, too, if no step was taken.
    status_ : Status
        How the fit ended: see `Status.meaning` and `Status.advice`, or docs/prediction.md.
    converged_ : bool
        Whether `status_` is `Status.CONVERGED`: the residual is at most `report_.tolerance`.
    certificate_ : Certificate
        After `certify`: whether W is proved to be a local maximum of J, or why not.
    history_ : tuple of Record
        For each iteration: objective, eigenvalues, change, angle, residual, seconds, and whether J
        rose.
    kernel_ : Kernel
        The kernel with the numbers, such as widths, that the data gave it.
    report_ : FitReport
        Notes, advice and what was measured on the way: see `ism_dask.FitReport`.
    classes_ : (c,) array
        The classes, if y holds classes.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : (d,) array
        Names of the features, if X was a frame.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import PredictiveIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> PredictiveIKDR(2).fit(X, y).transform(X).shape
    (178, 2)
    """

    judges_by_unseen_rows = True
    _fitted = staticmethod(fit_prediction)

    _: KW_ONLY
    max_features: int | str | None = "auto"
    solver: str | Solver = "ascent"

    def check_parameters(self) -> None:
        """Raise a ValueError if a parameter is out of range, whatever the rows."""
        super().check_parameters()
        if not as_kernel(self.kernel).is_positive_definite:
            raise ValueError(
                f"`kernel`={self.kernel!r} is not positive definite, so that no regression can use "
                "it; expected 'gaussian', 'polynomial', 'linear' or sums of them. Other kernels "
                "are for SupervisedIKDR"
            )

    def _certified(self, problem: SupervisedProblem) -> Certificate:
        return FittedMaximum.of_problem(problem).certificate
