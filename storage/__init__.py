"""Data sets and models on disk: raw files in, checked Zarr groups out."""

from storage.dataset import (
    Dataset,
    StoredDataset,
    dataset_path,
    datasets_folder,
    is_complete,
    list_datasets,
    open_dataset,
)
from storage.errors import (
    ChecksumMismatch,
    DamagedStore,
    DatasetNotFound,
    DownloadError,
    RawFileError,
    StorageError,
    UnsafeName,
)
from storage.home import data_folder, home, resolve_under, safe_name
from storage.info import DatasetInfo
from storage.ingestion import ingest, picture_pixels
from storage.loaders import RawData
from storage.models import Model, load_model, model_path, picture_path, runs_folder, save_model
from storage.raw import RawFile
from storage.registry import DATASETS, DatasetSpec, Split
from storage.rows import ZarrRows
from storage.write import write_dataset

__all__ = [
    "DATASETS",
    "ChecksumMismatch",
    "DamagedStore",
    "Dataset",
    "DatasetInfo",
    "DatasetNotFound",
    "DatasetSpec",
    "DownloadError",
    "Model",
    "RawData",
    "RawFile",
    "RawFileError",
    "Split",
    "StorageError",
    "StoredDataset",
    "UnsafeName",
    "ZarrRows",
    "data_folder",
    "dataset_path",
    "datasets_folder",
    "home",
    "ingest",
    "is_complete",
    "list_datasets",
    "load_model",
    "model_path",
    "open_dataset",
    "picture_path",
    "picture_pixels",
    "resolve_under",
    "runs_folder",
    "safe_name",
    "save_model",
    "write_dataset",
]
