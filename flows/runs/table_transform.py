"""Project a table onto the new features of a saved model, in batches, by the names of columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flows.errors import FlowError
from flows.interface.progress import report_progress
from flows.runs.drift import Drift
from flows.runs.matrix_files import Array, values_too_large
from storage import Model
from storage.tables.new_rows import NewRows, encode_new_rows, open_new_rows
from storage.tables.output_files import write_batches, write_parts
from storage.tables.schema import NUMBER, REFUSE, Feature, TableSchema
from storage.tables.sources import ArraySource, FileSource, TableSource


def transform_table(
    model: Model, source: str, out: Path, *, ignore_unseen: bool = False
) -> dict[str, Any]:
    """Write the new features of a table, with the columns to pass through, and return a summary.

    Parameters
    ----------
    model : Model
    source : str
        Path, address or glob of the table.
    out : Path
        File to write, in the format that its name ends in. Without a suffix: a new folder with a
        Parquet file for each file of the table.
    ignore_unseen : bool
        Whether a level that the model has not seen counts as none of its levels.
    """
    schema = schema_of(model)
    table = open_new_rows(source, schema)
    projection = _Projection(model, schema)

    def projected(part: TableSource) -> Iterator[pa.RecordBatch]:
        rows = encode_new_rows(part, schema, ignore_unseen=ignore_unseen)
        return projection.batches(rows, part.description)

    files: dict[str, int] = {}
    if out.suffix:
        write_batches(out, projected(table))
    else:
        parts = ((name, projected(part)) for name, part in _parts(table))
        files["files"] = write_parts(out, ".parquet", parts)
    report_progress(1.0, f"{projection.rows:,} rows")
    return {**projection.summary(), **files}


def _parts(table: TableSource) -> Iterator[tuple[str, TableSource]]:
    if isinstance(table, FileSource | ArraySource):
        return iter(table.parts())
    raise FlowError(f"{table.description} has no files to write parts for; name a file with -o")


def schema_of(model: Model) -> TableSchema:
    """Return the schema of the table that a model was fitted to, or one with its feature names."""
    if model.table is not None:
        return TableSchema.from_json(model.table)
    if model.feature_names is None:
        raise FlowError("the model has no names of features: give its rows as .npy, in their order")
    features = tuple(Feature(name, NUMBER) for name in model.feature_names)
    return TableSchema(features, (), (), (), REFUSE, (), 0, 0, "float64")


class _Projection:
    """Projects the rows of a table, in one or several parts, and counts them.

    Parameters
    ----------
    model : Model
    schema : TableSchema
    """

    def __init__(self, model: Model, schema: TableSchema) -> None:
        self._model = model
        self._names = [f"feature_{number}" for number in range(len(model.components))]
        self._drift = Drift(model)
        self.rows = self._left_out = 0
        taken = [name for name in schema.passed if name in self._names]
        if taken:
            raise FlowError(
                f"the table has a column {taken[0]!r}, as a new feature is called; rename it"
            )

    def batches(self, rows: Iterator[NewRows], source: str) -> Iterator[pa.RecordBatch]:
        """Yield the new features of rows, with the columns to pass through.

        After the last batch, raise a FlowError if rows of `source` hold values too large.
        """
        read, too_large, first = 0, 0, 0
        for batch in rows:
            # Gaps and infinite values raise an error after the last batch, which lists all.
            with np.errstate(over="ignore", invalid="ignore"):
                new = self._model.transform(np.nan_to_num(batch.X))
            finite = np.isfinite(new).all(axis=1)
            overflowing = read + np.flatnonzero(~batch.left_out)[~finite]
            if len(overflowing):
                first = first if too_large else int(overflowing[0])
                too_large += len(overflowing)
            read += len(batch.left_out)
            self._drift.add(new[finite])
            self._count(len(new), len(batch.left_out) - len(new))
            yield self._batch(new, batch.passed)
        if too_large:
            raise values_too_large(too_large, first, source)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of rows and features, and how far the rows are from the fit's."""
        return {
            "rows": self.rows,
            "n_components": len(self._names),
            "rows_left_out": self._left_out,
            "drift": self._drift.report(),
        }

    def _count(self, rows: int, left_out: int) -> None:
        self.rows += rows
        self._left_out += left_out
        report_progress(self.rows / (self.rows + 10**6), f"project, {self.rows:,} rows")

    def _batch(self, new: Array, passed: pa.RecordBatch | None) -> pa.RecordBatch:
        columns = [pa.array(column) for column in new.T]
        if passed is None:
            return pa.record_batch(columns, names=self._names)
        names = [*passed.schema.names, *self._names]
        return pa.record_batch([*passed.columns, *columns], names)
