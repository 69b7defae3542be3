"""Interpretable kernel dimension reduction, by prediction or by the Iterative Spectral Method.

Public names are imported at their first use. A program that only reads rows or a saved model does
not wait for the import of Dask, and one that learns from classes does not wait for k-means.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ism_dask import kernels
    from ism_dask.estimators.clusterers import (
        AlternativeIKDR,
        SemiSupervisedIKDR,
        UnsupervisedIKDR,
    )
    from ism_dask.estimators.colored_mvu import ColoredMVU
    from ism_dask.estimators.dependence_problem import hsic
    from ism_dask.estimators.predictive import PredictiveIKDR
    from ism_dask.estimators.supervised import SupervisedIKDR
    from ism_dask.export import to_onnx
    from ism_dask.gamma.independence import DependenceTest, dependence_test
    from ism_dask.inference.intervals import Intervals, intervals
    from ism_dask.observe import saving_checkpoints
    from ism_dask.observe.progress_bar import progress_bar
    from ism_dask.records.checkpoint import CheckpointedFit
    from ism_dask.records.fit_report import Certificate, FitReport
    from ism_dask.status import ComponentsWarning, WeightsWarning

__version__ = "0.3.0"

__all__ = [
    "AlternativeIKDR",
    "Certificate",
    "CheckpointedFit",
    "ColoredMVU",
    "ComponentsWarning",
    "DependenceTest",
    "FitReport",
    "Intervals",
    "PredictiveIKDR",
    "SemiSupervisedIKDR",
    "SupervisedIKDR",
    "UnsupervisedIKDR",
    "WeightsWarning",
    "__version__",
    "dependence_test",
    "hsic",
    "intervals",
    "kernels",
    "progress_bar",
    "saving_checkpoints",
    "to_onnx",
]

_MODULES = {
    "AlternativeIKDR": "estimators.clusterers",
    "Certificate": "records.fit_report",
    "CheckpointedFit": "records.checkpoint",
    "ColoredMVU": "estimators.colored_mvu",
    "ComponentsWarning": "status",
    "FitReport": "records.fit_report",
    "DependenceTest": "gamma.independence",
    "Intervals": "inference.intervals",
    "PredictiveIKDR": "estimators.predictive",
    "SemiSupervisedIKDR": "estimators.clusterers",
    "SupervisedIKDR": "estimators.supervised",
    "UnsupervisedIKDR": "estimators.clusterers",
    "WeightsWarning": "status",
    "dependence_test": "gamma.independence",
    "hsic": "estimators.dependence_problem",
    "intervals": "inference.intervals",
    "progress_bar": "observe.progress_bar",
    "saving_checkpoints": "observe",
    "to_onnx": "export",
}


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return import_module("ism_dask.kernels")
    if name in _MODULES:
        try:
            return getattr(import_module(f"ism_dask.{_MODULES[name]}"), name)
        except ModuleNotFoundError as error:
            needed = f"`{name}` needs {error.name}: pip install 'ism-dask[flows]'"
            raise ImportError(needed) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
