"""Estimators with the scikit-learn contract, one file for each paradigm."""

from ism_dask.estimators.criterion import hsic
from ism_dask.estimators.supervised import SupervisedIKDR

__all__ = ["SupervisedIKDR", "hsic"]
