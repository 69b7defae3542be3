"""Quality and cost of the optima found by ISM, its options and the other solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import scale
from sklearn.svm import SVC

from benchmarks.fits import Fit, fit
from benchmarks.measure import Figure, say
from benchmarks.paper.dimension_growth import DimensionGrowth
from benchmarks.paper.grassmann import Grassmann
from benchmarks.paper.stiefel import Stiefel
from benchmarks.rows import Array, Labelled, labelled
from flows.builtin import ingest
from ism_dask.kernels import Gaussian, Kernel, Multiquadric, Polynomial
from ism_dask.solvers import ISM, Solver

_DATA = ("wine", "cancer", "face")
# Only the first three of ten folds are measured.
_FOLDS = 3
_CAP_SECONDS = 60.0
_FINE = ISM(tol=1e-6, max_iter=1000)
_VARIANTS: dict[str, Solver] = {
    "ism": ISM(tol=0.01),
    "ism to 1e-6": _FINE,
    "stiefel": Stiefel(max_seconds=_CAP_SECONDS),
    "grassmann": Grassmann(max_seconds=_CAP_SECONDS),
    "dimension-growth": DimensionGrowth(max_seconds=_CAP_SECONDS),
}
_OTHER_SOLVERS = ("stiefel", "grassmann", "dimension-growth")
# This variant must match the other solvers: it is the default of the library, with their start.
_JUDGED = "ism to 1e-6"
_EQUAL = 1e-6


def _narrow(rows: Array) -> Kernel:
    """Return the gaussian kernel whose width is a quarter of the median distance."""
    return Gaussian("median").resolve(scale(rows)).widened(0.25)


_KERNELS: dict[str, Callable[[Array], Kernel]] = {
    "gaussian": lambda _: Gaussian("median"),
    "polynomial": lambda _: Polynomial(degree=3),
    "multiquadric": lambda _: Multiquadric(),
    "gaussian + polynomial": lambda _: 0.5 * Gaussian("median") + 0.5 * Polynomial(degree=3),
    "gaussian, sigma / 4": _narrow,
}


def optima() -> Figure:
    """J, accuracy and seconds of ISM, its options, and the other solvers: Wine, Cancer and Face.

    Means over the first three of ten folds. `J below best` is how far J is below the largest J of
    any variant in the same fold. The other solvers have a time limit of 60 s for each fold.
    """
    cells = list(product(_DATA, _KERNELS))
    table = [line for name, kernel in cells for line in _lines(name, kernel)]
    cells_behind = [
        line["J_below_rivals"]
        for line in table
        if line["solver"] == _JUDGED and line["J_below_rivals"] > _EQUAL
    ]
    return {
        "cells": len(cells),
        "cells_behind_a_rival": len(cells_behind),
        "table": table,
        "must": f"J of {_JUDGED} at least that of the best rival in each cell, but for 1e-6 of it",
        "met": not cells_behind,
    }


def _lines(name: str, kernel: str) -> Iterator[Figure]:
    rows = labelled(ingest(name)).in_memory()
    q = len(np.unique(rows.y))
    folds = StratifiedKFold(10, shuffle=True, random_state=0).split(rows.X, rows.y)
    measured: list[dict[str, Figure]] = []
    for _, (train, test) in zip(range(_FOLDS), folds, strict=False):
        train_rows, test_rows = (Labelled(rows.X[part], rows.y[part]) for part in (train, test))
        resolved = _KERNELS[kernel](np.asarray(rows.X[train], dtype=float))
        measured.append(
            {
                variant: _measured(
                    fit(train_rows, resolved, q, solver=solver), train_rows, test_rows
                )
                for variant, solver in _VARIANTS.items()
            }
        )
    say(f"{name}, {kernel}: {_FOLDS} folds")
    for variant in _VARIANTS:
        yield {"data": name, "kernel": kernel, "solver": variant, **_means(measured, variant)}


def _measured(fitted: Fit, train_rows: Labelled, test_rows: Labelled) -> Figure:
    model = fitted.model
    svm = SVC().fit(model.transform(train_rows.X), train_rows.y)
    return {
        "J": model.objective_,
        "accuracy": svm.score(model.transform(test_rows.X), test_rows.y),
        "seconds": fitted.seconds,
        "residual": model.residual_,
        "settled": model.converged_,
    }


def _means(measured: list[dict[str, Figure]], variant: str) -> Figure:
    own = [fold[variant] for fold in measured]
    means = {key: float(np.mean([each[key] for each in own])) for key in ("accuracy", "seconds")}
    return {
        "J_below_best": _below(measured, variant, tuple(_VARIANTS)),
        "J_below_rivals": _below(measured, variant, _OTHER_SOLVERS),
        **means,
        "residual": float(np.max([each["residual"] for each in own])),
        "settled": f"{sum(each['settled'] for each in own)} of {len(own)}",
    }


def _below(measured: list[dict[str, Figure]], variant: str, others: tuple[str, ...]) -> float:
    """Return the mean share by which J is below the largest of `others`; negative if above."""
    shares = []
    for fold in measured:
        best = max(fold[other]["J"] for other in others)
        shares.append((best - fold[variant]["J"]) / abs(best))
    return float(np.mean(shares))
