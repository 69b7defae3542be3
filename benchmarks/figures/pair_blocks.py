"""How far pairs within blocks are from all pairs, and how much faster, by the rows of a block."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.fits import Fit, fit
from benchmarks.measure import Figure, say
from benchmarks.rows import Labelled, first_subspace, labelled, mnist_train, problem_of
from flows.builtin import ingest
from ism_dask.engines import Blocks, EngineOptions, Exact, Landmarks
from ism_dask.kernels import Gaussian, Kernel, Multiquadric
from ism_dask.linalg.eigen import leading_eigenpairs
from ism_dask.linalg.subspaces import subspace_sine

_SIZES, _MOST_FITTED, _Q = (20_000, 60_000), 20_000, 5
_BLOCKS = (1000, 2500, 5000)
# A multiquadric has no low-rank factor of a useful size.
_KERNELS: dict[str, Kernel] = {"multiquadric": Multiquadric(), "gaussian": Gaussian("median")}
_WORST_SINE, _WORST_ACCURACY = 0.02, 0.002


def blocks(*sizes: str) -> Figure:
    """MNIST, 20,000 and 60,000 images from disk, q = 5: `blocks` beside `exact` and `landmarks`.

    First J, Phi and Phi W at one W, then whole fits of 20,000 images, by the published tolerance.
    Seconds are of all cores together. `sine` is of the largest angle between the leading
    eigenvectors of Phi, or between the W of the fits; `accuracy` is that of ten neighbours for the
    10,000 test images.
    """
    numbers = [int(n) for n in sizes or _SIZES]
    at_one_W = [line for n in numbers for line in _evaluations(n)]
    fits = [line for n in numbers if n <= _MOST_FITTED for line in _fits(n)]
    default = f"blocks of {Blocks().rows:,}"
    return {
        "table": at_one_W,
        "more_tables": {"Whole fits": fits} if fits else {},
        "must": (
            "blocks of the default size: J off by no more than engine_error, sine to exact at most "
            f"{_WORST_SINE}, accuracy at most {_WORST_ACCURACY} below that of exact"
        ),
        "met": all(
            line.get("J off", 0.0) <= line["engine_error"]
            and line["sine to exact"] <= _WORST_SINE
            and line.get("accuracy lost", 0.0) <= _WORST_ACCURACY
            for line in [*at_one_W, *fits]
            if line["engine"] == default
        ),
    }


def _engines(kernel: str) -> Iterator[tuple[str, EngineOptions]]:
    yield "exact", Exact()
    if kernel == "gaussian":
        yield "landmarks", Landmarks()
    for rows in _BLOCKS:
        yield f"blocks of {rows:,}", Blocks(rows=rows)


def _evaluations(n: int) -> Iterator[Figure]:
    """Yield a line for each kernel and engine: the seconds of Phi and Phi W, and what is off."""
    rows = labelled(mnist_train()).head(n).in_memory()
    for kernel_name, kernel in _KERNELS.items():
        problem = problem_of(rows, kernel, _Q)
        W, true = first_subspace(problem, _Q), None
        for name, options in _engines(kernel_name):
            say(f"{n:,} rows, {kernel_name}, {name} ...")
            (engine,) = options.engines(problem, _Q)
            engine.objective(W)  # the first call deals rows
            started = time.process_time()
            phi = engine.phi(W).phi
            between = time.process_time()
            slope = engine.gradient(W)
            ended = time.process_time()
            leading = leading_eigenpairs(phi, _Q).vectors
            true = (slope, leading) if true is None else true
            size = float(np.linalg.norm(true[0].product))
            line: Figure = {
                "n": n,
                "kernel": kernel_name,
                "engine": name,
                "cpu_seconds of Phi": between - started,
                "cpu_seconds of Phi W": ended - between,
                "engine_error": slope.error,
                "J off": abs(slope.objective / true[0].objective - 1),
                "Phi W off": float(np.linalg.norm(slope.product - true[0].product)) / size,
                "sine to exact": subspace_sine(true[1], leading),
            }
            say(str(line))
            yield line


def _fits(n: int) -> Iterator[Figure]:
    """Yield a line of the table for each kernel and engine; the first engine is exact."""
    rows = labelled(mnist_train()).head(n)
    for kernel_name, kernel in _KERNELS.items():
        fits: list[tuple[Fit, float]] = []
        for name, engine in _engines(kernel_name):
            say(f"{n:,} rows, {kernel_name}, {name} ...")
            started = time.process_time()
            ours = fit(rows, kernel, _Q, engine=engine)
            seconds = time.process_time() - started
            fits.append((ours, _accuracy(ours, rows)))
            (exact, best), model = fits[0], ours.model
            line: Figure = {
                "n": n,
                "kernel": kernel_name,
                "engine": name,
                "cpu_seconds": seconds,
                "n_iter": model.n_iter_,
                "engine_error": model.engine_error_,
                "sine to exact": subspace_sine(exact.W, ours.W),
                "accuracy": fits[-1][1],
                "accuracy lost": best - fits[-1][1],
            }
            say(str(line))
            yield line


def _accuracy(ours: Fit, rows: Labelled) -> float:
    test = labelled(ingest("mnist", "test"))
    classifier = KNeighborsClassifier(10).fit(ours.model.transform(rows.X), rows.y)
    return float(np.mean(classifier.predict(ours.model.transform(test.X)) == test.y))
