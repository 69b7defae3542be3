"""Metadata of a data set: names, origin, classes and picture shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.errors import misfit
from storage.paths import safe_name

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
        _check_codes(safe_name(name), codes, rows, info.class_names.get(name))


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
