"""The paper's data sets: ten-fold accuracy, and the time of a fit to all rows."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from benchmarks.dense import dense_gaussian_fit, standardised
from benchmarks.fits import PUBLISHED, Fit, fit
from benchmarks.measure import Figure, alternating, median_seconds
from benchmarks.rows import labelled
from flows.builtin import ingest
from ism_dask import SupervisedIKDR
from ism_dask.kernels import Gaussian, Kernel, Polynomial

# Most milliseconds of a fit to all rows.
_SMALL = {"wine": 10, "cancer": 50, "face": 300}
_FITS = 30
_GAUSSIAN = Gaussian("median")


def ten_folds(name: str, accuracy: float) -> Figure:
    """Measure ten-fold accuracy with the gaussian kernel, and compare J with the dense fit's."""
    data = ingest(name)
    X, y = data.X.read(0, len(data.X)), np.asarray(data.y)
    q = len(np.unique(y))
    scores, seconds, ratios = [], [], []
    for train, test in StratifiedKFold(10, shuffle=True, random_state=0).split(X, y):
        started = time.perf_counter()
        fitted = SupervisedIKDR(q, kernel=_GAUSSIAN, **PUBLISHED).fit(X[train], y[train])
        seconds.append(time.perf_counter() - started)
        svm = SVC().fit(fitted.transform(X[train]), y[train])
        scores.append(svm.score(fitted.transform(X[test]), y[test]))
        dense = dense_gaussian_fit(standardised(X[train].astype(float)), y[train], q)
        ratios.append(fitted.objective_ / dense.objective)
    largest_difference = float(np.abs(np.array(ratios) - 1).max())
    return {
        "accuracy": float(np.mean(scores)),
        "accuracy_sd": float(np.std(scores)),
        "largest_cost_difference_from_dense": largest_difference,
        "seconds_a_fit": float(np.median(seconds)),
        "must": f"accuracy >= {accuracy:.1%}, cost within 1% of dense",
        "met": bool(np.mean(scores) >= accuracy and largest_difference <= 0.01),
    }


def wine() -> Figure:
    """Ten-fold accuracy on Wine, and its cost compared with the dense definition."""
    return ten_folds("wine", 0.97)


def cancer() -> Figure:
    """Ten-fold accuracy on Cancer, and its cost compared with the dense definition."""
    return ten_folds("cancer", 0.965)


def face() -> Figure:
    """Ten-fold accuracy on Face, and its cost compared with the dense definition."""
    return ten_folds("face", 0.985)


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
