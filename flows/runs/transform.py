"""Project the rows of a data set or of a table onto the new features of a saved model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from flows.compute.session import Session, joined_workers
from flows.errors import FlowError, SettingsError
from flows.progress.watching import report_progress
from flows.runs.data import ensure_stored
from flows.runs.projection import ProjectedRows, Projector, read_chunk
from flows.settings.base import TransformSettings
from flows.settings.choices import is_table
from storage import Dataset, Model, load_model
from storage.tables.files import COLUMNAR, format_suffix
from storage.tables.formats import open_table
from storage.tables.new_rows import check_columns, ignored_columns, open_new_rows
from storage.tables.output_files import write_batches
from storage.tables.schema import NUMBER, Column, TableOptions, TableSchema
from storage.tables.side_by_side import map_in_order, threads_of_this_process
from storage.tables.sources import Part, Table, matrix_table

# Formats of files to write, and that of a matrix, whose columns have no names of their own.
_MATRIX = ".npy"
_WRITTEN = (".csv", _MATRIX, *COLUMNAR)
# Pieces that threads of this process project at a time, or whose new features wait to be written.
_PIECES_AT_WORK = 8

Projected: TypeAlias = tuple[list[pa.RecordBatch], ProjectedRows]


def transform_rows(
    run: str, settings: TransformSettings, model: Model | None = None
) -> dict[str, Any]:
    """Project rows with the model of `run`, a fit or clustering; return a summary.

    `model` is that of the run, if the caller has loaded it.

    With a scheduler, its workers project the rows, with the same result as threads of this process.
    """
    source, out = settings.source, settings.out
    _check_output(out)
    model = model or load_model(run)
    ignore_unseen = settings.unseen == "ignore"
    table, schema = _open_rows(model, source, settings.split)
    if table.files is not None and table.files.include(out):
        raise SettingsError(
            f"`out` is {str(out)!r}, which the rows are read from; name another", "out"
        )
    passed = check_columns(table, schema, ignore_unseen=ignore_unseen)
    taken = [name for name in passed if name in model.get_feature_names_out()]
    if taken:
        raise FlowError(
            f"the table has a column {taken[0]!r}, as a new feature is called; rename it"
        )
    projector = Projector(model.bare(), schema, passed, ignore_unseen)
    rows = projector.nothing()
    with joined_workers(settings.scheduler) as workers:
        write_batches(out, _projected(table, projector, rows, workers))
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
    is_named = data.feature_names is not None if data else format_suffix(source) != _MATRIX
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
    reads = [partial(read_chunk, X, names, start) for start in starts]
    return Table(data.name, schema, tuple(Part(data.name, schema, read) for read in reads))


def _check_output(path: Path) -> None:
    """Raise SettingsError unless the suffix of `path` is that of a format we can write."""
    if path.suffix.lower() not in _WRITTEN:
        raise SettingsError(
            f"`out` is {str(path)!r}; expected a file name that ends in {' or '.join(_WRITTEN)}",
            "out",
        )


def _projected(
    table: Table, projector: Projector, rows: ProjectedRows, workers: Session | None
) -> Iterator[pa.RecordBatch]:
    """Yield the new features of a table in its order; add what is known of its rows to `rows`.

    After the last batch, raise an error that lists all rows that do not fit.
    """
    pieces = table.pieces()
    if len(pieces) == 1:
        for batch in projector.batches(pieces[0], rows):
            _report(rows.rows)
            yield batch
    else:
        map_pieces = _map_in_threads if workers is None else workers.map_by_model
        for batches, piece_rows in map_pieces(projector.project, pieces):
            rows.merge(piece_rows)
            _report(rows.rows)
            yield from batches
    rows.problems.check(table.description)


def _map_in_threads(
    project: Callable[[Part], Projected], pieces: Sequence[Part]
) -> Iterator[Projected]:
    """Yield what `project` returns for each piece, in order, computed by threads."""
    with threads_of_this_process() as threads:
        yield from map_in_order(threads, project, pieces, lambda: _PIECES_AT_WORK)


def _report(rows: int) -> None:
    # The number of rows of a table of texts is not known before its end.
    report_progress(rows / (rows + 10**6), f"project, {rows:,} rows")
