"""Tables of one's own: how fast they are read, grow, are fitted and projected."""

from __future__ import annotations

import os
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
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.measure import Figure, high_water, say
from benchmarks.registry import figure

_REPEATS = 3
_CSV_ROWS, _PARQUET_ROWS = 500_000, 2_000_000
_PEAK_GB = 1.0
# The made tables: rows of a batch and of a file, and their columns.
_ROWS_PER_BATCH, _ROWS_PER_PART = 50_000, 100_000
_NUMBERS, _GAPPY, _LEVELS = 95, 3, ("east", "north", "south", "west", "none")


@dataclass(frozen=True)
class Spent:
    """What a call took in a process of its own, and what it returned."""

    seconds: float
    peak_gb: float
    value: Any = None


@figure
def ingest_csv() -> Figure:
    """Read a CSV of 500,000 x 100 with levels and gaps, fit W (gaussian), and project its rows."""
    with _home() as folder:
        path = folder / "made.csv"
        _spent(write_csv, path, _CSV_ROWS)
        return _rates(path, "csv")


@figure
def ingest_parquet() -> Figure:
    """Read a Parquet folder of 2,000,000 x 100, fit W (gaussian), and project its rows."""
    with _home() as folder:
        _spent(write_parts, folder / "made", _PARQUET_ROWS)
        return _rates(folder / "made", "parquet")


def _rates(source: Path, kind: str) -> Figure:
    """Return the figures of a table: its rates beside that at which pyarrow reads it."""
    reads, ingests = [], []
    for _ in range(_REPEATS):
        reads.append(_spent(_read, source, kind))
        ingests.append(_spent(_ingest, source))
        say(f"read {reads[-1].seconds:.1f} s, ingest {ingests[-1].seconds:.1f} s")
    fit = _spent(_fit)
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


def _ingest(source: Path) -> int:
    from storage import ingest_table  # noqa: PLC0415

    return len(ingest_table(source, "made", label="y", missing="mean", force=True).X)


def _fit() -> int:
    """Fit two features with a gaussian of median width; return the number of iterations."""
    from flows.runs.fit import run_fit  # noqa: PLC0415
    from flows.settings.runs import FitSettings  # noqa: PLC0415

    settings = FitSettings(dataset="made", n_components=2, sigma="median", run="two", force=True)
    return run_fit(settings).iterations


def _transform(source: Path, out: Path) -> None:
    from flows.runs.transform import transform_rows  # noqa: PLC0415
    from flows.settings.base import TransformSettings  # noqa: PLC0415

    transform_rows("two", TransformSettings(source=str(source), out=out))


def batches(rows: int, seed: int = 0) -> Iterator[pa.Table]:
    """Yield a table of `rows` x 100 in batches.

    95 columns are numbers, of which three lack one value in a hundred, four are texts of five
    levels, and the last is the label `y`.
    """
    for number, start in enumerate(range(0, rows, _ROWS_PER_BATCH)):
        yield _batch(min(_ROWS_PER_BATCH, rows - start), np.random.default_rng([seed, number]))


def _batch(rows: int, rng: np.random.Generator) -> pa.Table:
    columns = {}
    for j in range(_NUMBERS):
        values = rng.normal(size=rows).round(4)
        if j < _GAPPY:
            values[rng.random(rows) < 0.01] = np.nan
        columns[f"x_{j}"] = pa.array(values, from_pandas=True)
    for j in range(4):
        columns[f"level_{j}"] = pa.array(rng.choice(_LEVELS, rows))
    sums = columns["x_5"].to_numpy() * columns["x_6"].to_numpy()
    columns["y"] = pa.array(np.where(sums > 0, "yes", "no"))
    return pa.table(columns)


def write_csv(path: Path, rows: int) -> None:
    """Write such a table as a CSV file."""
    writer = None
    for batch in batches(rows):
        writer = writer or pa_csv.CSVWriter(path, batch.schema)
        writer.write_table(batch)
    if writer is not None:
        writer.close()


def write_parts(folder: Path, rows: int) -> None:
    """Write such a table as a folder of Parquet files."""
    folder.mkdir(exist_ok=True)
    for number, start in enumerate(range(0, rows, _ROWS_PER_PART)):
        part = pa.concat_tables(batches(min(_ROWS_PER_PART, rows - start), number))
        pq.write_table(part, folder / f"part-{number:04d}.parquet", row_group_size=50_000)
