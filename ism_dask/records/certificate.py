"""What was proved of a solution: whether it is a local maximum of J, or why that is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """Whether W is a local maximum of J under the true kernel, and the numbers that say so.

    J depends only on the span of W, so its Hessian is that on the Grassmann manifold: along
    directions Z with `W^T Z = 0`. At a maximum all its eigenvalues are negative. They are given
    relative to the gaps between the eigenvalues of Phi within W and outside of it: where Phi hardly
    changes with W they are near -1, and an eigenvalue of 0 is a direction along which J is flat.
    Those of the prediction of y are relative to the largest one in size.

    Attributes
    ----------
    is_certified : bool
        Whether W is a local maximum, but for the `distance`; False also if that is not known.
    reason : str
        What is known and why, in one sentence.
    is_global : bool
        Whether no W at all has a larger J. Known only if Phi does not depend on W.
    residual : float
        The residual of W under the true kernel, as `residual_`.
    residual_rows : int
        The number of rows on which the residual was measured, as `residual_rows_`.
    largest_eigenvalue : float
        The largest eigenvalue of the scaled Hessian, by Lanczos, which comes to it from below. NaN
        if the Hessian was not measured, as all numbers below.
    upper_bound : float
        A bound on that eigenvalue. It holds but for a chance of 1 in 10,000 in the draw of the
        vector with which Lanczos starts, and surely if there were as many products as directions.
    distance : float
        A bound on the sine of the largest angle between W and the maximum, to second order.
    n_products : int
        The number of products with the Hessian.
    """

    is_certified: bool = False
    reason: str = "not certified: the Hessian was not measured"
    is_global: bool = False
    residual: float = math.nan
    residual_rows: int = 0
    largest_eigenvalue: float = math.nan
    upper_bound: float = math.nan
    distance: float = math.nan
    n_products: int = 0
