"""Interpretable kernel dimension reduction by the Iterative Spectral Method."""

from ism_dask.estimators import (
    AlternativeIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
    hsic,
)

__version__ = "0.1.0"

__all__ = [
    "AlternativeIKDR",
    "SemiSupervisedIKDR",
    "SupervisedIKDR",
    "UnsupervisedIKDR",
    "__version__",
    "hsic",
]
