"""Open and list the stored data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from storage.atomic import exists_settled, remove_folder, visible_entries
from storage.dataset_info import FORMAT_VERSION, DatasetInfo, check_labels
from storage.errors import DatasetNotFound, StorageError
from storage.manifest import check_presence, damaged_store, read_manifest
from storage.paths import home, resolve_under
from storage.records import restored
from storage.store import open_checked, read_again_if_replaced
from storage.zarr_rows import ZarrRows


@dataclass(frozen=True, eq=False)
class Dataset:
    """A stored data set: X stays on disk, the rest is in memory.

    Attributes
    ----------
    info : DatasetInfo
        Names and origin.
    X : ZarrRows
        Shape (n, d), native dtype, not standardised.
    labels : dict of str to ndarray of shape (n,)
        Integer codes, or numbers.
    data_hash : str
        Digest of X and labels, which does not depend on their compression.
    path : Path
        The folder.
    """

    info: DatasetInfo
    X: ZarrRows
    labels: dict[str, NDArray[Any]]
    data_hash: str
    path: Path

    @property
    def name(self) -> str:
        """Return the name of the data set."""
        return self.info.name

    @property
    def split(self) -> str:
        """Return the name of the split; "all" if the data set has none."""
        return self.info.split

    @property
    def y(self) -> NDArray[Any] | None:
        """Return the default label, shape (n,), or None."""
        return None if self.info.default_label is None else self.labels[self.info.default_label]

    @property
    def weights(self) -> NDArray[Any] | None:
        """Return the weights of the rows, shape (n,), or None if all count alike."""
        key = self.info.weights
        return None if key is None else self.labels[key]

    @property
    def class_names(self) -> dict[str, tuple[str, ...]]:
        """Return the class names of each label."""
        return dict(self.info.class_names)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Return one name per column, or None."""
        return self.info.feature_names

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Return (height, width) if a row is a picture, else None."""
        return self.info.image_shape


@dataclass(frozen=True)
class StoredDataset:
    """An entry of the list of stored data sets.

    Attributes
    ----------
    folder : str
        Name of its folder in the home; `open_dataset` takes it.
    info : DatasetInfo or None
        None if the store is damaged.
    shape : tuple of int or None
        (n, d).
    bytes : int
        Size on disk.
    problem : str
        The defect of a damaged store, else empty.
    """

    folder: str
    info: DatasetInfo | None = None
    shape: tuple[int, int] | None = None
    bytes: int = 0
    problem: str = ""


def datasets_folder() -> Path:
    """Return the folder that holds the data sets."""
    return home() / "datasets"


def dataset_path(name: str) -> Path:
    """Return the folder of a data set in the home, whether or not it exists."""
    return resolve_under(datasets_folder(), name)


def open_dataset(name_or_path: str | Path) -> Dataset:
    """Open a stored data set.

    Parameters
    ----------
    name_or_path : str or Path
        A str is a name in the home ("wine", "mnist-train"); a Path is a folder anywhere.

    Raises
    ------
    DatasetNotFound
        If nothing of that name is stored.
    DamagedStore
        If a file of it is missing or altered; chunks of X are checked when they are read.
    """
    path = name_or_path if isinstance(name_or_path, Path) else dataset_path(name_or_path)
    if not exists_settled(path):
        raise _not_stored(str(name_or_path), path)
    return read_again_if_replaced(path, _open)


def is_complete(path: Path, data_hash: str | None = None) -> bool:
    """Return whether every file of a store has its length, and its manifest names this digest.

    `data_hash` is the expected digest of the values; None accepts any. No values are read.
    """
    try:
        exists_settled(path)
        manifest = read_manifest(path)
        check_presence(path, manifest)
    except StorageError:
        return False
    return data_hash in (None, manifest.data_hash)


def remove_dataset(name: str) -> Path:
    """Remove a stored data set, damaged or not, in one step, and return the folder that it had."""
    path = dataset_path(name)
    if not exists_settled(path):
        raise _not_stored(name, path)
    remove_folder(path)
    return path


def list_datasets() -> tuple[StoredDataset, ...]:
    """Return the data sets in the home by folder name; a damaged one has a `problem`."""
    return tuple(map(_describe, stored_folders()))


def _describe(path: Path) -> StoredDataset:
    """Return the list entry of a stored data set without reading its rows."""
    try:
        data, size = open_dataset(path.name), read_manifest(path).total_bytes
    except StorageError as error:
        return StoredDataset(path.name, problem=str(error))
    return StoredDataset(path.name, data.info, data.X.shape, size)


def _open(path: Path) -> Dataset:
    """Return the data set in a folder; everything but X is read now."""
    saved = open_checked(path, FORMAT_VERSION)
    X = ZarrRows.of(path, saved.manifest)
    names = [name for name in saved.names if name.startswith("labels/")]
    labels = {name.removeprefix("labels/"): saved.array(name) for name in names}
    try:
        info = restored(DatasetInfo, saved.record)
        check_labels(info, labels, *X.shape)
    except (StorageError, TypeError, ValueError) as error:
        what = f"not the record of this data set ({error})"
        raise damaged_store(path, "zarr.json", what) from error
    return Dataset(info, X, labels, saved.manifest.data_hash, path)


def _not_stored(name: str, path: Path) -> DatasetNotFound:
    """Return the error for a data set that is not stored."""
    stored = ", ".join(folder.name for folder in stored_folders()) or "nothing yet"
    return DatasetNotFound(
        f"no data set {name!r} at {path}; stored: {stored}. Store it with `ism-dask ingest` first."
    )


def stored_folders() -> list[Path]:
    """Return the folders of the stored data sets, damaged ones too, sorted."""
    return [each for each in visible_entries(datasets_folder()) if each.is_dir()]
