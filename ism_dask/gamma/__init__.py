"""Gamma, the dependence that W is to explain: from classes, numbers or an embedding."""

from ism_dask.gamma.base import Dependence, Gamma, ThinGamma
from ism_dask.gamma.classes import ClassGamma, class_dependence

__all__ = ["ClassGamma", "Dependence", "Gamma", "ThinGamma", "class_dependence"]
