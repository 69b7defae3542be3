"""Fit the other methods and the library through one interface that returns a projection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from benchmarks.fits import quiet
from benchmarks.studies.rivals import RIVALS, Rival
from benchmarks.studies.rivals_by_gradients import is_classes
from benchmarks.studies.rivals_of_packages import PACKAGED, missing
from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.estimators.supervised import SupervisedBase
from ism_dask.kernels import Gaussian

Array = NDArray[Any]
DEFAULT, PAPER, LASSO = "default", "paper's settings", "LassoNet"
EVERY, ROTATED = "default, all features", "default, rotated columns"
# The paper's settings that differ from the defaults of the library; no other place has them.
PAPER_SETTINGS: dict[str, Any] = {
    "kernel": Gaussian(sigma="median"),
}


@dataclass(frozen=True, eq=False)
class Projection:
    """A projection W (d, q) of columns standardised by `mean` (d,) and `scale` (d,)."""

    W: Array
    mean: Array
    scale: Array

    def transform(self, X: Array) -> Array:
        """Return the new features (n, q) of rows."""
        return np.asarray((X - self.mean) / self.scale @ self.W)

    @property
    def in_units_of_rows(self) -> Array:
        """The weights (d, q) of the columns before they are standardised."""
        return np.asarray(self.W / self.scale[:, None])


Method = Callable[[Array, Array, int], Projection]


def by_other_method(method: Rival, X: Array, y: Array, q: int) -> Projection:
    """Return the projection by another method, fitted to standardised columns."""
    scaler = StandardScaler().fit(X)
    return Projection(method(scaler.transform(X), y, q), scaler.mean_, scaler.scale_)


def _default(X: Array, y: Array, q: int, **parameters: Any) -> Projection:
    """Return the projection by the library with its defaults, but for some `parameters`."""
    # Only whole numbers have to be called numbers: the library asks what they are.
    target = "auto" if is_classes(y) else "numbers"
    return _fitted(PredictiveIKDR(q, target=target, **parameters), X, y)


def _rotated(X: Array, y: Array, q: int) -> Projection:
    """Return the projection by the defaults if the truth has weights on all columns."""
    d = X.shape[1]
    rotation = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
    turned = _default(X @ rotation, y, q)
    return Projection(rotation @ turned.in_units_of_rows, X.mean(axis=0), np.ones(d))


def _paper(X: Array, y: Array, q: int) -> Projection:
    """Return the projection by the library with the settings of the paper."""
    target = "classes" if is_classes(y) else "linear"
    return _fitted(SupervisedIKDR(q, target=target, **PAPER_SETTINGS), X, y)


def _fitted(model: SupervisedBase, X: Array, y: Array) -> Projection:
    model.fit(X, y)
    return Projection(model.components_.T, model.mean_, model.scale_)


# LassoNet takes a minute a fit: it is fitted only where columns are many.
OTHERS: dict[str, Rival] = {
    **RIVALS,
    **{name: fit for name, (_, fit) in PACKAGED.items() if name != LASSO and not missing(name)},
}
METHODS: dict[str, Method] = {
    **{name: partial(by_other_method, rival) for name, rival in OTHERS.items()},
    PAPER: _paper,
    EVERY: partial(_default, max_features=None),
    ROTATED: _rotated,
    DEFAULT: _default,
}


def projection(method: str, X: Array, y: Array, q: int) -> Projection:
    """Fit a method of `METHODS` without its warnings, whose content the figures show."""
    with quiet():
        return METHODS[method](X, y, q)
