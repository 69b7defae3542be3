"""Solvers of the fits: the Iterative Spectral Method, and the ascent of a prediction."""

from __future__ import annotations

from ism_dask.solvers.options import ISM, SOLVERS, Ascent, Solver, as_solver

__all__ = ["ISM", "SOLVERS", "Ascent", "Solver", "as_solver"]
