"""Fit a million rows on two workers of 2 GB: restarts, peak memory and seconds for each row."""

from __future__ import annotations

import psutil

from benchmarks.clusters import local_cluster, restarts, worker_pids
from benchmarks.fits import Fit, fit
from benchmarks.measure import Figure, PeakMemory, say
from benchmarks.plans import recorded_plans
from benchmarks.rows import Labelled, labelled
from benchmarks.shifted import shifted_mnist
from ism_dask.kernels import Gaussian, Kernel, Polynomial

_FEW = 60_000
_WORKERS, _LIMIT = 2, "2GB"
_MEMORY_RATIO, _TIME_RATIO = 1.2, 1.3
_KERNELS: dict[str, Kernel] = {"gaussian": Gaussian("median"), "polynomial": Polynomial(degree=3)}


def scale() -> Figure:
    """Fit 1,000,000 x 784 bytes: MNIST train shifted by up to two pixels, q = 10, default engine.

    Two worker processes of one thread and 2 GB each. `predicted` is the memory of a worker after
    its imports plus the memory that the library plans for it before the first tile; `peak` is the
    largest memory of any worker. Seconds a row are those of the whole fit. As the number of
    iterations depends on the data, `begun` (preparation, start and first iteration) must meet the
    same ratio.
    """
    return scale_of(1_000_000)


def scale_of(rows: int) -> Figure:
    """Measure the figure with this many rows."""
    data = labelled(shifted_mnist(rows))
    lines = [_measured(name, kernel, data) for name, kernel in _KERNELS.items()]
    return {
        "n": rows,
        "table": lines,
        "must": (
            "no restart; peak of a worker at most 1.2 times as predicted; seconds a row at most "
            "1.3 times those at 60,000 rows"
        ),
        "met": all(line["ok"] for line in lines),
    }


def _measured(name: str, kernel: Kernel, data: Labelled) -> Figure:
    # Each kernel has fresh workers, so that their memory depends on its own fits only.
    with local_cluster(_WORKERS, _LIMIT) as client:
        before = worker_pids(client)
        memory_before = max(psutil.Process(pid).memory_info().rss for pid in before)
        few = fit(data.head(_FEW), kernel)
        say(f"{name}, {_FEW:,} rows: {few.seconds:.1f} s; now {len(data.y):,} ...")
        with recorded_plans(client) as plans, PeakMemory(before) as memory:
            many = fit(data, kernel)
        say(f"{name}: {many.seconds:.1f} s")
        restart_count = restarts(client) + (worker_pids(client) != before)
    peak, predicted = max(memory.each.values()), memory_before + max(plans)
    line = {
        "kernel": name,
        "restarts": restart_count,
        "peak_mb": peak / 1e6,
        "predicted_mb": predicted / 1e6,
        "peak_by_predicted": peak / predicted,
        **_per_row(few, _FEW, many, len(data.y)),
        **_fit_facts(many, len(data.y)),
    }
    within = max(line["row_ratio"], line["begun_ratio"]) <= _TIME_RATIO
    return {**line, "ok": bool(restart_count == 0 and peak <= _MEMORY_RATIO * predicted and within)}


def _fit_facts(many: Fit, n: int) -> Figure:
    model = many.model
    return {
        "seconds": many.seconds,
        "solved_seconds": many.solved,
        "n_iter": model.n_iter_,
        "engine": model.engine_,
        "engine_error": model.engine_error_,
        "residual": model.residual_,
        "residual_on": _residual_method(many, n),
    }


def _residual_method(many: Fit, n: int) -> str:
    """Return how the residual was computed, in words."""
    model = many.model
    if model.engine_error_ == 0:
        return "all rows, the engine being exact"
    if model.report_.residual_rows == n:
        return "all pairs of rows, under the true kernel"
    return f"{model.report_.residual_rows:,} random rows against all, under the true kernel"


def _per_row(few: Fit, fewer: int, many: Fit, more: int) -> Figure:
    """Return microseconds a row of both whole fits, and the ratios of these and of `begun`."""
    base, whole = 1e6 * few.seconds / fewer, 1e6 * many.seconds / more
    return {
        f"us_a_row_at_{fewer}": base,
        "us_a_row": whole,
        "row_ratio": whole / base,
        f"n_iter_at_{fewer}": few.model.n_iter_,
        "begun_ratio": (many.begun / more) / (few.begun / fewer),
    }
