"""Solvers: the Iterative Spectral Method, and those that it is compared with."""

from __future__ import annotations

from ism_dask.solvers.options import (
    ISM,
    SOLVERS,
    Ascent,
    DimensionGrowth,
    Grassmann,
    Solver,
    Stiefel,
    as_solver,
)

__all__ = [
    "ISM",
    "SOLVERS",
    "Ascent",
    "DimensionGrowth",
    "Grassmann",
    "Solver",
    "Stiefel",
    "as_solver",
]
