"""Load or draw the rows that the figures are measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from benchmarks.measure import say
from flows.builtin import ingest
from ism_dask.rows.raw import RowSource
from storage import Dataset, DatasetInfo, datasets_folder, is_complete, open_dataset, write_dataset

Array = NDArray[Any]
# Points along a side of an image of MNIST, and the most points by which it is shifted.
_SIDE, _REACH = 28, 2


@dataclass(frozen=True)
class Head:
    """The first rows of a stored matrix, as a `RowSource` that any process can read by itself.

    Attributes
    ----------
    source : RowSource
    rows : int
    """

    source: RowSource
    rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """The number of these rows, and of columns."""
        return self.rows, self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype as stored."""
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        """The number of rows in a chunk of the source."""
        return self.source.chunk_rows

    def read(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` (exclusive)."""
        return self.source.read(start, min(stop, self.rows))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows with their labels y (n,): X is an array (n, d), or a `RowSource` that fits stream."""

    X: Any
    y: Array

    def head(self, n: int) -> Labelled:
        """Return the first n rows, as a `RowSource` if X is one."""
        X = Head(self.X, n) if isinstance(self.X, RowSource) else self.X[:n]
        return Labelled(X, self.y[:n])

    def in_memory(self) -> Labelled:
        """Return the same rows and labels with X as an array."""
        X = self.X.read(0, self.X.shape[0]) if isinstance(self.X, RowSource) else self.X
        return Labelled(X, self.y)


def mnist_train() -> Dataset:
    """Return the data set of MNIST's 60,000 training images, ingested first if need be."""
    return ingest("mnist", "train")


def labelled(data: Dataset) -> Labelled:
    """Return the rows and labels of a data set; fits stream the rows."""
    return Labelled(data.X, np.asarray(data.y))


def shifted_mnist(rows: int, *, seed: int = 0) -> Dataset:
    """Return the data set of `rows` shifted images, written first unless it is stored already."""
    name = f"mnist-shifted-{rows}"
    target = datasets_folder() / name
    if not is_complete(target):
        source = mnist_train()
        info = DatasetInfo(
            name=name,
            source=f"MNIST train, shifted by up to {_REACH} pixels, seed {seed}",
            class_names=source.class_names,
            image_shape=(_SIDE, _SIDE),
            default_label="digit",
        )
        labels = {"digit": np.resize(np.asarray(source.y), rows)}
        blocks = shifted_blocks(source, rows, seed)
        write_dataset(target, info, blocks, labels, on_rows=_WriteProgress(rows))
    return open_dataset(target)


def shifted_blocks(source: Dataset, rows: int, seed: int) -> Iterator[Array]:
    """Yield `rows` shifted images in blocks (b, 784), reading the source as often as needed."""
    step, done, copy = source.X.chunk_rows, 0, 0
    while done < rows:
        for start in range(0, min(len(source.X), rows - done), step):
            stop = min(start + step, len(source.X), start + rows - done)
            rng = np.random.default_rng([seed, copy, start])
            block = source.X.read(start, stop)
            yield shifted(block, rng.integers(2 * _REACH + 1, size=(len(block), 2)))
            done += len(block)
            if done == rows:
                return
        copy += 1


def shifted(pictures: Array, corners: Array) -> Array:
    """Return images (b, 784) shifted by cutting windows at `corners` (b, 2) of zero-padded ones.

    A corner lies 0 to 4 pixels down and to the right; (2, 2) leaves an image unshifted.
    """
    frame = ((0, 0), (_REACH, _REACH), (_REACH, _REACH))
    framed = np.pad(pictures.reshape(-1, _SIDE, _SIDE), frame)
    windows = sliding_window_view(framed, (_SIDE, _SIDE), axis=(1, 2))
    shifted_windows = windows[np.arange(len(pictures)), corners[:, 0], corners[:, 1]]
    return np.asarray(shifted_windows.reshape(len(pictures), -1))


class _WriteProgress:
    """Prints how many rows are written, once for each tenth."""

    def __init__(self, rows: int) -> None:
        self._rows, self._tenths = rows, 0

    def __call__(self, done: int) -> None:
        if 10 * done // self._rows > self._tenths:
            self._tenths = 10 * done // self._rows
            say(f"wrote {done:,} of {self._rows:,} rows")
