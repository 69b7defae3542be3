"""Stored data sets: their metadata, labels, and rows that any process can read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.atomic import exists_settled, remove_folder, visible_entries
from storage.errors import DatasetNotFound, StorageError, misfit
from storage.manifest import (
    FileEntry,
    Manifest,
    check_presence,
    checked_bytes,
    damaged_store,
    read_manifest,
)
from storage.paths import home, resolve_under, safe_name
from storage.records import LARGEST, restored
from storage.store import open_checked, open_checked_array, read_again, read_array, reading
from storage.tables.files import SourceFile
from storage.tables.schema import TableSchema, label_key

FORMAT_VERSION = 3


@dataclass(frozen=True)
class DatasetInfo:
    """Names and origin of a data set.

    Attributes
    ----------
    name, split : str
        Name of the data set; "all" when it is not cut into splits.
    source : str
        Where the numbers come from, in words.
    feature_names : tuple of str, optional
        One per column.
    class_names : Mapping[str, tuple of str]
        For each label that has classes, the names of the codes 0, 1, ...
    image_shape : tuple of int, optional
        (height, width) if a row is a picture.
    default_label : str, optional
        The label that `Dataset.y` returns.
    table : Mapping, optional
        For a data set made from a table: its schema, how it was read, and its files.
    """

    name: str
    split: str = "all"
    source: str = ""
    feature_names: tuple[str, ...] | None = None
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image_shape: tuple[int, ...] | None = None
    default_label: str | None = None
    table: Mapping[str, Any] | None = None

    @property
    def folder(self) -> str:
        """Return the name of the data set's folder."""
        return folder_name(self.name, self.split)

    @property
    def weights(self) -> str | None:
        """The name of the label with the weights of the rows, None if all count alike."""
        return (self.table or {}).get("weights")


def folder_name(name: str, split: str) -> str:
    """Return the folder name of a split; the split "all" has no suffix."""
    return name if split == "all" else f"{name}-{split}"


def check_labels(
    info: DatasetInfo, labels: Mapping[str, NDArray[Any]], rows: int, columns: int
) -> None:
    """Raise StorageError unless names, labels and picture shape fit the rows and columns."""
    if info.feature_names is not None and len(info.feature_names) != columns:
        raise misfit("feature_names", len(info.feature_names), f"{columns}, one per column")
    if info.image_shape is not None and math.prod(info.image_shape) != columns:
        raise misfit("image_shape", info.image_shape, f"a shape of {columns} pixels")
    if info.default_label is not None and info.default_label not in labels:
        raise misfit("default_label", info.default_label, f"one of {sorted(labels)}")
    unknown = info.class_names.keys() - labels.keys()
    if unknown:
        raise misfit("class_names", sorted(unknown), f"only labels given: {sorted(labels)}")
    for name, codes in labels.items():
        if not name or name != label_key(name):
            safe_name(name, "label")
        _check_codes(name, codes, rows, info.class_names.get(name))


def _check_codes(
    name: str, codes: NDArray[Any], rows: int, classes: tuple[str, ...] | None
) -> None:
    """Raise StorageError unless a label has one finite number, or one code of a class, per row."""
    if codes.shape != (rows,) or codes.dtype.kind not in "uif" or not np.isfinite(codes).all():
        actual = f"shape {codes.shape} of {codes.dtype}"
        raise misfit(f"labels[{name!r}]", actual, f"shape ({rows},) of finite numbers")
    if classes is None:
        return
    if codes.dtype.kind == "f" or codes.min() < 0 or codes.max() >= len(classes):
        actual = f"{codes.dtype} from {codes.min()} to {codes.max()}"
        raise misfit(f"labels[{name!r}]", actual, f"integer codes 0 to {len(classes) - 1}")


@dataclass(frozen=True)
class ZarrRows:
    """A matrix on disk, chunked by rows.

    It pickles to a path and digests; the process that unpickles it opens the array.

    Attributes
    ----------
    root : str
        Folder of the store.
    digest : str
        Digest of the store's manifest: two equal objects read equal rows.
    shape : tuple of int
        (n, d).
    dtype : numpy.dtype
        As stored.
    chunk_rows : int
        Rows per chunk; reading whole chunks costs least.
    files : Mapping[str, FileEntry]
        The manifest's entries for the array's files.
    """

    root: str
    digest: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int
    files: Mapping[str, FileEntry] = field(repr=False, compare=False)

    @classmethod
    def of(cls, root: Path, manifest: Manifest) -> ZarrRows:
        """Return the handle of X of the data set at `root`."""
        files = {k: v for k, v in manifest.files.items() if k.startswith("X/")}
        opened = open_checked_array(root, "X", files)
        is_matrix = opened.ndim == 2 and math.prod(opened.shape) < LARGEST
        if not is_matrix or opened.chunks[1] != max(1, opened.shape[1]):
            raise damaged_store(
                root, "X/zarr.json", f"shape {opened.shape} in chunks {opened.chunks}"
            )
        n, d = opened.shape
        path = str(root.resolve())
        return cls(path, manifest.digest, (n, d), opened.dtype, opened.chunks[0], files)

    @property
    def ndim(self) -> int:
        """Return 2."""
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    def __dask_tokenize__(self) -> tuple[str, str]:
        """Return what identifies the rows, so that Dask need not hash every file's digest."""
        return (self.root, self.digest)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the rows from `start` up to, but not including, `stop`.

        Returns
        -------
        ndarray of shape (stop - start, d)
            A copy in the stored dtype and C order, which the caller may change.

        Raises
        ------
        DamagedStore
            If a file that holds these rows is missing or altered.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(
                f"`start`, `stop` are {start}, {stop}; expected 0 <= start <= stop <= {len(self)}."
            )
        if start == stop:
            return np.empty((0, self.shape[1]), self.dtype)
        chunks = f"X/c.{start // self.chunk_rows} to {(stop - 1) // self.chunk_rows}"
        with reading(Path(self.root), chunks):
            return np.ascontiguousarray(_opened_rows(self)[start:stop])

    def verify(self) -> None:
        """Raise DamagedStore unless every file of the array, read anew, matches the manifest."""
        for name, entry in self.files.items():
            checked_bytes(Path(self.root), name, entry)


@lru_cache(maxsize=64)
def _opened_rows(rows: ZarrRows) -> zarr.Array[Any]:
    """Return the opened array; each process opens it once."""
    return open_checked_array(Path(rows.root), "X", rows.files)


@dataclass(frozen=True)
class RowSubset:
    """A subset of the rows (n, d) of a stored matrix, which any process can read from disk.

    `bits` is a bit mask over these rows. It is this small because every Dask task contains it.
    """

    source: ZarrRows
    bits: bytes

    @classmethod
    def of(cls, source: ZarrRows, rows: NDArray[Any]) -> RowSubset:
        """Return the subset of the rows with the numbers `rows`, which ascend."""
        mask = np.zeros(len(source), dtype=bool)
        mask[rows] = True
        return cls(source, np.packbits(mask).tobytes())

    @property
    def rows(self) -> NDArray[Any]:
        """Numbers of the rows in the source, ascending."""
        return _row_numbers(self.bits)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows in the subset, and of columns."""
        return len(self.rows), self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored matrix."""
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        """Rows in a chunk of the stored matrix."""
        return self.source.chunk_rows

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows of the subset from `start` to `stop` (not included)."""
        rows = self.rows[start:stop]
        if len(rows) == 0:
            return self.source.read(0, 0)
        first, last = int(rows[0]), int(rows[-1])
        values: NDArray[Any] = self.source.read(first, last + 1)[rows - first]
        return values


@lru_cache(maxsize=4)
def _row_numbers(bits: bytes) -> NDArray[Any]:
    # Cached here, not in `RowSubset`: every Dask task would contain the numbers, too.
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8)))


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
    path = _stored_path(name_or_path)
    return read_again(path, lambda: _open(path))


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
    path = _stored_path(name)
    remove_folder(path)
    return path


def list_datasets() -> tuple[StoredDataset, ...]:
    """Return the data sets in the home by folder name; a damaged one has a `problem`."""
    entries = []
    for path in stored_folders():
        try:
            data, size = open_dataset(path.name), read_manifest(path).total_bytes
            entries.append(StoredDataset(path.name, data.info, data.X.shape, size))
        except StorageError as error:
            entries.append(StoredDataset(path.name, problem=str(error)))
    return tuple(entries)


def stored_folders() -> list[Path]:
    """Return the folders of the stored data sets, damaged ones too, sorted."""
    return [each for each in visible_entries(datasets_folder()) if each.is_dir()]


def _stored_path(name_or_path: str | Path) -> Path:
    """Return the folder of a stored data set; raise DatasetNotFound if there is none."""
    path = name_or_path if isinstance(name_or_path, Path) else dataset_path(name_or_path)
    if exists_settled(path):
        return path
    stored = ", ".join(folder.name for folder in stored_folders()) or "nothing yet"
    raise DatasetNotFound(
        f"no data set {str(name_or_path)!r} at {path}; stored: {stored}. Store it with "
        "`ism-dask ingest` first."
    )


def _open(path: Path) -> Dataset:
    """Return a data set; everything but X is read now."""
    record, manifest = open_checked(path, FORMAT_VERSION)
    X, files = ZarrRows.of(path, manifest), manifest.files
    metadata = [each for each in sorted(files) if fnmatch(each, "labels/?*/zarr.json")]
    names = [each.removeprefix("labels/").removesuffix("/zarr.json") for each in metadata]
    labels = {name: read_array(path, f"labels/{name}", files) for name in names}
    try:
        info = restored(DatasetInfo, record)
        check_labels(info, labels, *X.shape)
        if info.table is not None:
            TableSchema.from_json(info.table["schema"])
            restored(tuple[SourceFile, ...], info.table["files"])
            if info.weights not in (None, *labels):
                raise misfit("weights", info.weights, f"one of {sorted(labels)}")
    except (LookupError, StorageError, TypeError, ValueError) as error:
        what = f"not the record of this data set ({error})"
        raise damaged_store(path, "zarr.json", what) from error
    return Dataset(info, X, labels, manifest.data_hash, path)
