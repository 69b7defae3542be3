"""Interpretable kernel dimension reduction by the Iterative Spectral Method.

What is exported is imported when it is first asked for: who only reads rows, or a saved model,
does not wait for Dask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ism_dask import kernels
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
    "kernels",
]


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return import_module("ism_dask.kernels")
    if name in __all__:
        return getattr(import_module("ism_dask.estimators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
