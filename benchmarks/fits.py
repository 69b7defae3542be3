"""Fits as the figures make them, with what is worth knowing of each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.measure import alternating, median_seconds
from benchmarks.rows import Labelled, first_subspace, turned
from ism_dask import ComponentsWarning, SupervisedIKDR
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import Engine, Problem, first_engine
from ism_dask.engines.operator import Evaluation
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import subspace_sine

Array = NDArray[Any]

# The rules of the paper, of one start and one width, for any kernel.
PUBLISHED: dict[str, Any] = {"tol": 0.01, "selection": None}
# Directions whose eigenvalue is a smaller share of the largest are not told by the data: in
# single precision they are rounding noise, another in every engine.
_DETERMINED = 1e-6


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model and its seconds.

    Attributes
    ----------
    model : SupervisedIKDR
    seconds : float
        All of it.
    solved : float
        From the start, preparation included, to the end of the last iteration: without the look
        at the answer under the true kernel, which may take time that grows with n^2.
    """

    model: SupervisedIKDR
    seconds: float
    solved: float

    @property
    def W(self) -> Array:
        """The (d, q) components."""
        return np.asarray(self.model.components_.T)

    @property
    def iteration_seconds(self) -> float:
        """The median of the iterations between the first and the last.

        The first makes Phi twice, at the start and where that leads, and the last needs no Phi.
        Where there are no others, half of the first.
        """
        ends = [record.seconds for record in self.model.history_]
        between = np.diff(ends)[:-1]
        return float(np.median(between)) if len(between) else float(ends[0]) / 2

    @property
    def begun(self) -> float:
        """The preparation, the start and the first iteration: the same work in every fit."""
        history = self.model.history_
        return float(self.solved - history[-1].seconds + history[0].seconds)


def fit(rows: Labelled, kernel: str | Kernel, q: int = 10, **parameters: Any) -> Fit:
    """Fit W to labelled rows, by the published rules unless `parameters` have others."""
    ends: list[float] = []

    def note(_state: object) -> None:
        ends.append(time.perf_counter())

    options = {**PUBLISHED, **parameters}
    model = SupervisedIKDR(q, kernel=kernel, on_iteration=note, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ComponentsWarning)
        started = time.perf_counter()
        model.fit(rows.X, rows.y)
    return Fit(model, time.perf_counter() - started, ends[-1] - started)


def middle(fits: Sequence[Fit], what: str) -> float:
    """Return the median of an attribute of fits."""
    return float(np.median([getattr(each, what) for each in fits]))


def determined(model: SupervisedIKDR) -> int:
    """Return how many of the components the data determine."""
    values = np.asarray(model.eigenvalues_)
    return int((values > _DETERMINED * values[0]).sum())


def leading_sine(V: Array, W: Array, k: int) -> float:
    """Return the sine of the largest angle between the first k columns of V and of W."""
    return subspace_sine(V[:, :k], W[:, :k])


def phi_seconds(
    problem: Problem, engines: tuple[str, ...], q: int = 10, repeats: int = 3
) -> dict[str, float]:
    """Return the seconds of one Phi and J by each engine, at a W like those of a fit."""
    W = first_subspace(problem, q)
    calls: dict[str, Callable[[], Evaluation]] = {}
    # As in a fit: LAPACK on several threads waits by spinning.
    with single_threaded_blas():
        for name in engines:
            calls[name] = _PhiAt(first_engine(name, problem, q), W)
            calls[name]()  # the first call is another's warm-up
        return {name: median_seconds(runs) for name, runs in alternating(calls, repeats).items()}


class _PhiAt:
    """Phi and J by one engine near W, each time a hair's breadth further off."""

    def __init__(self, engine: Engine, W: Array) -> None:
        self._engine, self._W, self._calls = engine, W, 0

    def __call__(self) -> Evaluation:
        self._calls += 1
        return self._engine.phi(turned(self._W, self._calls))
