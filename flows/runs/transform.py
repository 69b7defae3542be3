"""Project the rows of a data set or of a table onto the new features of a saved model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flows.errors import FlowError, SettingsError
from flows.progress.watching import report_progress
from flows.reports.summary import View
from flows.results.runs import ExplainedRow
from flows.runs.data import ensure_stored, explained_row
from flows.settings.base import MATRIX, TransformSettings
from flows.settings.choices import is_table
from ism_dask.rows.raw import ColumnMoments
from ism_dask.threads import single_threaded_blas
from storage import Dataset, Model, ZarrRows, load_model
from storage.tables.encoding import Problems
from storage.tables.files import format_suffix, has_part
from storage.tables.formats import open_table
from storage.tables.new_rows import check_columns, encode_new_rows, ignored_columns, open_new_rows
from storage.tables.output_files import write_batches
from storage.tables.schema import NUMBER, Column, TableOptions, TableSchema
from storage.tables.sources import Part, Table, map_in_order, matrix_table, threads_of_this_process

Array = NDArray[Any]
# Rows of float32 and the same rows of float64 differ by less than this share of the range.
_ROUNDING = 1e-5
# Pieces that threads of this process project at a time, or whose new features wait to be written.
_PIECES_AT_WORK = 8

# A batch of rows projected: how many were read, the columns to write, and the new features (m, q).
Batch = tuple[int, pa.RecordBatch, Array]


@dataclass(eq=False)
class Projection:
    """Projects a table by a model, and holds what is known of its rows."""

    model: Model
    schema: TableSchema  # of the table that the model was fitted to
    passed: tuple[str, ...]  # columns that are passed through
    problems: Problems  # why rows do not fit the schema
    read: int = 0
    rows: int = 0  # those that were projected; the others lack a value
    outside: Any = 0  # of each new feature, the rows out of the range of the fit
    moments: list[ColumnMoments] = field(default_factory=list)  # of the new features, by batch

    def batches(self, part: Part, problems: Problems) -> Iterator[Batch]:
        """Yield the rows of a part of the table, in batches; add what does not fit to `problems`.

        The columns to write are those that are passed through, and the new features.
        """
        for batch in encode_new_rows(part, self.schema, problems, self.passed):
            # Gaps and infinite values are among the problems of the rows. There are hardly any, and
            # to replace them takes long.
            finite = np.isfinite(batch.X)
            X = batch.X if finite.all() else np.where(finite, batch.X, batch.X.dtype.type(0))
            # With one thread, the bits do not depend on the cores.
            with np.errstate(over="ignore", invalid="ignore"), single_threaded_blas():
                new = self.model.transform(X)
            names = [*batch.passed.schema.names, *self.model.get_feature_names_out()]
            columns = [*batch.passed.columns, *map(pa.array, new.T)]
            yield batch.read, pa.record_batch(columns, names), new

    def project(self, part: Part) -> tuple[Problems, Iterable[Batch]]:
        """Return what does not fit in a part of the table, and its rows."""
        problems = Problems(self.problems.ignore_unseen)
        return problems, list(self.batches(part, problems))

    def count(self, read: int, new: Array) -> None:
        """Count rows that were read, and those whose new features (m, q) are beyond the fit's."""
        self.read += read
        self.rows += len(new)
        finite = np.isfinite(new).all(axis=1)
        if not finite.all():
            self.problems.infinite["the projection"] += int(np.count_nonzero(~finite))
        learned = self.model.statistics
        if learned is None or not finite.any():
            return
        slack = _ROUNDING * (learned.high - learned.low)
        outside = (new < learned.low - slack) | (new > learned.high + slack)
        self.outside = self.outside + np.count_nonzero(outside[finite], axis=0)
        # The squares of numbers that are barely floats are not.
        with np.errstate(over="ignore", invalid="ignore"):
            self.moments.append(ColumnMoments.from_rows(new[finite]))

    def drift(self) -> list[dict[str, Any]]:
        """Return for each new feature the share of rows out of range, and the shift of the mean.

        `mean_shift` is in units of the deviation among the rows that the model was fitted to.
        Nothing is returned for a model that was saved without statistics.
        """
        learned = self.model.statistics
        if learned is None or not self.moments:
            return []
        with np.errstate(over="ignore", invalid="ignore"):
            moments = reduce(add, self.moments)
        shares = self.outside / moments.n_rows
        deviation = np.maximum(learned.deviation, np.finfo(np.float64).tiny)
        shifts = (moments.mean - learned.mean) / deviation
        names = self.model.get_feature_names_out()
        return [
            {"feature": number, "name": name, "share_outside": share, "mean_shift": shift}
            for number, (name, share, shift) in enumerate(
                zip(names, shares.tolist(), shifts.tolist(), strict=True)
            )
        ]


def transform_rows(
    run: str, settings: TransformSettings, model: Model | None = None
) -> dict[str, Any]:
    """Project rows with the model of `run`, a fit or clustering; return a summary.

    `model` is that of the run, if the caller has loaded it.
    """
    source, out = settings.source, settings.out
    model = model or load_model(run)
    ignore_unseen = settings.unseen == "ignore"
    table, schema = _open_rows(model, source, settings.split)
    if table.files is not None and has_part(source, out):
        message = f"`out` is {str(out)!r}, of the table {source}, which the rows are read from"
        raise SettingsError(f"{message}; name another, outside of it", "out")
    passed = check_columns(table, schema, ignore_unseen=ignore_unseen)
    taken = [name for name in passed if name in model.get_feature_names_out()]
    if taken:
        raise FlowError(
            f"the table has a column {taken[0]!r}, as a new feature is called; rename it"
        )
    rows = Projection(model, schema, passed, Problems(ignore_unseen))
    write_batches(out, _projected(table, rows))
    report_progress(1.0, f"{rows.rows:,} rows")
    return {
        "command": "transform",
        "run": run,
        "source": source,
        "out": str(out),
        "rows": rows.rows,
        "n_components": model.n_components,
        "rows_left_out": rows.read - rows.rows,
        "ignored": ignored_columns(table, schema),
        "drift": rows.drift(),
    }


def explain_row(run: str, row: int) -> ExplainedRow:
    """Return what the columns of a row of a run's data set add to its new features."""
    view = View.of(run)
    result, model = view.result, view.model or load_model(run)  # its error says which runs have one
    data = ensure_stored(result.dataset, result.settings["split"])
    if data.data_hash != result.data_hash:
        raise FlowError(f"{data.name} has other rows than the run {run!r} had; compute it again")
    n = len(data.X)
    if not 0 <= row < n:
        message = f"`row` is {row}; {data.name} has {n:,} rows, expected 0 to {n - 1}"
        raise SettingsError(message, "row")
    return explained_row(model, data.X, row)


def _open_rows(model: Model, source: str, split: str | None) -> tuple[Table, TableSchema]:
    """Return the table of new rows, and the schema by which it is read.

    The columns of a matrix have no names, and neither do those of some models: then they have to be
    in the order of the features.
    """
    is_file = is_table(source)
    if is_file and model.table is not None:
        schema = TableSchema.from_json(model.table)
        return open_new_rows(source, schema), schema
    data = None if is_file else ensure_stored(source, split)
    table = open_table(source) if data is None else _table_of(data)
    is_named = data.feature_names is not None if data else format_suffix(source) != MATRIX
    # The labels that the model knows of, which a file with further rows may have as well.
    fitted = str(model.metrics.get("label") or "").split(",")
    labels = {*fitted, *model.metrics.get("nmi", {})}.difference(model.feature_names or ())
    given = tuple(name for name in table.schema.names if name not in labels)
    names = model.feature_names if is_named else None
    if len(given) != model.n_features and (names is None or not is_file):
        raise FlowError(
            f"{source} has {len(given)} columns, but the model was fitted to {model.n_features}; "
            "give the same features, in the same order"
        )
    schema = TableSchema(
        TableOptions(),
        tuple(Column(name, NUMBER) for name in names or given),
        dropped=tuple(labels),
        dtype="float32" if set(table.schema.types) == {pa.float32()} else "float64",
    )
    return (open_new_rows(source, schema) if is_file else table), schema


def _table_of(data: Dataset) -> Table:
    """Return the rows of a data set as a table, with a part for each chunk."""
    X, names = data.X, data.feature_names
    schema = matrix_table(X.read(0, 0), names).schema
    starts = range(0, len(X), X.chunk_rows)
    reads = [partial(_read_chunk, X, names, start) for start in starts]
    return Table(data.name, schema, tuple(Part(data.name, schema, read) for read in reads))


def _read_chunk(
    rows: ZarrRows, names: Sequence[str] | None, start: int, columns: list[str]
) -> list[pa.RecordBatch]:
    """Return the rows of a data set from number `start` to the end of its chunk, as batches."""
    values = rows.read(start, min(start + rows.chunk_rows, len(rows)))
    return list(matrix_table(values, names).select(columns).to_batches())


def _projected(table: Table, rows: Projection) -> Iterator[pa.RecordBatch]:
    """Yield the new features of a table in its order, and add what is known of its rows.

    After the last batch, raise an error that lists all rows that do not fit.
    """
    with threads_of_this_process() as threads:
        parts = map_in_order(threads, rows.project, table.parts, _PIECES_AT_WORK)
        if len(table.parts) == 1:
            problems = Problems(rows.problems.ignore_unseen)
            parts = iter([(problems, rows.batches(table.parts[0], problems))])
        for problems, batches in parts:
            for read, batch, new in batches:
                rows.count(read, new)
                # The number of rows of a table of texts is not known before its end.
                report_progress(rows.rows / (rows.rows + 10**6), f"project, {rows.rows:,} rows")
                yield batch
            rows.problems.merge(problems)
    rows.problems.check(table.description)
