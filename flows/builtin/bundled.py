"""Load the data sets that are bundled with scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flows.builtin.raw_data import RawData


def load_bundled_wine() -> RawData:
    """Load UCI's wine data: X of shape (178, 13), float64; label "cultivar"."""
    return _raw("load_wine", "cultivar")


def load_bundled_digits() -> RawData:
    """Load UCI's digits: X of shape (1797, 64), uint8 from 0 to 16; label "digit"."""
    raw = _raw("load_digits", "digit")
    return replace(raw, X=raw.X.astype(np.uint8), image_shape=(8, 8))


def load_bundled_breast_cancer() -> RawData:
    """Load the diagnostic breast cancer data: X of shape (569, 30), float64."""
    return _raw("load_breast_cancer", "diagnosis")


def _raw(loader: str, label: str) -> RawData:
    """Load a data set by a function of `sklearn.datasets`; its target becomes the label."""
    # Imported here: it takes a second, which readers of stored data sets need not wait for.
    from sklearn import datasets  # noqa: PLC0415

    bunch: Any = getattr(datasets, loader)()
    return RawData(
        X=bunch.data,
        labels={label: bunch.target.astype(np.int64)},
        class_names={label: _strings(bunch.target_names)},
        feature_names=_strings(bunch.feature_names),
    )


def _strings(names: object) -> tuple[str, ...]:
    """Return names as plain strings."""
    return tuple(np.asarray(names).astype(str).tolist())
