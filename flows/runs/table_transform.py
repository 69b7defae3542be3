"""Project a table onto the new features of a saved model, in batches, by the names of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flows.errors import FlowError
from flows.interface.progress import report_progress
from flows.runs.matrix_files import values_too_large
from storage import Model
from storage.tables.new_rows import NewRows, encode_new_rows, open_new_rows
from storage.tables.output_files import write_batches
from storage.tables.schema import NUMBER, REFUSE, Feature, TableSchema


@dataclass
class _Counts:
    """Numbers of rows: written, and left out since they lack a value."""

    rows: int = 0
    left_out: int = 0

    @property
    def read(self) -> int:
        """The number of rows read so far."""
        return self.rows + self.left_out


def transform_table(
    model: Model, source: str, out: Path, *, ignore_unseen: bool = False
) -> dict[str, Any]:
    """Write the new features of a table, with the columns to pass through, and return counts.

    Parameters
    ----------
    model : Model
    source : str
        Path, address or glob of the table.
    out : Path
        File to write, in the format that its name ends in.
    ignore_unseen : bool
        Whether a level that the model has not seen counts as none of its levels.
    """
    schema = schema_of(model)
    counts = _Counts()
    table = open_new_rows(source, schema)
    names = [f"feature_{number}" for number in range(len(model.components))]
    _check_names(names, schema)
    batches = encode_new_rows(table, schema, ignore_unseen=ignore_unseen)
    write_batches(out, _projected(model, batches, names, counts, table.description))
    report_progress(1.0, f"{counts.rows:,} rows")
    return {
        "rows": counts.rows,
        "n_components": len(model.components),
        "rows_left_out": counts.left_out,
    }


def schema_of(model: Model) -> TableSchema:
    """Return the schema of the table that a model was fitted to, or one with its feature names."""
    if model.table is not None:
        return TableSchema.from_json(model.table)
    if model.feature_names is None:
        raise FlowError("the model has no names of features: give its rows as .npy, in their order")
    features = tuple(Feature(name, NUMBER) for name in model.feature_names)
    return TableSchema(features, (), (), (), REFUSE, (), 0, 0, "float64")


def _check_names(names: list[str], schema: TableSchema) -> None:
    """Raise a FlowError if a column to pass through has the name of a new feature."""
    taken = [name for name in schema.passed if name in names]
    if taken:
        raise FlowError(
            f"the table has a column {taken[0]!r}, as a new feature is called; rename it"
        )


def _projected(
    model: Model, batches: Iterator[NewRows], names: list[str], counts: _Counts, source: str
) -> Iterator[pa.RecordBatch]:
    too_large, first = 0, 0
    for batch in batches:
        # Gaps and infinite values raise an error after the last batch, which lists all of them.
        with np.errstate(over="ignore", invalid="ignore"):
            new = model.transform(np.nan_to_num(batch.X))
        numbers = counts.read + np.flatnonzero(~batch.left_out)
        overflowing = numbers[~np.isfinite(new).all(axis=1)]
        if len(overflowing):
            first = first if too_large else int(overflowing[0])
            too_large += len(overflowing)
        counts.rows += len(new)
        counts.left_out += len(batch.left_out) - len(new)
        report_progress(counts.rows / (counts.rows + 10**6), f"project, {counts.rows:,} rows")
        columns = [pa.array(column) for column in new.T]
        if batch.passed is None:
            yield pa.record_batch(columns, names=names)
        else:
            passed = batch.passed
            yield pa.record_batch([*passed.columns, *columns], [*passed.schema.names, *names])
    if too_large:
        raise values_too_large(too_large, first, source)
