"""Speed-up by worker processes, and bitwise equality of W on one, two and four and on threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.clusters import local_cluster
from benchmarks.fits import Fit, fit, middle
from benchmarks.measure import Figure, alternating
from benchmarks.rows import Labelled, labelled, mnist_train
from ism_dask.kernels import Gaussian, Kernel, Polynomial

_REPEATS = 3
_WARM_UP_ROWS = 16_384
_KERNELS: dict[str, Kernel] = {"gaussian": Gaussian("median"), "polynomial": Polynomial(degree=3)}


def workers() -> Figure:
    """MNIST, 60,000 training images, on clusters of worker processes with one thread each.

    Every run has a Dask cluster of its own, which fits some rows before the clock starts. `fit`
    includes the residual of the answer under the true kernel, `solved` does not.
    """
    rows = labelled(mnist_train())
    lines = [_compared(name, kernel, rows) for name, kernel in _KERNELS.items()]
    return {
        "table": lines,
        "must": "two workers 1.7 times as fast as one; the same bits on 1, 2, 4 and on threads",
        "met": all(line["same_bits"] and line["fit_ratio"] >= 1.7 for line in lines),
    }


def _compared(name: str, kernel: Kernel, rows: Labelled) -> Figure:
    calls: dict[str, Callable[[], Fit]] = {
        f"{name}, {count} workers": partial(_fit_on_workers, count, rows, kernel)
        for count in (1, 2)
    }
    one, two = ([run.value for run in runs] for runs in alternating(calls, _REPEATS).values())
    others = [_fit_on_workers(4, rows, kernel), fit(rows, kernel)]
    first = one[0].model.components_
    return {
        "kernel": name,
        "one_fit_seconds": middle(one, "seconds"),
        "two_fit_seconds": middle(two, "seconds"),
        "fit_ratio": middle(one, "seconds") / middle(two, "seconds"),
        "one_solved_seconds": middle(one, "solved"),
        "two_solved_seconds": middle(two, "solved"),
        "solved_ratio": middle(one, "solved") / middle(two, "solved"),
        "threads_fit_seconds": others[-1].seconds,
        "same_bits": all(
            np.array_equal(first, each.model.components_) for each in (*one, *two, *others)
        ),
    }


def _fit_on_workers(count: int, rows: Labelled, kernel: Kernel) -> Fit:
    with local_cluster(count):
        fit(rows.head(_WARM_UP_ROWS), kernel)
        return fit(rows, kernel)
