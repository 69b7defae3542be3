"""How much each new feature contributes to J: alone, and to that of all together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ism_dask._types import Array
from ism_dask.solvers.support_selection import RowSample


class Contributions(NamedTuple):
    """What each new feature contributes to J.

    Attributes
    ----------
    alone : (q,) array
        J of each new feature alone.
    lost : (q,) array
        By how much J falls if one new feature is left out.
    """

    alone: Array
    lost: Array


def contributions(sample: RowSample, W: Array, objective: float) -> Contributions:
    """Return the contribution of each column of W (r, q), whose J of all rows is `objective`.

    J is computed on the sample, up to 2,000 rows, and scaled by its ratio to `objective`. So the
    result is exact if the sample has all rows.
    """
    engine = sample.engine(np.arange(sample.n_rows))
    whole = engine.objective(W)
    scale = objective / whole if whole else 0.0
    columns = np.eye(W.shape[1], dtype=bool)
    alone = np.array([engine.objective(W * column) for column in columns])
    without = np.array([engine.objective(W * ~column) for column in columns])
    return Contributions(scale * alone, objective - scale * without)
