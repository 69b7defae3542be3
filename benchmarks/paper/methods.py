"""Fit the methods of the tables as scikit-learn estimators, and read the rows they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Self

import numpy as np
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, scale

from benchmarks.fits import quiet
from benchmarks.paper.aligned_sum import aligned_sum
from benchmarks.paper.dimension_growth import DimensionGrowth
from benchmarks.paper.grassmann import Grassmann
from benchmarks.paper.series import OVER_CAP
from benchmarks.paper.settings import ALIGNED, DELTA, ISM, ISM_GRAPH, ISM_PUBLISHED, METHODS
from benchmarks.paper.stiefel import Stiefel
from flows.builtin import ingest
from ism_dask import SupervisedIKDR, UnsupervisedIKDR, solvers
from ism_dask._types import Array
from ism_dask.kernels import Gaussian, Kernel
from ism_dask.kernels.pairing import median_distance
from ism_dask.solvers import Solver
from ism_dask.status import Status

_CONVERGED = "converged"
# How a W ends whose columns are each stationary beside those before it, but not all together.
_BY_COLUMN = "column by column"
_WARM_UP_SECONDS = 0.5
# Rows from which the widths of kernel PCA and of graphs of features are computed.
SAMPLE_ROWS = 5000
# The gaussian kernel of the paper: the tables use its settings, not the defaults of the library.
PAPER_GAUSSIAN = Gaussian(sigma="median")
# ISM by default, with the paper's graph, its stopping rule, and the rivals.
SOLVERS: Mapping[str, Solver] = {
    ISM: solvers.ISM(),
    ISM_GRAPH: solvers.ISM(),
    ISM_PUBLISHED: solvers.ISM(tol=DELTA),
    "stiefel": Stiefel(),
    "grassmann": Grassmann(),
    "dimension-growth": DimensionGrowth(),
}


@dataclass(frozen=True)
class Request:
    """The number of features, the kernel, the time limit and the seed of a fit."""

    q: int
    kernel: str | Kernel  # a kernel of the tables; empty for reference points
    cap: float  # in seconds
    seed: int


@dataclass(frozen=True)
class Fitted:
    """A fitted estimator, and the seconds of the fit."""

    model: Any
    seconds: float

    @property
    def facts(self) -> dict[str, Any]:
        """Seconds, status and, where there is a J, objective and residual as plain JSON."""
        last = self.model[-1] if isinstance(self.model, Pipeline) else self.model
        status = getattr(last, "status_", _CONVERGED)
        ended = getattr(status, "value", status)
        if status is Status.TOLERANCE and isinstance(last.solver, DimensionGrowth):
            ended = _BY_COLUMN
        facts = {"seconds": self.seconds, "status": ended}
        if hasattr(last, "objective_"):
            facts |= {
                "objective": float(last.objective_),
                "iterations": int(last.n_iter_),
                "residual": float(last.residual_),
                "engine": last.report_.engine,
            }
        return facts


def timed_fit(model: Any, X: Array, y: Array | None) -> Fitted:
    """Fit a model, and measure the time."""
    with quiet():
        started = time.perf_counter()
        model.fit(X, y)
        return Fitted(model, time.perf_counter() - started)


def fit_method(method: str, request: Request, X: Array, y: Array) -> Fitted:
    """Fit a method of the tables to rows X (n, d) with classes y (n,), and time the fit."""
    if not METHODS[method].solver:
        return timed_fit(_reference(method, request, X, y), X, y)
    _warm(SOLVERS[method])
    if request.kernel == ALIGNED:
        summed = aligned_sum([PAPER_GAUSSIAN, "polynomial"], X, y, random_state=request.seed)
        request = replace(request, kernel=summed)
    return fit_kernel(request, X, y, SOLVERS[method])


def fit_kernel(request: Request, X: Array, y: Array, solver: Solver, **how: Any) -> Fitted:
    """Fit W to rows X (n, d) with classes y (n,) by HSIC and a solver.

    `how` are further parameters of the estimator; without a kernel in the request, it has its own.
    """
    if request.kernel:
        how |= {"kernel": _published_kernel(request.kernel), "target": "classes"}
    capped = replace(solver, max_seconds=request.cap)
    model = SupervisedIKDR(request.q, solver=capped, random_state=request.seed, **how)
    return timed_fit(model, X, y)


def fit_clusters(method: str, request: Request, X: Array) -> Fitted:
    """Fit clusters of rows X (n, d) together with the W in which they separate."""
    solver = SOLVERS[method]
    _warm(solver)
    model = UnsupervisedIKDR(
        request.q,
        kernel=_published_kernel(request.kernel),
        graph="kernel" if method == ISM_GRAPH else "regularised",
        solver=replace(solver, max_seconds=request.cap),
        random_state=request.seed,
    )
    return timed_fit(model, X, None)


def _published_kernel(kernel: str | Kernel) -> str | Kernel:
    return PAPER_GAUSSIAN if kernel == "gaussian" else kernel


@cache
def _warm(solver: Solver) -> None:
    """Run a solver once before it is timed, because the first fit of a process loads libraries."""
    X, y = load_iris(return_X_y=True)
    timed_fit(SupervisedIKDR(2, solver=replace(solver, max_seconds=_WARM_UP_SECONDS)), X, y)


class CappedNCA(NeighborhoodComponentsAnalysis):  # type: ignore[misc]  # sklearn has no types
    """Neighbourhood components analysis with a time limit."""

    def __init__(self, n_components: int, max_seconds: float, random_state: int) -> None:
        super().__init__(n_components, callback=self._look, random_state=random_state)
        self.max_seconds = max_seconds

    def fit(self, X: Array, y: Array) -> Self:
        """Fit the components, for `max_seconds` at most."""
        self._deadline, self.status_ = time.perf_counter() + self.max_seconds, _CONVERGED
        return super().fit(X, y)  # type: ignore[no-any-return]

    def _look(self, _components: Array, _iteration: int) -> None:
        if time.perf_counter() > self._deadline:
            self.status_ = OVER_CAP
            raise StopIteration


def _reference(method: str, request: Request, X: Array, y: Array) -> Any:
    """Return the estimator of a reference point for rows X (n, d) with classes y (n,)."""
    q, seed = request.q, request.seed
    if method == "supervised-pca":
        # This is ISM with the linear kernel, whose Phi does not depend on W: one eigenproblem.
        return SupervisedIKDR(q, kernel="linear", random_state=seed)
    learners: Mapping[str, Callable[[], Any]] = {
        "none": FunctionTransformer,
        "pca": lambda: PCA(q, random_state=seed),
        "kernel-pca": lambda: KernelPCA(q, kernel="rbf", gamma=_gamma(X, seed), random_state=seed),
        "lda": lambda: LinearDiscriminantAnalysis(n_components=min(q, len(np.unique(y)) - 1)),
        "nca": lambda: CappedNCA(q, request.cap, seed),
    }
    return make_pipeline(StandardScaler(), learners[method]())


def _gamma(X: Array, seed: int) -> float:
    """Return gamma of a gaussian as wide as the median distance of some scaled rows."""
    random = np.random.default_rng(seed)
    chosen = np.sort(random.choice(len(X), min(len(X), SAMPLE_ROWS), replace=False))
    return float(0.5 / median_distance(scale(X)[chosen]) ** 2)


@lru_cache(maxsize=2)
def rows_in_memory(dataset: str, split: str | None = None) -> tuple[Array, Array]:
    """Return all rows (n, d) as stored, and their classes (n,); ingest them first if need be."""
    data = ingest(dataset, split)
    return data.X.read(0, len(data.X)), np.asarray(data.y)


def sampled_rows(dataset: str, split: str, count: int, seed: int) -> tuple[Array, Array]:
    """Return the indices of `count` rows drawn at random, and those of all others."""
    order = np.random.default_rng(seed).permutation(len(rows_in_memory(dataset, split)[1]))
    return np.sort(order[:count]), np.sort(order[count:])
