"""The rows of the tables, in memory."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from flows.work.data import Array, Labelled, ensure_stored, label_named


def labelled(dataset: str, split: str | None = None) -> Labelled:
    """Return a data set with its own label; one of the registry is ingested if need be."""
    return label_named(ensure_stored(dataset, split), None)


def rows_of(dataset: str, split: str | None = None) -> tuple[Array, Array]:
    """Return all rows (n, d) as they are stored, and their classes (n,)."""
    return _read(ensure_stored(dataset, split).path, dataset, split)


def drawn(dataset: str, split: str, count: int, seed: int) -> tuple[Array, Array]:
    """Return the numbers of `count` rows that are drawn at random, and those of all others."""
    n = len(ensure_stored(dataset, split).X)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:count]), np.sort(order[count:])


@lru_cache(maxsize=2)
def _read(_path: Path, dataset: str, split: str | None) -> tuple[Array, Array]:
    # By path as well: another home has another data set of that name.
    known = labelled(dataset, split)
    return known.data.X.read(0, len(known.data.X)), np.asarray(known.classes)
