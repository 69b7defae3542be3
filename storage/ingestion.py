"""Ingest data sets: read raw files, check their values and store them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from storage.atomic import remove_leftovers
from storage.catalogue import DATASETS, DatasetSpec, spec_of
from storage.dataset import Dataset, dataset_path, is_complete, open_dataset
from storage.dataset_info import DatasetInfo
from storage.dataset_writing import write_dataset
from storage.digest import content_digest, sha256_file
from storage.errors import ChecksumMismatch, RawFileError
from storage.loaders.base import RawData
from storage.loaders.picture import colours_of, load_colours, load_pixels
from storage.raw_files import find_or_download

Progress = Callable[[int, int], None]


def ingest(
    name: str,
    split: str | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Store a data set of `DATASETS` in the home, unless it is stored already.

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

    Returns
    -------
    Dataset
        The opened data set.
    """
    spec = spec_of(name)
    split = spec.split_name(split)
    target = dataset_path(name, split)
    remove_leftovers(target.parent)
    complete = partial(is_complete, data_hash=spec.splits[split].content_sha256)
    if force or not complete(target):
        _store(spec, split, target, None if force else complete, progress)
    return open_dataset(name, split)


def picture_pixels(name: str) -> NDArray[np.uint8] | None:
    """Return the picture, shape (height, width, 3), whose colours are the rows of a data set.

    The stored data set has the colours only, so the picture is read from its raw file. Return None
    if the data set is not made from a picture, or if the file is missing or has other colours.
    """
    spec = DATASETS.get(name)
    if spec is None or spec.load is not load_colours:
        return None
    split = spec.splits[spec.split_name(None)]
    try:
        pixels = load_pixels(find_or_download(name, *split.raw))
    except RawFileError:
        return None
    return pixels if content_digest(colours_of(pixels), {}) == split.content_sha256 else None


def _store(
    spec: DatasetSpec,
    split: str,
    target: Path,
    keep: Callable[[Path], bool] | None,
    progress: Progress | None,
) -> None:
    """Load the raw files and write the data set to `target`."""
    expected = spec.splits[split]
    paths = [find_or_download(spec.name, raw) for raw in expected.raw]
    raw = spec.load(*paths)
    rows = len(raw.X)
    try:
        write_dataset(
            target,
            _info(spec, split, raw, paths),
            [raw.X],
            raw.labels,
            expected_hash=expected.content_sha256,
            keep=keep,
            on_rows=None if progress is None else lambda done: progress(done, rows),
        )
    except ChecksumMismatch as error:
        source = ", ".join(map(str, paths)) or "the installed scikit-learn"
        raise ChecksumMismatch(
            f"{error} It was read from {source}: not the published values. Put good copies there, "
            "or remove these so that they are fetched again."
        ) from error


def _info(spec: DatasetSpec, split: str, raw: RawData, paths: list[Path]) -> DatasetInfo:
    """Return the metadata to store with the data set."""
    return DatasetInfo(
        name=spec.name,
        split=split,
        source=spec.source,
        raw_sha256={path.name: sha256_file(path) for path in paths},
        feature_names=raw.feature_names,
        class_names=raw.class_names,
        image_shape=raw.image_shape,
        default_label=spec.default_label,
    )
