"""Build the record that a run saves, and check that its name is free."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict
from functools import reduce
from importlib.metadata import version
from operator import add
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.errors import FlowError
from flows.progress.run_context import run_context
from flows.results.base import RunResult
from flows.settings.base import DataSettings
from flows.settings.runs import SavedRunSettings
from ism_dask.estimators.base import IKDR
from ism_dask.rows.distribution import Distribution
from ism_dask.rows.moments import ColumnMoments
from storage import (
    Dataset,
    Model,
    Sample,
    ZarrRows,
    open_run,
    run_folder,
    runs_folder,
    saved_run_path,
)
from storage.atomic import explain_os_errors, make_folder

Array = NDArray[Any]

_PACKAGES = ("ism-dask", "numpy", "scipy", "scikit-learn", "dask", "zarr")
# A model is saved with the new features of this many rows, for scatter plots; they are computed
# from so many rows of the data set at a time.
_SAMPLE_SIZE, _ROWS_PER_READ = 2000, 4096


def check_name_is_free(run: str, *, force: bool, replaces: str = "") -> None:
    """Raise an error if a saved run has that name, or if its folder cannot be written to.

    A saved run may be replaced with `force`, or if it is of the kind `replaces`.
    """
    folder, is_saved = run_folder(run), saved_run_path(run) is not None
    if is_saved and not force and not (replaces and open_run(run).kind == replaces):
        raise FlowError(
            f"there is a run {run!r} already, at {folder}; replace it with --force, or choose "
            "another name with --run"
        )
    # Try to write now: a full or read-only disk should fail a run before its work, not after.
    with explain_os_errors(folder):
        make_folder(runs_folder())
        with TemporaryFile(dir=folder if folder.exists() else runs_folder()):
            pass


def computed_facts(settings: DataSettings, data: Dataset) -> dict[str, Any]:
    """Return the fields of a result that say from which rows it was computed, how and where."""
    rows, columns = data.X.shape
    return {
        "dataset": settings.dataset,
        "split": data.split,
        "rows": rows,
        "columns": columns,
        "data_hash": data.data_hash,
        "settings": settings.to_json(),
        "host": platform.node(),
        "page": run_context().page,
    }


def saved_facts(settings: DataSettings, data: Dataset, result: RunResult) -> dict[str, Any]:
    """Return the fields of what a run saves for new rows that follow from its data and result."""
    return {
        "feature_names": data.feature_names,
        "table": data.info.table and data.info.table["schema"],
        **saved_record(settings, result),
    }


def saved_record(settings: DataSettings, result: RunResult) -> dict[str, Any]:
    """Return the settings, the metrics and the versions that every run saves."""
    return {"config": settings.to_json(), "metrics": result.metrics, "versions": versions()}


def model_to_save(
    model: IKDR,
    settings: SavedRunSettings,
    data: Dataset,
    values: Array,
    result: RunResult,
    **more: Any,
) -> Model:
    """Return the record of a fitted model that storage saves.

    `values` (n,) are the class, number or cluster of each row; the saved sample of rows has them.
    `more` are other fields of the record.
    """
    sample, distribution, statistics = _projected_rows(model, data, values, settings.seed)
    return Model(
        components=model.components_,
        mean=model.mean_,
        scale=model.scale_,
        eigenvalues=model.eigenvalues_,
        image_shape=data.image_shape,
        sample=sample,
        distribution=distribution,
        statistics=statistics,
        history=[asdict(record) for record in model.history_],
        **saved_facts(settings, data, result),
        **more,
    )


def sample_rows(n: int, seed: int) -> Array:
    """Return the numbers, ascending, of the rows of n that a model is saved with."""
    drawn = np.random.default_rng(seed).choice(n, min(n, _SAMPLE_SIZE), replace=False)
    return np.asarray(np.sort(drawn))


def batches_with_sample(X: ZarrRows, chosen: Array) -> Iterator[tuple[Array, Array]]:
    """Yield all rows in batches, with the numbers within the batch of the rows `chosen`."""
    for start in range(0, len(X), _ROWS_PER_READ):
        stop = min(start + _ROWS_PER_READ, len(X))
        first, last = np.searchsorted(chosen, [start, stop])
        yield X.read(start, stop), chosen[first:last] - start


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a run is computed with."""
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
    }


def _projected_rows(
    model: IKDR, data: Dataset, values: Array, seed: int
) -> tuple[Sample, Distribution, ColumnMoments]:
    """Return the new features of rows drawn at random, and statistics of those of all rows.

    The distribution is that of the columns of the rows drawn.
    """
    chosen = sample_rows(len(data.X), seed)
    rows, points, moments = [], [], []
    for batch, here in batches_with_sample(data.X, chosen):
        new = model.transform(batch)
        moments.append(ColumnMoments.of(new))
        points.append(new[here])
        rows.append(batch[here])
    sample = Sample(np.concatenate(points).astype(np.float32), values[chosen])
    return sample, Distribution.of(np.concatenate(rows)), reduce(add, moments)
