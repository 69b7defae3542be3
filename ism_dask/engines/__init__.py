"""Engines compute Phi, J and the gradient: they differ in cost and agree in their results."""

from __future__ import annotations

from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.constant import ConstantSlope
from ism_dask.engines.constant_directions import PaddedOperator
from ism_dask.engines.exact import Exact
from ism_dask.engines.lowrank.landmark_engine import Landmarks
from ism_dask.engines.lowrank.monomial_engine import MonomialEngine
from ism_dask.engines.random_blocks import Blocks
from ism_dask.engines.select import ENGINES, candidate_engines, first_engine, first_that_serves

__all__ = [
    "ENGINES",
    "Blocks",
    "ConstantSlope",
    "DeclinedError",
    "Engine",
    "Exact",
    "Landmarks",
    "MonomialEngine",
    "PaddedOperator",
    "Problem",
    "candidate_engines",
    "first_engine",
    "first_that_serves",
]
