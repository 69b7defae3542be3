"""Engines compute Phi, J and the gradient: they differ in cost and in a stated error."""

from __future__ import annotations

from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.lowrank.landmark_engine import LandmarkEngine
from ism_dask.engines.options import ENGINES, EngineOptions, as_engine, first_that_serves

__all__ = [
    "ENGINES",
    "DeclinedError",
    "Engine",
    "EngineOptions",
    "ExactEngine",
    "LandmarkEngine",
    "Problem",
    "as_engine",
    "first_that_serves",
]
