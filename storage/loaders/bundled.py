"""Data sets that come with scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from storage.loaders.base import RawData


def load_bundled_wine() -> RawData:
    """Load UCI's wine data: X of shape (178, 13), float64; label "cultivar"."""
    found = load_wine()
    return RawData(
        X=found.data,
        labels={"cultivar": found.target.astype(np.int64)},
        class_names={"cultivar": _words(found.target_names)},
        feature_names=_words(found.feature_names),
    )


def load_bundled_digits() -> RawData:
    """Load UCI's digits: X of shape (1797, 64), uint8 from 0 to 16; label "digit"."""
    found = load_digits()
    return RawData(
        X=found.data.astype(np.uint8),
        labels={"digit": found.target.astype(np.int64)},
        class_names={"digit": _words(found.target_names)},
        feature_names=_words(found.feature_names),
        image_shape=(8, 8),
    )


def load_bundled_breast_cancer() -> RawData:
    """Load the diagnostic breast cancer data: X of shape (569, 30), float64."""
    found = load_breast_cancer()
    return RawData(
        X=found.data,
        labels={"diagnosis": found.target.astype(np.int64)},
        class_names={"diagnosis": _words(found.target_names)},
        feature_names=_words(found.feature_names),
    )


def _words(names: object) -> tuple[str, ...]:
    """Return names as plain strings."""
    return tuple(np.asarray(names).astype(str).tolist())
