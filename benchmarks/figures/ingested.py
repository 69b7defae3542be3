"""Tables of one's own: how fast they are read, grow, are fitted and projected."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.made_tables import houses, write_csv, write_parts
from benchmarks.measure import Figure, high_water, say

_REPEATS = 3
_CSV_ROWS, _PARQUET_ROWS = 500_000, 2_000_000
_PEAK_GB = 1.0


@dataclass(frozen=True)
class Spent:
    """What a call took in a process of its own, and what it returned."""

    seconds: float
    peak_gb: float
    value: Any = None


def ingest_csv() -> Figure:
    """Read a CSV of 500,000 x 100 with levels and gaps, fit W (gaussian), and project its rows."""
    with _home() as folder:
        path = folder / "made.csv"
        _spent(write_csv, path, _CSV_ROWS)
        return _rates(path, "csv")


def ingest_parquet() -> Figure:
    """Read a Parquet folder of 2,000,000 x 100, fit W (gaussian), and project its rows."""
    with _home() as folder:
        _spent(write_parts, folder / "made", _PARQUET_ROWS)
        return _rates(folder / "made", "parquet")


def ingest_workers() -> Figure:
    """Read a Parquet folder of 1,000,000 x 100 by one and by two Dask workers of one thread."""
    with _home() as folder:
        _spent(write_parts, folder / "made", _PARQUET_ROWS // 2)
        seconds = {1: [], 2: []}
        for _ in range(_REPEATS):
            for workers, known in seconds.items():
                known.append(_spent(_ingest_on_workers, folder / "made", workers).value)
                say(f"{workers} workers: {known[-1]:.1f} s")
    ratio = float(np.median(np.divide(seconds[1], seconds[2])))
    return {
        "one_worker_seconds": float(np.median(seconds[1])),
        "two_workers_seconds": float(np.median(seconds[2])),
        "ratio": ratio,
        "must": "two workers 1.6 times as fast as one",
        "met": ratio >= 1.6,
    }


def ingest_grown() -> Figure:
    """Read and fit a Parquet folder of 2,000,000 x 100 again when it has grown by 1%."""
    with _home() as folder:
        source = folder / "made"
        _spent(write_parts, source, _PARQUET_ROWS)
        first = _spent(_ingest, source, "drop")
        cold = _spent(_fit, "cold", None)
        write_parts(source, _PARQUET_ROWS // 100, first=9_000)
        again = _spent(_ingest, source, "drop")
        warm, afresh = _spent(_fit, "warm", "cold"), _spent(_fit, "afresh", None)
    ratio = again.seconds / first.seconds
    return {
        "first_seconds": first.seconds,
        "again_seconds": again.seconds,
        "ratio": ratio,
        "cold_fit_seconds": cold.seconds,
        "warm_iterations": warm.value,
        "cold_iterations": afresh.value,
        "warm_fit_seconds": warm.seconds,
        "cold_again_seconds": afresh.seconds,
        "must": "the second ingestion takes 5% of the first",
        "met": ratio <= 0.05,
    }


def newcomer() -> Figure:
    """Three commands from a CSV file to a report, for three tables, as a new user would."""
    from sklearn.datasets import load_breast_cancer, load_diabetes  # noqa: PLC0415

    tables = {
        "houses": (houses(), "price"),
        "diabetes": (load_diabetes(as_frame=True).frame, "target"),
        "cancer_names": (load_breast_cancer(as_frame=True).frame, "target"),
    }
    lines = []
    with _home() as folder:
        for name, (frame, label) in tables.items():
            frame.to_csv(folder / f"{name}.csv", index=False)
            numbers = ("--target", "numbers") if label != "target" or name == "diabetes" else ()
            commands = {
                "ingest": (folder / f"{name}.csv", "--label", label, *numbers, "--plain"),
                "fit": (name, "-q", "2", "--run", f"{name}-two", "--plain"),
                "report": (f"{name}-two", "-o", folder / f"{name}.html"),
            }
            seconds = {each: _command_seconds(each, *words) for each, words in commands.items()}
            rows = f"{len(frame):,} x {len(frame.columns) - 1}"
            lines.append({"table": name, "rows": rows, **seconds})
    return {"table": lines, "must": "no target: seconds of each command", "met": True}


def _command_seconds(*words: object) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "flows.cli", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def _rates(source: Path, kind: str) -> Figure:
    """Return the figures of a table: its rates beside that at which pyarrow reads it."""
    reads, ingests = [], []
    for _ in range(_REPEATS):
        reads.append(_spent(_read, source, kind))
        ingests.append(_spent(_ingest, source, "mean"))
        say(f"read {reads[-1].seconds:.1f} s, ingest {ingests[-1].seconds:.1f} s")
    fit = _spent(_fit, "two", None)
    out = source.with_name("new.parquet")
    transform = _spent(_transform, source, out)
    read = float(np.median([each.seconds for each in reads]))
    pairs = zip(reads, ingests, strict=True)
    rate = float(np.median([one.seconds / other.seconds for one, other in pairs]))
    peak = max(each.peak_gb for each in [*ingests, transform])
    return {
        "pyarrow_seconds": read,
        "ingest_seconds": float(np.median([each.seconds for each in ingests])),
        "ingest_rate": rate,
        "transform_seconds": transform.seconds,
        "transform_rate": read / transform.seconds,
        "ingest_and_transform_peak_gb": peak,
        "fit_seconds": fit.seconds,
        "fit_iterations": fit.value,
        "fit_peak_gb": fit.peak_gb,
        "must": "ingest and transform at half the rate of pyarrow, within 1 GB",
        "met": min(rate, read / transform.seconds) >= 0.5 and peak <= _PEAK_GB,
    }


@contextmanager
def _home() -> Iterator[Path]:
    """Give a folder that is the home of the package within the block."""
    with TemporaryDirectory() as name, patch.dict(os.environ, ISM_DASK_HOME=f"{name}/home"):
        yield Path(name)


def _spent(call: Callable[..., Any], *given: Any) -> Spent:
    """Call a function in a process of its own; the seconds are those of the call alone."""
    # Not a Pool: its processes may not start workers.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, partial(call, *given)).result()


def _measured(call: Callable[[], Any]) -> Spent:
    _warm_imports()
    began = time.perf_counter()
    value = call()
    return Spent(time.perf_counter() - began, high_water(os.getpid()) / 1e9, value)


def _warm_imports() -> None:
    """Import what ingestion needs, which is no part of its rate."""
    import flows.runs.fit  # noqa: PLC0415
    import flows.runs.table_ingestion  # noqa: F401, PLC0415


def _read(source: Path, kind: str) -> int:
    """Read a table with pyarrow alone; return the number of rows."""
    import pyarrow.dataset as pa_dataset  # noqa: PLC0415

    table = pa_dataset.dataset(source, format=kind)
    return sum(batch.num_rows for batch in table.to_batches())


def _ingest(source: Path, missing: str) -> int:
    from storage import ingest_table  # noqa: PLC0415

    data = ingest_table(source, "made", label="y", missing=missing, force=True)
    return len(data.X)


def _ingest_on_workers(source: Path, workers: int) -> float:
    """Return the seconds in which workers ingest a table; starting them does not count."""
    from benchmarks.clusters import local_cluster  # noqa: PLC0415
    from storage import ingest_table  # noqa: PLC0415

    with local_cluster(workers) as client:
        client.run(_warm_imports)
        began = time.perf_counter()
        ingest_table(
            source, "made", label="y", missing="mean", force=True,
            executor=client.get_executor(pure=False),
        )  # fmt: skip
        return time.perf_counter() - began


def _fit(run: str, start_from: str | None) -> int:
    """Fit two features with a gaussian of median width; return the number of iterations."""
    from flows.runs.fit import run_fit  # noqa: PLC0415
    from flows.settings.runs import FitSettings  # noqa: PLC0415

    settings = FitSettings(
        dataset="made", n_components=2, sigma="median", run=run,
        start_from=start_from, force=True,
    )  # fmt: skip
    return run_fit(settings).iterations


def _transform(source: Path, out: Path) -> None:
    from flows.runs.transform import transform_rows  # noqa: PLC0415
    from flows.settings.base import TransformSettings  # noqa: PLC0415

    transform_rows("two", TransformSettings(source=str(source), out=out))
