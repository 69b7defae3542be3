"""Seconds of fits by HSIC to the small data sets of the paper, and to 9,000 images."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from benchmarks.fits import PUBLISHED, Fit, fit
from benchmarks.measure import Figure, alternating, median_seconds
from benchmarks.registry import figure
from benchmarks.rows import labelled
from flows.builtin import ingest
from ism_dask import SupervisedIKDR
from ism_dask.kernels import Gaussian, Kernel, Polynomial

# Most milliseconds of a fit to all rows.
_SMALL = {"wine": 10, "cancer": 50, "face": 300}
_FITS = 30
_GAUSSIAN = Gaussian("median")


@figure
def mnist() -> Figure:
    """Fit 9,000 of the 10,000 MNIST test images exactly; accuracy on the other 1,000."""
    data = ingest("mnist", "test")
    X, y = data.X.read(0, len(data.X)), np.asarray(data.y)
    train, test = next(iter(StratifiedKFold(10, shuffle=True, random_state=0).split(X, y)))
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        fitted = SupervisedIKDR(10, kernel=_GAUSSIAN, engine="exact", **PUBLISHED).fit(
            X[train], y[train]
        )
        seconds.append(time.perf_counter() - started)
    svm = SVC().fit(fitted.transform(X[train]), y[train])
    accuracy = svm.score(fitted.transform(X[test]), y[test])
    median_time = float(np.median(seconds))
    return {
        "seconds": median_time,
        "accuracy": float(accuracy),
        "n_iter": fitted.n_iter_,
        "objective": fitted.objective_,
        "published_seconds": 104,
        "must": "at most 10 s and 1.5 GB, accuracy >= 91%",
        "met": median_time <= 10 and accuracy >= 0.91,
        "peak_limit_gb": 1.5,
    }


@figure
def small() -> Figure:
    """Fits to all rows of Wine, Cancer and Face (624 x 960: more columns than rows)."""
    lines = [
        _small(name, kernel, kernel_name, limit)
        for name, limit in _SMALL.items()
        for kernel_name, kernel in (("gaussian", _GAUSSIAN), ("polynomial", Polynomial(degree=3)))
    ]
    return {
        "table": lines,
        "must": "Wine 10 ms, Cancer 50 ms, Face 300 ms, with either kernel",
        "met": all(line["milliseconds"] <= line["required"] for line in lines),
    }


def _small(name: str, kernel: Kernel, kernel_name: str, limit: float) -> Figure:
    rows = labelled(ingest(name)).in_memory()
    once = partial(fit, rows, kernel, len(np.unique(rows.y)))
    warm: Fit = once()
    runs = alternating({name: once}, _FITS)[name]
    return {
        "data": name,
        "kernel": kernel_name,
        "rows": "{} x {}".format(*rows.X.shape),
        "milliseconds": 1e3 * median_seconds(runs),
        "required": limit,
        "n_iter": warm.model.n_iter_,
        "engine": warm.model.engine_,
    }
