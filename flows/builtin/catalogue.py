"""The built-in data sets: their splits, raw files and digests, and how they are stored."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from numpy.typing import NDArray
from pydantic import TypeAdapter

from flows.builtin.raw_files import (
    RawData,
    RawFile,
    RawFileError,
    find_or_download,
    load_bundled,
    load_cancer,
    load_colours,
    load_faces,
    load_mnist,
    read_raw,
)
from storage.atomic import remove_leftovers
from storage.dataset import (
    Dataset,
    DatasetInfo,
    dataset_path,
    folder_name,
    is_complete,
    open_dataset,
)
from storage.dataset_writing import default_chunk_rows, write_dataset
from storage.errors import DatasetNotFound, StorageError
from storage.store import chunk_digest, chunked_digest


@dataclass(frozen=True)
class Split:
    """One part of a data set, as `datasets.toml` describes it."""

    rows: int
    content_sha256: str
    raw: tuple[RawFile, ...] = ()


@dataclass(frozen=True)
class DatasetSpec:
    """A data set that can be ingested by name."""

    name: str
    title: str
    source: str  # where the values come from
    columns: int
    load: Callable[..., RawData]  # takes the path of each raw file
    splits: Mapping[str, Split]  # by name; the first is the default
    default_label: str | None = None
    features: tuple[str, ...] | None = None  # names of the columns, if the raw files have none

    def split_name(self, split: str | None) -> str:
        """Return `split`, or the first for None; raise DatasetNotFound for another name."""
        name = next(iter(self.splits)) if split is None else split
        if name not in self.splits:
            raise DatasetNotFound(
                f"`split` is {split!r}; {self.name} has {', '.join(self.splits)}. Choose one."
            )
        return name


def folder_of(name: str, split: str | None = None) -> str:
    """Return the name by which a data set is stored; a split of a built-in one has its own."""
    return folder_name(name, DATASETS[name].split_name(split)) if name in DATASETS else name


_LOADERS: Mapping[str, Callable[..., RawData]] = {
    "wine": partial(load_bundled, "load_wine", "cultivar"),
    "cancer": load_cancer,
    "face": load_faces,
    "mnist": load_mnist,
    "flower": load_colours,
    "digits": partial(load_bundled, "load_digits", "digit", (8, 8)),
    "breast_cancer": partial(load_bundled, "load_breast_cancer", "diagnosis"),
}


_ENTRIES = tomllib.loads((files("flows.builtin") / "datasets.toml").read_text(encoding="utf-8"))
DATASETS = TypeAdapter(dict[str, DatasetSpec]).validate_python(
    {name: {"name": name, "load": _LOADERS[name], **each} for name, each in _ENTRIES.items()}
)


def ingest(
    name: str,
    split: str | None = None,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Dataset:
    """Store a built-in data set in the home, unless it is stored already, and return it opened.

    Parameters
    ----------
    name : str
        A key of `DATASETS`.
    split : str, optional
        Default: the data set's first.
    force : bool
        Replace even a complete data set. The old one stays until the new one is complete.
    progress : callable, optional
        Called with the number of rows written so far and in total.
    """
    if name not in DATASETS:
        raise DatasetNotFound(
            f"`name` is {name!r}; the data sets that can be ingested are {', '.join(DATASETS)}."
        )
    spec = DATASETS[name]
    split = spec.split_name(split)
    target = dataset_path(folder_of(name, split))
    remove_leftovers(target.parent)
    if force or not is_complete(target, spec.splits[split].content_sha256):
        if not force and is_complete(target) and open_dataset(target).info.table is not None:
            raise StorageError(
                f"a table is stored as {target.name!r}, the name of a built-in data set: store it "
                "under another name, or replace it with --force (force=True)"
            )
        raw = _checked_values(spec, split)
        info = DatasetInfo(
            name=name,
            split=split,
            source=spec.source,
            feature_names=spec.features or raw.feature_names,
            class_names=raw.class_names,
            image_shape=raw.image_shape,
            default_label=spec.default_label,
        )
        write_dataset(
            target, info, [raw.X], raw.labels, on_rows=lambda done: progress(done, len(raw.X))
        )
    return open_dataset(target)


def _checked_values(spec: DatasetSpec, split: str) -> RawData:
    """Load the raw files of a split; raise RawFileError unless they have the published values."""
    expected = spec.splits[split]
    paths = [find_or_download(spec.name, raw) for raw in expected.raw]
    raw = read_raw(spec.load, *paths)
    digest = content_digest(raw.X, raw.labels)
    if digest != expected.content_sha256:
        source = ", ".join(map(str, paths)) or "the installed scikit-learn"
        raise RawFileError(
            f"{spec.name} ({split}) has content SHA-256 {digest}; expected "
            f"{expected.content_sha256}. It was read from {source}: not the published values. Put "
            "good copies there, or remove these so that they are fetched again."
        )
    return raw


def content_digest(X: NDArray[Any], labels: Mapping[str, NDArray[Any]]) -> str:
    """Return the digest that X, shape (n, d), and labels have in a stored data set."""
    step = min(len(X), default_chunk_rows(X.shape[1], X.dtype))
    digests = (chunk_digest(X[start : start + step]) for start in range(0, len(X), step))
    return chunked_digest(X, step, digests, labels)
