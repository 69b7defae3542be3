"""Store data sets, runs, models and checkpoints on disk, with digests of all files."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from storage.dataset import (
    Dataset,
    DatasetInfo,
    StoredDataset,
    ZarrRows,
    dataset_path,
    datasets_folder,
    is_complete,
    list_datasets,
    open_dataset,
    remove_dataset,
)
from storage.dataset_writing import write_dataset
from storage.errors import (
    DamagedStore,
    DatasetNotFound,
    RunNotFound,
    StorageError,
    TableError,
    UnfitRows,
    UnsafeName,
)
from storage.models import Model, Sample, load_model, save_model
from storage.partial_results import Checkpoints, PartialResults
from storage.paths import home, safe_name
from storage.refreshes import read_history, refresh_run, refreshed_names, write_record
from storage.runs import (
    Run,
    lease_path,
    list_runs,
    model_hash,
    open_run,
    publish_run,
    remove_run,
    report_path,
    reports_folder,
    run_folder,
    runs_folder,
    save_results,
    saved_run_path,
)
from storage.tables.schema import TableOptions
from storage.verify import Problem, StoredItem, stored_items


def ingest_table(
    source: Any,
    name: str | None = None,
    *,
    force: bool = False,
    progress: Callable[[float, str], None] = lambda *_: None,
    executor: Executor | None = None,
    **options: Any,
) -> Dataset:
    """Store a table as a data set, encoded as numbers, and return it opened.

    Numbers stay as they are, booleans become 0 and 1, and strings one column per level, called
    `region=north`. Free text, infinite values, dates unless `dates` is true and, unless `missing`
    says otherwise, gaps are errors that name the column.

    Parameters
    ----------
    source : path, address, glob, sequence of these, frame or array
        CSV, TSV (also gzipped), Parquet, Feather, Arrow or NPY; an address is one that fsspec
        reads; a frame is of pandas, polars, Dask, xarray, pyarrow or NumPy.
    name : str, optional
        Name of the data set. Default: that of the file or folder.
    force : bool
        Replace a data set of that name that was stored from something else.
    progress : callable, optional
        Called with the share that is done, from 0 to 1, and with a text.
    executor : concurrent.futures.Executor, optional
        Where files, and groups of rows of Parquet files, are read side by side, such as
        `client.get_executor()` of a Dask client. Its processes need the same files and home.
        Default: threads of this process.
    **options
        How to read the table: the attributes of `TableOptions`, such as `label`.

    Returns
    -------
    Dataset
        Its `info.table` has the schema, and the files with their versions.

    Raises
    ------
    TableError
        If the table cannot be read or encoded; the message names the file or column.
    """
    # They import pyarrow, which takes a while.
    from storage.table_ingestion import dataset_name, store_unless_stored  # noqa: PLC0415
    from storage.tables.formats import open_table  # noqa: PLC0415

    chosen = TableOptions(**options)
    return store_unless_stored(
        open_table(source, chosen),
        dataset_name(source, name),
        chosen,
        force=force,
        progress=progress,
        executor=executor,
    )
