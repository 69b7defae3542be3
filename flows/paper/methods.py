"""The methods of the tables, as estimators."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from flows.paper.names import ALIGNED, DELTA, ISM, ISM_PUBLISHED, ISM_STARTS, METHODS, RIVALS
from flows.paper.series import OVER_CAP
from flows.runs.data import Array, Fitted, Labelled, ensure_stored, label_named, timed_fit
from ism_dask import SupervisedIKDR, UnsupervisedIKDR, aligned_sum
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.preparation import SAMPLE_ROWS
from ism_dask.kernels import Gaussian, Kernel
from ism_dask.kernels.widths import median_distance

_SETTLED = "converged"
_WARM_SECONDS = 0.5
# The gaussian of the paper. The tables are of the paper's settings, not of the library's defaults.
PAPER_GAUSSIAN = Gaussian(sigma="median")


@dataclass(frozen=True)
class Request:
    """What a method is to learn.

    Attributes
    ----------
    q : int
    kernel : str or Kernel
        Of the tables, or nothing for reference points.
    cap : float
        Seconds.
    seed : int
    """

    q: int
    kernel: str | Kernel
    cap: float
    seed: int


def account(fitted: Fitted) -> dict[str, Any]:
    """Return how a method ended, in plain JSON."""
    model: Any = fitted.model
    last = model[-1] if isinstance(model, Pipeline) else model
    status = getattr(last, "status_", _SETTLED)
    told = {"seconds": fitted.seconds, "status": getattr(status, "value", status)}
    if isinstance(model, IKDR):
        told |= {
            "objective": float(model.objective_),
            "iterations": int(model.n_iter_),
            "residual": float(model.residual_),
            "engine": model.engine_,
        }
    return told


def learned(method: str, request: Request, X: Array, y: Array) -> Fitted:
    """Learn new features of rows X (n, d) with classes y (n,), looking at the clock."""
    if not METHODS[method].solver:
        return timed_fit(_REFERENCES[method](request), X, y)
    _warm(_OPTIONS[method].get("solver", ISM))
    if request.kernel == ALIGNED:
        summed = aligned_sum([PAPER_GAUSSIAN, "polynomial"], X, y, random_state=request.seed)
        request = replace(request, kernel=summed)
    return fitted(request, X, y, _OPTIONS[method])


def fitted(request: Request, X: Array, y: Array, options: Mapping[str, Any]) -> Fitted:
    """Fit W to rows X (n, d) with classes y (n,), with options of the estimator."""
    model = SupervisedIKDR(
        request.q,
        kernel=published_kernel(request.kernel),
        target="classes",
        selection=None,
        max_seconds=request.cap,
        random_state=request.seed,
        **options,
    )
    return timed_fit(model, X, y)


def by_default(request: Request, X: Array, y: Array) -> Fitted:
    """Fit W to rows X (n, d) with classes y (n,) as the library does where nothing is said."""
    model = SupervisedIKDR(request.q, max_seconds=request.cap, random_state=request.seed)
    return timed_fit(model, X, y)


def clustered(method: str, request: Request, X: Array) -> Fitted:
    """Learn clusters of rows X (n, d), and the features they show in."""
    _warm(method)
    model = UnsupervisedIKDR(
        request.q,
        kernel=published_kernel(request.kernel),
        solver=method,
        max_seconds=request.cap,
        random_state=request.seed,
    )
    return timed_fit(model, X, None)


def published_kernel(kernel: str | Kernel) -> str | Kernel:
    """Return a kernel of the tables with the width that the paper gives it."""
    return PAPER_GAUSSIAN if kernel == "gaussian" else kernel


@cache
def _warm(solver: str) -> None:
    """Let a solver run once before it is timed: the first fit of a process loads libraries."""
    X, y = load_iris(return_X_y=True)
    timed_fit(SupervisedIKDR(2, selection=None, solver=solver, max_seconds=_WARM_SECONDS), X, y)


# What ISM does by default, what the paper has it do, and what more starts find.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    ISM: {},
    ISM_PUBLISHED: {"tol": DELTA},
    ISM_STARTS: {"n_init": 5},
    **{name: {"solver": name} for name in RIVALS},
}


class CappedNCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """Neighbourhood components analysis that ends when its time is up."""

    def __init__(self, n_components: int, max_seconds: float, random_state: int) -> None:
        self.n_components = n_components
        self.max_seconds = max_seconds
        self.random_state = random_state

    def fit(self, X: Array, y: Array) -> Self:
        """Learn the components."""
        until = time.perf_counter() + self.max_seconds
        self.status_ = _SETTLED

        def look(_components: Array, _iteration: int) -> None:
            if time.perf_counter() > until:
                self.status_ = OVER_CAP
                raise StopIteration

        self.nca_ = NeighborhoodComponentsAnalysis(
            self.n_components, callback=look, random_state=self.random_state
        ).fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        """Return the new features (n, q)."""
        return np.asarray(self.nca_.transform(X))


class MedianKernelPCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel PCA with a gaussian of the median distance."""

    def __init__(self, n_components: int, random_state: int) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, _y: object = None) -> Self:
        """Learn the components."""
        random = np.random.default_rng(self.random_state)
        sample = X[np.sort(random.choice(len(X), min(len(X), SAMPLE_ROWS), replace=False))]
        rate = 0.5 / median_distance(sample) ** 2
        self.pca_ = KernelPCA(
            self.n_components, kernel="rbf", gamma=rate, random_state=self.random_state
        ).fit(X)
        return self

    def transform(self, X: Array) -> Array:
        """Return the new features (n, q)."""
        return np.asarray(self.pca_.transform(X))


class _Lda(LinearDiscriminantAnalysis):  # type: ignore[misc]
    """LDA with as many components as there can be, where more are asked for."""

    n_components: int

    def fit(self, X: Array, y: Array) -> Self:
        self.n_components = min(self.n_components, len(np.unique(y)) - 1)
        return super().fit(X, y)  # type: ignore[no-any-return]


def _scaled(step: Any) -> Any:
    return make_pipeline(StandardScaler(), step)


_REFERENCES: Mapping[str, Callable[[Request], Any]] = {
    "none": lambda _: make_pipeline(StandardScaler()),
    "pca": lambda request: _scaled(PCA(request.q, random_state=request.seed)),
    "kernel-pca": lambda request: _scaled(MedianKernelPCA(request.q, request.seed)),
    "lda": lambda request: _scaled(_Lda(n_components=request.q)),
    "nca": lambda request: _scaled(CappedNCA(request.q, request.cap, request.seed)),
    # Which is ISM with the linear kernel, whose Phi does not depend on W: one eigenproblem.
    "supervised-pca": lambda request: SupervisedIKDR(
        request.q, kernel="linear", random_state=request.seed
    ),
}


def labelled(dataset: str, split: str | None = None) -> Labelled:
    """Return a data set with its own label; one of the registry is ingested if need be."""
    return label_named(ensure_stored(dataset, split), None)


def rows_of(dataset: str, split: str | None = None) -> tuple[Array, Array]:
    """Return all rows (n, d) as they are stored, and their classes (n,)."""
    return _read(ensure_stored(dataset, split).path, dataset, split)


def sampled_rows(dataset: str, split: str, count: int, seed: int) -> tuple[Array, Array]:
    """Return the numbers of `count` rows that are drawn at random, and those of all others."""
    n = len(ensure_stored(dataset, split).X)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:count]), np.sort(order[count:])


@lru_cache(maxsize=2)
def _read(_path: Path, dataset: str, split: str | None) -> tuple[Array, Array]:
    # By path as well: another home has another data set of that name.
    known = labelled(dataset, split)
    return known.data.X.read(0, len(known.data.X)), np.asarray(known.classes)
