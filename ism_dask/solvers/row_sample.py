"""A sample of the rows of a fit, in memory, with J and its gradient over all pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ism_dask._types import Array
from ism_dask.engines import Engine, Exact, Problem

# The most rows in a sample.
SAMPLED_ROWS = 2000


@dataclass(frozen=True, eq=False)
class RowSample:
    """A sample of the rows of a fit.

    Attributes
    ----------
    n_rows : int
    q : int
        The number of new features.
    problem : callable
        Returns the problem of some rows (k,) of the sample, with the kernel of the fit.
    """

    n_rows: int
    q: int
    problem: Callable[[Array], Problem]

    def engine(self, rows: Array) -> Engine:
        """Return the exact engine of some rows (k,)."""
        return Exact().build(self.problem(rows), self.q)
