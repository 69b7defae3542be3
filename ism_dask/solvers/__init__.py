"""Solvers of the fits: the Iterative Spectral Method, and the ascent of a prediction."""

from __future__ import annotations

from ism_dask.solvers.ascent import Ascent
from ism_dask.solvers.base import SOLVERS, Solver, as_solver
from ism_dask.solvers.ism import ISM

__all__ = ["ISM", "SOLVERS", "Ascent", "Solver", "as_solver"]

SOLVERS |= {"ascent": Ascent, "ism": ISM}
