"""The built-in data sets: their splits, raw files and digests, and how they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.builtin.raw_files import (
    RawData,
    RawFile,
    RawFileError,
    colours_of,
    find_or_download,
    load_bundled,
    load_cancer,
    load_colours,
    load_faces,
    load_mnist,
    load_pixels,
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

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"


@dataclass(frozen=True)
class Split:
    """One part of a data set."""

    rows: int
    # Digest of X and labels, as `content_digest` returns it. Raw files come in several editions
    # and packings; their values are the same.
    content_sha256: str
    raw: tuple[RawFile, ...] = ()  # the files that the loader reads, in the order of its parameters


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


def _mnist_split(prefix: str, rows: int, content: str, images: str, labels: str) -> Split:
    """Return one split of MNIST, with the digests of its values and of the downloaded files."""
    files = ((f"{prefix}-images-idx3-ubyte.gz", images), (f"{prefix}-labels-idx1-ubyte.gz", labels))
    raw = tuple(RawFile((name,), _MNIST + name, sha256) for name, sha256 in files)
    return Split(rows, content, raw)


def _all(rows: int, content: str, *raw: RawFile) -> dict[str, Split]:
    """Return the only split of a data set that is not split."""
    return {"all": Split(rows, content, raw)}


_SPECS = (
    DatasetSpec(
        name="wine",
        title="Wine: chemical analysis of three Italian cultivars",
        source="UCI, as bundled with scikit-learn",
        columns=13,
        load=partial(load_bundled, "load_wine", "cultivar"),
        splits=_all(178, "9730a7accc166f2b08f9caf3c16bcb2df2770e93fa189842438f935c96626043"),
        default_label="cultivar",
    ),
    DatasetSpec(
        name="cancer",
        title="Wisconsin breast cancer, original: nine cell features graded 1 to 10",
        source="UCI breast-cancer-wisconsin.data, rows with missing values left out",
        columns=9,
        load=load_cancer,
        splits=_all(
            683,
            "bc73e21a012ac38cf3cd029e744986f2a52738643c3a29ff818b131004d40ef0",
            RawFile(
                ("breast-cancer-wisconsin.data",),
                _UCI + "breast-cancer-wisconsin/breast-cancer-wisconsin.data",
            ),
        ),
        default_label="diagnosis",
    ),
    DatasetSpec(
        name="face",
        title="CMU face images, 32 x 30: 20 people in 4 poses",
        source="UCI CMU face images, quarter size",
        columns=960,
        load=load_faces,
        splits=_all(
            624,
            "4cdd713a96060d1b51379e313c84ac3d8c6b034b60b69f84640e6ddb24e9c263",
            RawFile(("faces_4.tar.gz", "faces.tar.gz"), _UCI + "faces-mld/faces_4.tar.gz"),
        ),
        default_label="identity",
    ),
    DatasetSpec(
        name="mnist",
        title="MNIST handwritten digits, 28 x 28",
        source="the four IDX files of LeCun, Cortes and Burges",
        columns=784,
        load=load_mnist,
        splits={
            "test": _mnist_split(
                "t10k",
                10_000,
                "fa2f0ba290c3f0facd1cf5206d136fd9d2eb32fcde36de035b3860b46b24688e",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
            "train": _mnist_split(
                "train",
                60_000,
                "3a320f9eb3bc4efffc1b90a84410d17e0ed3660cef2bfddaa1876f3b715d17d0",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
        },
        default_label="digit",
    ),
    DatasetSpec(
        name="flower",
        title="Flower: the distinct colours of a tessellation picture",
        source="flower.png",
        columns=3,
        load=load_colours,
        splits=_all(
            256,
            "f11a32d7b3262444496610d7572b726596bc6182225c6e5c2f6a62f524e83540",
            RawFile(("flower.png",)),
        ),
    ),
    DatasetSpec(
        name="digits",
        title="Handwritten digits, 8 x 8",
        source="UCI, as bundled with scikit-learn",
        columns=64,
        load=partial(load_bundled, "load_digits", "digit", (8, 8)),
        splits=_all(1797, "f390087eb1eb79fcfb997ff41a3aed5edeea36673b3e0912ecf06e3eeacd472f"),
        default_label="digit",
    ),
    DatasetSpec(
        name="breast_cancer",
        title="Wisconsin breast cancer, diagnostic: thirty measures of cell nuclei",
        source="UCI, as bundled with scikit-learn",
        columns=30,
        load=partial(load_bundled, "load_breast_cancer", "diagnosis"),
        splits=_all(569, "797e699df7ede6477912a35ed633ea9d43380e605082a41564d9b80579ae116f"),
        default_label="diagnosis",
    ),
)

DATASETS: dict[str, DatasetSpec] = {spec.name: spec for spec in _SPECS}


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
                f"a table is stored as {name!r}, the name of a built-in data set: store it under "
                "another name, or replace it with --force (force=True)"
            )
        raw = _checked_values(spec, split)
        info = DatasetInfo(
            name=name,
            split=split,
            source=spec.source,
            feature_names=raw.feature_names,
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
        pixels = read_raw(load_pixels, find_or_download(name, *split.raw))
    except RawFileError:
        return None
    return pixels if content_digest(colours_of(pixels), {}) == split.content_sha256 else None
