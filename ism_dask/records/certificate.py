"""What was proved of a solution: whether it is a local maximum of J, or why that is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """Whether W is a local maximum of J under the true kernel, and the numbers that say so.

    J depends only on the span of W, so its Hessian is that on the Grassmann manifold: along
    directions Z with `W^T Z = 0`. At a strict maximum all its eigenvalues are negative.

    Attributes
    ----------
    is_certified : bool
        Whether W is a local maximum, but for the `distance`; False also if that is not known.
    reason : str
        What is known and why, in one sentence.
    is_global : bool
        Whether no W at all has a larger J. Known only if Phi does not depend on W.
    residual : float
        The residual of W under the true kernel.
    residual_rows : int
        The number of rows on which the residual was measured.
    largest_eigenvalue : float
        The largest eigenvalue of the Hessian, relative to the largest one in size. NaN if the
        Hessian was not measured, as the `distance`.
    distance : float
        The sine of the largest angle between W and the maximum, to second order, or a bound on it.
    """

    is_certified: bool = False
    reason: str = "not certified: the Hessian was not measured"
    is_global: bool = False
    residual: float = math.nan
    residual_rows: int = 0
    largest_eigenvalue: float = math.nan
    distance: float = math.nan
