"""Estimators with the scikit-learn contract, one file for each paradigm."""

from ism_dask.estimators.alternative import AlternativeIKDR
from ism_dask.estimators.criterion import hsic
from ism_dask.estimators.semisupervised import SemiSupervisedIKDR
from ism_dask.estimators.supervised import SupervisedIKDR
from ism_dask.estimators.unsupervised import UnsupervisedIKDR

__all__ = [
    "AlternativeIKDR",
    "SemiSupervisedIKDR",
    "SupervisedIKDR",
    "UnsupervisedIKDR",
    "hsic",
]
