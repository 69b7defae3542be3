"""Project the rows of a data set or of a file onto the new features of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flows.compute.workers import joined_workers
from flows.errors import FlowError, SettingsError
from flows.progress.watching import report_progress
from flows.runs.data import ensure_stored
from flows.runs.drift import Drift
from flows.runs.matrix_files import (
    Array,
    check_output_format,
    column_order,
    columns_in_order,
    fitted_labels,
    read_matrix,
    values_too_large,
    write_matrix,
)
from flows.runs.range_projection import RangeProjector
from flows.runs.saving import saved_transformer
from flows.settings.base import check_scheduler
from flows.settings.choices import check_name, is_table
from storage import SavedTransformer
from storage.tables.files import check_pyarrow, format_suffix

# Formats that are matrices without names; any other file is a table.
_MATRICES = (".csv", ".npy")


def transform_rows(
    run: str,
    source: str,
    out: Path,
    split: str | None = None,
    *,
    unseen: str = "refuse",
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Project a data set or a file with the model of `run`, write `out`, and return a summary.

    Parameters
    ----------
    run : str
        Name of a saved run: a fit, a clustering or an unfolding.
    source : str
        Name of a data set, or the path, address or glob of a table.
    out : Path
        A .csv, .parquet, .feather, .arrow or .npy file to create or replace; or a .zarr array or a
        folder to create.
    split : str, optional
        Part of the data set.
    unseen : {"refuse", "ignore"}
        What to do with levels that the model has not seen: raise an error, or give such a row 0
        for each level of the column.
    scheduler : str, optional
        The cluster whose workers project the rows of a table or a data set, with the same result.
        Default: this process does.
    """
    if unseen not in ("refuse", "ignore"):
        raise SettingsError(f"`unseen` is {unseen!r}; expected refuse or ignore")
    check_output_format(out)
    check_scheduler(scheduler)
    is_file = is_table(source)
    if is_file and split is not None:
        raise SettingsError(f"`split` is {split!r}, but {source} is a file, which has none")
    if not is_file:
        check_name(source, split)
    model = saved_transformer(run)
    if is_file and (model.table is not None or format_suffix(source) not in _MATRICES):
        check_pyarrow()
        # It imports pyarrow, which matrices do not need.
        from flows.runs.table_transform import transform_table  # noqa: PLC0415

        with joined_workers(scheduler) as workers:
            counts = transform_table(
                model, source, out, ignore_unseen=unseen == "ignore", workers=workers
            )
        return {"command": "transform", "run": run, "source": source, "out": str(out), **counts}
    ignored: list[str] = []
    if is_file:
        projected, ignored = _project_file(model, Path(source))
    else:
        projected = _project_dataset(model, source, split, scheduler)
    _check_finite(projected, source)
    drift = Drift(model)
    drift.add(projected)
    write_matrix(out, projected, model.get_feature_names_out())
    rows, columns = projected.shape
    return {
        "command": "transform",
        "run": run,
        "source": source,
        "out": str(out),
        "rows": rows,
        "n_components": columns,
        "ignored": ignored,
        "drift": drift.report(),
    }


def _project_file(model: SavedTransformer, path: Path) -> tuple[Array, list[str]]:
    """Return the new features of the rows of a file, and its columns that were ignored."""
    matrix, labels = read_matrix(path), fitted_labels(model)
    values = columns_in_order(matrix.without(labels), model.feature_names)
    _check_width(model, values.shape[1], str(path))
    # `_check_finite` reports overflow in the result; NumPy need not warn of it.
    with np.errstate(over="ignore", invalid="ignore"):
        return model.transform(values), [each for each in matrix.columns or () if each in labels]


def _project_dataset(
    model: SavedTransformer, name: str, split: str | None, scheduler: str | None
) -> Array:
    data = ensure_stored(name, split)
    _check_width(model, data.X.shape[1], name)
    order = column_order(data.feature_names, model.feature_names, name)
    work = RangeProjector(model.bare(), data.X, order)
    n, step, done = len(data.X), data.X.chunk_rows, 0
    ranges = [(start, min(start + step, n)) for start in range(0, n, step)]
    blocks = []
    with joined_workers(scheduler) as workers:
        for block in map(work, ranges) if workers is None else workers.map_by_model(work, ranges):
            blocks.append(block)
            done += len(block)
            report_progress(done / n, f"project, {done:,} of {n:,} rows")
    return np.concatenate(blocks)


def _check_finite(projected: Array, source: str) -> None:
    rows = np.flatnonzero(~np.isfinite(projected).all(axis=1))
    if len(rows):
        raise values_too_large(len(rows), int(rows[0]), source)


def _check_width(model: SavedTransformer, width: int, source: str) -> None:
    d = model.n_features
    if width != d:
        raise FlowError(
            f"{source} has {width} columns, but the model was fitted to {d}; give the same "
            "features, in the same order"
        )
