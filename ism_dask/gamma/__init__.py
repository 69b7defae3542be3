"""Gamma, the dependence that W is to bring out: from classes, numbers or an embedding."""

from ism_dask.gamma.base import Dependence, FactorGamma, Gamma
from ism_dask.gamma.classes import ClassGamma, class_dependence

__all__ = ["ClassGamma", "Dependence", "FactorGamma", "Gamma", "class_dependence"]
