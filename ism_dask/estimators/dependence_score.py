"""The score of a projection: how much the new features of other rows depend on their y."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length

from ism_dask.blas_threads import single_threaded_blas
from ism_dask.estimators.supervised_input import column_target
from ism_dask.gamma.thin_factors import factor_of_target, kernel_correlation, thin_factor

# Seed of the landmarks of more than 1,000 rows: scores of the same rows have to be comparable.
_SEED = 0


class DependenceScore:
    """Gives an estimator with `transform` and a `target` the method `score`."""

    target: str

    def score(self, X: Any, y: Any) -> float:
        """Return how much the new features of X depend on y: 0 not at all, 1 as much as possible.

        It is the correlation of the kernel matrices of X W and of y: HSIC, divided by its largest
        value, and its root. The kernel of X W is the mean of three gaussian kernels, of the median
        distance, a half and a quarter of it. So the score compares fits with any kernel and any
        number of features, and searches such as `GridSearchCV` use it. W depends on the y of the
        rows that it was fitted to even if that is noise: score other rows.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) labels, or (n,) or (n, t) numbers
            Read as the parameter `target` says.
        """
        Z = np.asarray(self._new_features(X), dtype=np.float64)  # type: ignore[attr-defined]
        y = column_target(y)
        check_consistent_length(Z, y)
        if (y == y[:1]).all():
            raise ValueError(
                f"all {len(y)} rows have the same `y` ({y[0]!r}), on which nothing can depend; "
                "score rows of several, as the folds of StratifiedKFold or KFold(shuffle=True) are"
            )
        if not np.ptp(Z, axis=0).any():
            return 0.0
        rng = np.random.default_rng(_SEED)
        with single_threaded_blas():
            of_y = factor_of_target(y, self.target, "gaussian", rng)
            return kernel_correlation(thin_factor(Z - Z.mean(axis=0), "gaussian", rng), of_y)
