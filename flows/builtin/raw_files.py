"""Find, download and read the raw files of the built-in data sets.

A loader runs nothing, and unpacks nothing onto the disk. That the values are the published ones is
checked after it, by their digest.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from storage.atomic import explain_os_errors, sync, workspace
from storage.errors import StorageError
from storage.paths import home, safe_name

DATA_VARIABLE = "ISM_DASK_DATA"
# The most bytes of a download, and of a file that is unpacked in memory.
_SIZE_LIMIT = 2**28
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
Values = TypeVar("Values")

# The tree also holds pictures of other sizes and broken ones (`.bad`): they do not match.
_FACE = re.compile(
    r"(?P<person>[a-z0-9]+)_(?P<pose>left|right|straight|up)_"
    r"(?:neutral|happy|sad|angry)_(?:open|sunglasses)_4\.pgm"
)


class RawFileError(StorageError):
    """A raw file is missing, unreadable, truncated, hostile, or of another format or edition."""


class DownloadError(StorageError):
    """A raw file could not be downloaded from its public address."""


@dataclass(frozen=True)
class RawFile:
    """A raw file and where to get it."""

    names: tuple[str, ...]  # file names it may have; a downloaded copy gets the first
    url: str | None = None
    # Digest of the bytes at `url`, if they have only one form. A copy on disk may be packed
    # differently: its values are checked instead.
    sha256: str | None = None


def find_or_download(dataset: str, raw: RawFile) -> Path:
    """Return the path of a raw file; download it into the home if it is nowhere on disk.

    The function looks for `$ISM_DASK_DATA/<dataset>/<file>`, `$ISM_DASK_DATA/<file>` and
    `<home>/raw/<dataset>/<file>`, in this order.
    """
    downloads = home() / "raw" / safe_name(dataset)
    named = os.environ.get(DATA_VARIABLE)
    data = Path(named or downloads).expanduser()
    folders = [data / dataset, data, downloads] if named else [downloads]
    for folder, name in product(folders, raw.names):
        if (folder / name).is_file():
            return folder / name
    if raw.url is None:
        raise RawFileError(
            f"{dataset} needs {' or '.join(raw.names)}, which has no public home and was not found "
            f"in {', '.join(map(str, folders))}. Put the file into a folder and set "
            f"{DATA_VARIABLE} to that folder."
        )
    return fetch(raw.url, downloads / raw.names[0], raw.sha256)


def fetch(url: str, target: Path, sha256: str | None = None) -> Path:
    """Download `url` to the file `target`, which appears only when complete and verified.

    `sha256` is the expected digest of the bytes as sent.
    """
    with workspace(target) as work:
        try:
            _download(url, work.payload, sha256)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise DownloadError(
                f"could not fetch {url}: {str(error) or type(error).__name__}. Check the network, "
                f"or put the file into a folder and set {DATA_VARIABLE} to that folder."
            ) from error
        with explain_os_errors(target):
            sync(work.payload)
        work.publish()
    return target


def _download(url: str, path: Path, sha256: str | None) -> None:
    """Write the body of the response to `path` as it arrives, and check its SHA-256."""
    digest = hashlib.sha256()
    # The bytes are hashed as sent, so the server must not compress a compressed file once more.
    headers = {"Accept-Encoding": "identity"}
    with (
        httpx.stream("GET", url, timeout=_TIMEOUT, follow_redirects=True, headers=headers) as body,
        explain_os_errors(path),
        path.open("wb") as handle,
    ):
        body.raise_for_status()
        for piece in body.iter_raw(2**16):
            if body.num_bytes_downloaded > _SIZE_LIMIT:
                raise ValueError(f"more than {_SIZE_LIMIT} bytes, the most expected")
            digest.update(piece)
            handle.write(piece)
    if sha256 not in (None, digest.hexdigest()):
        raise ValueError(f"SHA-256 of what came is {digest.hexdigest()}, expected {sha256}")


@dataclass(frozen=True, eq=False)
class RawData:
    """A data set as read from its raw files."""

    X: NDArray[Any]  # (n, d), in the narrowest dtype that holds the raw values exactly
    labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # codes (n,) from 0
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of each code
    feature_names: tuple[str, ...] | None = None
    image_shape: tuple[int, ...] | None = None  # (height, width) if a row is a picture


def read_raw(load: Callable[..., Values], *paths: Path, **options: Any) -> Values:
    """Return what a loader reads; turn what goes wrong into a RawFileError with the paths."""
    try:
        return load(*paths, **options)
    except Exception as error:  # readers raise anything for files that are cut or hostile
        files = " or ".join(map(str, paths))
        raise RawFileError(
            f"{files} cannot be read ({getattr(error, 'strerror', None) or error}). Remove it "
            "and fetch it again, or put a good copy there."
        ) from error


def load_bundled(loader: str, label: str, image_shape: tuple[int, ...] | None = None) -> RawData:
    """Load a data set by a function of `sklearn.datasets`; its target becomes the label."""
    # Imported here: it takes a second, which readers of stored data sets need not wait for.
    from sklearn import datasets  # noqa: PLC0415

    bunch: Any = getattr(datasets, loader)()
    names, classes = (
        tuple(np.asarray(each).astype(str).tolist())
        for each in (bunch.feature_names, bunch.target_names)
    )
    return RawData(
        X=bunch.data if image_shape is None else bunch.data.astype(np.uint8),
        labels={label: bunch.target.astype(np.int64)},
        class_names={label: classes},
        feature_names=names,
        image_shape=image_shape,
    )


def load_cancer(path: Path) -> RawData:
    """Load UCI's original Wisconsin breast cancer data without the rows that lack a value.

    A line has an id, nine whole numbers from 1 to 10, and the class, 2 or 4.
    """
    # Imported here: lists of the data sets need not wait for it.
    from pyarrow import csv  # noqa: PLC0415

    names = [str(column) for column in range(11)]
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=names),
        convert_options=csv.ConvertOptions(null_values=["?"]),
    ).drop_null()
    columns = [table[name].to_numpy() for name in names[1:]]
    return RawData(
        X=np.column_stack(columns[:-1]).astype(np.uint8),
        labels={"diagnosis": columns[-1] // 4},
        class_names={"diagnosis": ("benign", "malignant")},
    )


def load_faces(path: Path) -> RawData:
    """Load the quarter-size CMU face images from a gzip tar, sorted by name."""
    with tarfile.open(path, "r:gz") as archive:
        members = {PurePosixPath(each.name).name: each for each in archive if each.isfile()}
        matches = [match for match in map(_FACE.fullmatch, sorted(members)) if match]
        files = [archive.extractfile(members[match[0]]) for match in matches]
        faces = np.stack([np.asarray(Image.open(file, formats=("PPM",))) for file in files if file])
    codes, names = {}, {}
    for label, group in (("identity", "person"), ("pose", "pose")):
        classes, inverse = np.unique([match[group] for match in matches], return_inverse=True)
        names[label] = tuple(str(name) for name in classes)
        codes[label] = inverse.astype(np.int64)
    X, shape = faces.reshape(len(faces), -1), faces.shape[1:]
    return RawData(X=X, labels=codes, class_names=names, image_shape=shape)


def load_mnist(images_path: Path, labels_path: Path) -> RawData:
    """Load one split of MNIST from gzip IDX files of n images and of n labels."""
    images, digits = read_idx(images_path, 3), read_idx(labels_path, 1)
    return RawData(
        X=images.reshape(len(images), -1),
        labels={"digit": digits.astype(np.int64)},
        class_names={"digit": tuple("0123456789")},
        image_shape=images.shape[1:],
    )


def read_idx(path: Path, ndim: int) -> NDArray[np.uint8]:
    """Return the array in a gzip IDX file of unsigned bytes with `ndim` dimensions.

    It has a magic number, the dimensions, then the bytes.
    """
    with gzip.open(path, "rb") as handle:
        data = handle.read(_SIZE_LIMIT)
    shape = np.frombuffer(data, ">u4", ndim, offset=4).tolist()
    return np.frombuffer(data, np.uint8, offset=4 + 4 * ndim).reshape(shape)


def load_colours(path: Path) -> RawData:
    """Load the distinct colours of a PNG, sorted: red, green, blue."""
    red, green, blue = load_pixels(path).reshape(-1, 3).T.astype(np.uint32)
    # As one number each: `np.unique` takes a hundred times as long for rows.
    codes = np.unique(red << 16 | green << 8 | blue)
    X = np.column_stack((codes >> 16, codes >> 8 & 255, codes & 255)).astype(np.uint8)
    return RawData(X)


def load_pixels(path: Path) -> NDArray[np.uint8]:
    """Load the pixels of a PNG, shape (height, width, 3)."""
    with Image.open(path, formats=("PNG",)) as picture:
        return np.asarray(picture.convert("RGB"))
