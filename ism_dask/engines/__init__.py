"""Engines: ways to compute Phi that differ in cost and agree in their answer."""

from __future__ import annotations

from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.constant import Closed
from ism_dask.engines.exact import Exact
from ism_dask.engines.lowrank.landmarks import Landmarks
from ism_dask.engines.lowrank.monomials import Features
from ism_dask.engines.padding import PaddedOperator
from ism_dask.engines.random_blocks import Blocks
from ism_dask.engines.select import ENGINES, attempt, candidates, choose

__all__ = [
    "ENGINES",
    "Blocks",
    "Closed",
    "DeclinedError",
    "Engine",
    "Exact",
    "Features",
    "Landmarks",
    "PaddedOperator",
    "Problem",
    "attempt",
    "candidates",
    "choose",
]
