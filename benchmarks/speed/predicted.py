"""Seconds and memory of the default fit, from small tables to a million rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.svm import SVC

from benchmarks.fits import quiet
from benchmarks.local_cluster import local_cluster, restarts
from benchmarks.measure import Figure, PeakMemory, Run, alternating, median_seconds, say, timed
from benchmarks.registry import figure, long_figure
from benchmarks.rows import Labelled, labelled, mnist_train, shifted_mnist
from benchmarks.studies.heldout import rows_in_memory
from ism_dask import PredictiveIKDR, SupervisedIKDR

_REPEATS = 3
_JUDGED_ROWS = 6_000
_MANY, _FEW = 1_000_000, 60_000
_LIMIT = "2GB"
_FASTER, _FLAT = 1.8, 1.3


@dataclass(frozen=True)
class _Small:
    """A data set of few rows, the number of new features, and the seconds that a fit may take."""

    data: str
    q: int
    seconds: float
    rows: int | None = None


_SMALL = (
    _Small("wine", 2, 0.15),
    _Small("cancer", 1, 0.4),
    _Small("digits", 2, 1.2),
    _Small("face", 5, 2.5),
    _Small("mnist", 2, 2.5, rows=2_500),
)


def _fitted(rows: Labelled, q: int) -> SupervisedIKDR:
    with quiet():
        return PredictiveIKDR(q).fit(rows.X, rows.y)


@figure
def quick() -> Figure:
    """Seconds of `PredictiveIKDR(q).fit(X, y)` on small tables: medians of three fits."""
    lines: list[Figure] = []
    for case in _SMALL:
        rows = rows_in_memory(case.data)
        rows = rows.head(case.rows) if case.rows else rows
        fits = alternating({case.data: lambda r=rows, q=case.q: _fitted(r, q)}, _REPEATS)[case.data]
        seconds, model = median_seconds(fits), fits[0].value
        lines.append(
            {
                "data": case.data,
                "q": case.q,
                "seconds": seconds,
                "required": case.seconds,
                "steps": model.n_iter_,
                "status": model.status_.name,
                "ok": seconds <= case.seconds,
            }
        )
        say(f"{case.data}: {seconds:.2f} s")
    return {
        "table": lines,
        "must": "seconds as the table has it",
        "met": all(line["ok"] for line in lines),
    }


@figure
def predicted60k() -> Figure:
    """Fit MNIST's 60,000 training images by default, from memory and from the stored rows.

    The accuracy is that of an RBF-SVM on X W of 6,000 training images, on the 10,000 test images.
    """
    stored, test = labelled(mnist_train()), rows_in_memory("mnist", "test")
    here = stored.in_memory()
    lines = [
        _large_line("memory, q = 5", here, 5, test, seconds=9, accuracy=0.916),
        _large_line("Zarr, q = 5", stored, 5, test, seconds=9, accuracy=0.916),
        _large_line("Zarr, q = 2", stored, 2, test, seconds=9, accuracy=0.77),
    ]
    return {
        "table": lines,
        "peak_limit_gb": 1.5,
        "must": "9 s, 1.5 GB; accuracy .916 (q = 5) and .77 (q = 2)",
        "met": all(line["ok"] for line in lines),
    }


def _large_line(
    name: str, rows: Labelled, q: int, test: Labelled, *, seconds: float, accuracy: float
) -> Figure:
    run = timed(lambda: _fitted(rows, q))
    some = rows.head(_JUDGED_ROWS).in_memory()
    svm = SVC().fit(run.value.transform(some.X), some.y)
    score = float(svm.score(run.value.transform(test.X), test.y))
    say(f"{name}: {run.seconds:.1f} s, {score:.3f}")
    return {
        "rows": name,
        "seconds": run.seconds,
        "steps": run.value.n_iter_,
        "accuracy": score,
        "ok": bool(run.seconds <= seconds and score >= accuracy),
    }


@long_figure
def predicted_scale() -> Figure:
    """Fit 1,000,000 x 784 bytes by default, q = 5, on workers of one thread and 2 GB each.

    MNIST's training images, shifted by up to two pixels. One worker and two fit the same rows.
    """
    data = labelled(shifted_mnist(_MANY))
    few = _on_workers(2, data.head(_FEW))
    one, two = _on_workers(1, data), _on_workers(2, data)
    flat = (two["seconds"] / _MANY) / (few["seconds"] / _FEW)
    faster = one["seconds"] / two["seconds"]
    ok = two["seconds"] <= 80 and faster >= _FASTER and flat <= _FLAT
    return {
        "table": [few, one, two],
        "two_workers_faster": faster,
        "seconds_a_row_by_those_of_60,000": flat,
        "same_bits": bool(one["objective"] == two["objective"]),
        "must": f"80 s on two workers, {_FASTER} times one worker, seconds a row flat, no restart",
        "met": bool(ok and not (one["restarts"] or two["restarts"])),
    }


def _on_workers(workers: int, rows: Labelled) -> Figure:
    with local_cluster(workers, _LIMIT) as client, PeakMemory() as peak:
        run: Run[Any] = timed(lambda: _fitted(rows, 5))
        say(f"{len(rows.y):,} rows on {workers}: {run.seconds:.0f} s")
        return {
            "rows": len(rows.y),
            "workers": workers,
            "seconds": run.seconds,
            "steps": run.value.n_iter_,
            "objective": run.value.objective_,
            "restarts": restarts(client),
            "peak_gb": peak.together / 1e9,
        }
