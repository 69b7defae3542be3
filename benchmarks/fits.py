"""Timed fits by HSIC for the figures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.rows import Labelled
from ism_dask import ComponentsWarning, SupervisedIKDR
from ism_dask.kernels import Kernel
from ism_dask.observe import FitWatcher, watching_fits
from ism_dask.records.iteration import State
from ism_dask.solvers import ISM

Array = NDArray[Any]

# The paper's stopping rule, with one start and one width, for any kernel.
PUBLISHED: dict[str, Any] = {"solver": ISM(tol=0.01)}


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model and its seconds.

    Attributes
    ----------
    model : SupervisedIKDR
    seconds : float
        Seconds of the whole fit.
    solved : float
        Seconds from the start, preparation included, to the end of the last iteration. This leaves
        out the residual under the true kernel, whose time may grow with n^2.
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
        """The median seconds of the iterations between the first and the last.

        The first computes Phi twice, at the start and at the W that follows, and the last needs
        no Phi. If there are no others, it is half the seconds of the first.
        """
        ends = [record.seconds for record in self.model.history_]
        between = np.diff(ends)[:-1]
        return float(np.median(between)) if len(between) else float(ends[0]) / 2

    @property
    def begun(self) -> float:
        """Seconds of preparation, start and first iteration, which are the same work in any fit."""
        history = self.model.history_
        return float(self.solved - history[-1].seconds + history[0].seconds)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore the warnings of fits in the block, whose content the figures show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ComponentsWarning)
        yield


def fit(rows: Labelled, kernel: str | Kernel, q: int = 10, **parameters: Any) -> Fit:
    """Fit W to labelled rows with `PUBLISHED` parameters, which `parameters` override."""
    model = SupervisedIKDR(q, kernel=kernel, **{**PUBLISHED, **parameters})
    clock = _Clock()
    with watching_fits(clock):
        started = time.perf_counter()
        model.fit(rows.X, rows.y)
    return Fit(model, time.perf_counter() - started, clock.last - started)


class _Clock(FitWatcher):
    """Notes when the last iteration ended; it suppresses warnings, whose content figures show."""

    reports_endings = True
    last = 0.0

    def on_iteration(self, _state: State) -> None:
        self.last = time.perf_counter()


def middle(fits: Sequence[Fit], what: str) -> float:
    """Return the median of an attribute of fits."""
    return float(np.median([getattr(each, what) for each in fits]))
