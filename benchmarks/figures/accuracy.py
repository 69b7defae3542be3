"""One function for each figure: it returns what it measured and what the figure must be."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from benchmarks.dense import dense_gaussian_fit, standardised
from ism_dask import SupervisedIKDR
from ism_dask.blas import single_threaded_blas
from ism_dask.engines import Problem, choose
from ism_dask.gamma import dependence
from ism_dask.kernels import Gaussian
from ism_dask.shards import cut
from storage import ingest

Array = NDArray[Any]
Figure = dict[str, Any]


def ten_folds(name: str, accuracy: float) -> Figure:
    """Ten-fold accuracy with the gaussian kernel, and J against the dense definition's."""
    data = ingest(name)
    X, y = data.X.read(0, len(data.X)), np.asarray(data.y)
    q = len(np.unique(y))
    scores, seconds, ratios = [], [], []
    for train, test in StratifiedKFold(10, shuffle=True, random_state=0).split(X, y):
        started = time.perf_counter()
        fitted = SupervisedIKDR(q).fit(X[train], y[train])
        seconds.append(time.perf_counter() - started)
        svm = SVC().fit(fitted.transform(X[train]), y[train])
        scores.append(svm.score(fitted.transform(X[test]), y[test]))
        dense = dense_gaussian_fit(standardised(X[train].astype(float)), y[train], q)
        ratios.append(fitted.objective_ / dense.objective)
    apart = float(np.abs(np.array(ratios) - 1).max())
    return {
        "accuracy": float(np.mean(scores)),
        "accuracy_sd": float(np.std(scores)),
        "largest_cost_difference_from_dense": apart,
        "seconds_a_fit": float(np.median(seconds)),
        "must": f"accuracy >= {accuracy:.1%}, cost within 1% of dense",
        "met": bool(np.mean(scores) >= accuracy and apart <= 0.01),
    }


def wine() -> Figure:
    """Ten-fold Wine."""
    return ten_folds("wine", 0.97)


def cancer() -> Figure:
    """Ten-fold Cancer."""
    return ten_folds("cancer", 0.965)


def face() -> Figure:
    """Ten-fold Face."""
    return ten_folds("face", 0.985)


def tiles() -> Figure:
    """Compare useful flops of one exact Phi of 20,000 x 784 float32 with plain products."""
    n, d, q = 20_000, 784, 10
    data = ingest("mnist", "train")
    X = standardised(data.X.read(0, n).astype(np.float32)).astype(np.float32)
    W = np.linalg.qr(np.random.default_rng(0).normal(size=(d, q)))[0]
    kernel = Gaussian().resolve(X[:5000])
    engine = choose("exact", Problem.of(cut(X), kernel, dependence(np.asarray(data.y)[:n])), q)
    engine.phi(W)
    runs = []
    for _ in range(9):
        # The product's rate on both sides of the fit: these machines change speed by the second.
        before = product_rate()
        started = time.perf_counter()
        engine.phi(W)
        seconds = time.perf_counter() - started
        rate = 0.5 * (before + product_rate())
        runs.append((n * n * d / seconds / rate, seconds, rate))
    ratio, seconds, rate = sorted(runs)[len(runs) // 2]
    return {
        "ratio_to_product_rate": ratio,
        "ratio_range": [min(runs)[0], max(runs)[0]],
        "seconds_a_phi": seconds,
        "product_gflops": rate / 1e9,
        "must": "ratio >= 0.60",
        "met": ratio >= 0.6,
    }


def product_rate(size: int = 4096, repeats: int = 6) -> float:
    """Return flops per second of float32 products on all cores, one BLAS thread for each."""
    rng = np.random.default_rng(1)
    A, B = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    cores = 2
    outs = [np.empty((size, 784), np.float32) for _ in range(cores)]

    def multiply(core: int) -> None:
        for _ in range(repeats):
            np.matmul(A, B[:, :784], out=outs[core])

    with single_threaded_blas(), ThreadPoolExecutor(cores) as pool:
        list(pool.map(multiply, range(cores)))
        started = time.perf_counter()
        list(pool.map(multiply, range(cores)))
        return cores * repeats * 2 * size * size * 784 / (time.perf_counter() - started)


def mnist() -> Figure:
    """Fit 9,000 of the 10,000 MNIST test images exactly; accuracy on the other 1,000."""
    data = ingest("mnist", "test")
    X, y = data.X.read(0, len(data.X)), np.asarray(data.y)
    train, test = next(iter(StratifiedKFold(10, shuffle=True, random_state=0).split(X, y)))
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        fitted = SupervisedIKDR(10, engine="exact").fit(X[train], y[train])
        seconds.append(time.perf_counter() - started)
    svm = SVC().fit(fitted.transform(X[train]), y[train])
    accuracy = svm.score(fitted.transform(X[test]), y[test])
    took = float(np.median(seconds))
    return {
        "seconds": took,
        "accuracy": float(accuracy),
        "n_iter": fitted.n_iter_,
        "objective": fitted.objective_,
        "published_seconds": 104,
        "must": "at most 10 s and 1.5 GB, accuracy >= 91%",
        "met": took <= 10 and accuracy >= 0.91,
        "peak_limit_gb": 1.5,
    }


FIGURES: dict[str, Callable[[], Figure]] = {
    figure.__name__: figure for figure in (wine, cancer, face, tiles, mnist)
}
