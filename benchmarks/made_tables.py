"""Tables that are made for the figures of ingestion: numbers, levels, gaps and a label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

_ROWS_PER_BATCH = 50_000
_NUMBERS, _GAPPY, _LEVELS = 95, 3, ("east", "north", "south", "west", "none")


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


def write_parts(folder: Path, rows: int, *, first: int = 0, rows_per_part: int = 100_000) -> None:
    """Write such a table as a folder of Parquet files."""
    folder.mkdir(exist_ok=True)
    for number, start in enumerate(range(0, rows, rows_per_part), start=first):
        part = pa.concat_tables(batches(min(rows_per_part, rows - start), number))
        pq.write_table(part, folder / f"part-{number:04d}.parquet", row_group_size=50_000)


def houses(rows: int = 20_640, seed: int = 0) -> pd.DataFrame:
    """Return a table like that of the Californian houses: eight columns and a price."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": rng.gamma(4.0, 1.0, rows),
            "age": rng.integers(1, 53, rows),
            "rooms": rng.lognormal(1.6, 0.3, rows),
            "bedrooms": rng.lognormal(0.1, 0.15, rows),
            "population": rng.lognormal(7.0, 0.7, rows),
            "occupancy": rng.lognormal(1.1, 0.2, rows),
            "latitude": rng.uniform(32.5, 42.0, rows),
            "longitude": rng.uniform(-124.3, -114.3, rows),
        }
    )
    from_coast = np.abs(frame["longitude"] + 124.0 - 0.8 * (42.0 - frame["latitude"]))
    price = 0.4 * frame["income"] + np.exp(-from_coast) + 0.2 * rng.normal(size=rows)
    return frame.assign(price=price)
