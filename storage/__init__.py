"""Store data sets, runs, models and checkpoints on disk as checksummed Zarr groups."""

from typing import Any

from storage.dataset import (
    Dataset,
    StoredDataset,
    dataset_path,
    datasets_folder,
    is_complete,
    list_datasets,
    open_dataset,
    remove_dataset,
)
from storage.dataset_info import DatasetInfo
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
from storage.models import (
    Model,
    Sample,
    SavedTransformer,
    load_model,
    new_feature_name,
    picture_path,
    read_pictures,
    save_model,
)
from storage.partial_results import Checkpoints, PartialResults
from storage.paths import home, safe_name
from storage.refreshes import (
    add_to_history,
    mark_pruned,
    read_history,
    refresh_lock,
    refresh_run,
    refreshed_names,
)
from storage.runs import (
    UNFOLD,
    Run,
    lease_path,
    list_runs,
    model_hash,
    open_run,
    publish_run,
    remove_run,
    report_path,
    result_arrays,
    run_folder,
    runs_folder,
    save_results,
    saved_run_path,
)
from storage.tables.files import check_pyarrow
from storage.unfoldings import SavedUnfolding, load_unfolding, save_unfolding
from storage.verify import Problem, StoredItem, stored_items
from storage.zarr_rows import ZarrRows


def ingest_table(source: Any, name: str | None = None, **options: Any) -> Dataset:
    """Store a table as a data set; `storage.table_ingestion.ingest_table` lists the options."""
    check_pyarrow()
    # It imports pyarrow, which takes a while.
    from storage.table_ingestion import ingest_table as ingest_any  # noqa: PLC0415

    return ingest_any(source, name, **options)
