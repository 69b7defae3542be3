"""Interpretable kernel dimension reduction by the Iterative Spectral Method."""

from ism_dask.estimators import SupervisedIKDR, hsic

__version__ = "0.1.0"

__all__ = ["SupervisedIKDR", "__version__", "hsic"]
