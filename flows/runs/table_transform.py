"""Project a table onto the new features of a saved model, in batches, by the names of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from flows.compute.workers import Workers
from flows.errors import FlowError
from flows.progress.watching import report_progress
from flows.runs.matrix_files import fitted_labels
from flows.runs.projection import ProjectedRows, Projector
from storage import SavedTransformer
from storage.tables.new_rows import check_columns, ignored_columns, open_new_rows
from storage.tables.output_files import new_folder, part_path, write_batches
from storage.tables.schema import NUMBER, Column, TableOptions, TableSchema
from storage.tables.side_by_side import map_in_order, threads_of_this_process
from storage.tables.sources import Part, Table

_PART_SUFFIX = ".parquet"
# Pieces that threads of this process project at a time, or whose new features wait to be written.
_PIECES_AT_WORK = 8

Projected: TypeAlias = tuple[list[pa.RecordBatch], ProjectedRows]


def transform_table(
    model: SavedTransformer,
    source: str,
    out: Path,
    *,
    ignore_unseen: bool = False,
    workers: Workers | None = None,
) -> dict[str, Any]:
    """Write the new features of a table, with the columns to pass through, and return a summary.

    Parameters
    ----------
    model : SavedTransformer
    source : str
        Path, address or glob of the table.
    out : Path
        File to write, in the format that its name ends in. Without a suffix: a new folder with a
        Parquet file for each file of the table.
    ignore_unseen : bool
        Whether a level that the model has not seen counts as none of its levels.
    workers : Workers, optional
        They project the pieces of the table, and write the parts of a folder. Default: threads of
        this process project them, with the same result.
    """
    schema = schema_of(model)
    table = open_new_rows(source, schema)
    passed = check_columns(table, schema, ignore_unseen=ignore_unseen)
    projector = Projector.of(model, schema, passed, ignore_unseen=ignore_unseen)
    rows = projector.nothing()
    files: dict[str, int] = {}
    if out.suffix:
        write_batches(out, _projected(table, projector, rows, workers))
    else:
        files["files"] = _write_parts(table, projector, rows, out, workers)
    report_progress(1.0, f"{rows.rows:,} rows")
    return {
        "rows": rows.rows,
        "n_components": model.n_components,
        "rows_left_out": rows.read - rows.rows,
        "ignored": ignored_columns(table, schema),
        "drift": rows.drift.report(),
        **files,
    }


def schema_of(model: SavedTransformer) -> TableSchema:
    """Return the schema of the table that a model was fitted to, or one with its feature names."""
    if model.table is not None:
        return TableSchema.from_json(model.table)
    if model.feature_names is None:
        raise FlowError("the model has no names of features: give its rows as .npy, in their order")
    features = tuple(Column(name, NUMBER) for name in model.feature_names)
    return TableSchema(TableOptions(), features, dropped=fitted_labels(model))


def _projected(
    table: Table, projector: Projector, rows: ProjectedRows, workers: Workers | None
) -> Iterator[pa.RecordBatch]:
    """Yield the new features of a table in its order; add what is known of its rows to `rows`.

    After the last batch, raise an error that lists all rows that do not fit.
    """
    pieces = table.pieces()
    if len(pieces) == 1:
        yield from _project_here(pieces[0], projector, rows)
    else:
        map_pieces = _map_in_threads if workers is None else workers.map_by_model
        for batches, piece_rows in map_pieces(projector.project, pieces):
            rows.merge(piece_rows)
            _report(rows.rows)
            yield from batches
    rows.check(table.description)


def _map_in_threads(
    project: Callable[[Part], Projected], pieces: Sequence[Part]
) -> Iterator[Projected]:
    """Yield what `project` returns for each piece, in order, computed by threads."""
    with threads_of_this_process() as threads:
        yield from map_in_order(threads, project, pieces, lambda: _PIECES_AT_WORK)


def _write_parts(
    table: Table,
    projector: Projector,
    rows: ProjectedRows,
    out: Path,
    workers: Workers | None,
) -> int:
    """Write a Parquet file for each file of a table into a new folder; return their number.

    What is known of the rows is added to `rows`.
    """
    parts = _parts(table)
    with new_folder(out, _PART_SUFFIX) as writer:
        if workers is not None:
            for part_rows in workers.map_by_model(partial(projector.write, writer), parts):
                rows.merge(part_rows)
                _report(rows.rows)
        else:
            for name, part in parts:
                writer.write(name, _project_here(part, projector, rows))
        rows.check(table.description)
    return len(parts)


def _parts(table: Table) -> list[tuple[str, Part]]:
    """Return the files of a table with their names; raise a FlowError unless these differ."""
    if table.files is None:
        raise FlowError(f"{table.description} has no files to write parts for; name a file with -o")
    parts = list(zip(table.files.names(), table.parts, strict=True))
    paths = Counter(part_path(name, _PART_SUFFIX) for name, _ in parts)
    path, number = paths.most_common(1)[0]
    if number > 1:
        raise FlowError(
            f"{number} files of the table would be the part {path}; name their folder as the "
            "table, or a file with -o"
        )
    return parts


def _project_here(
    source: Part, projector: Projector, rows: ProjectedRows
) -> Iterator[pa.RecordBatch]:
    """Yield the new features of a piece of a table; add what is known of its rows to `rows`."""
    piece_rows = projector.nothing()
    for batch in projector.batches(source, piece_rows):
        _report(rows.rows + piece_rows.rows)
        yield batch
    rows.merge(piece_rows)


def _report(rows: int) -> None:
    # The number of rows of a table of texts is not known before its end.
    report_progress(rows / (rows + 10**6), f"project, {rows:,} rows")
