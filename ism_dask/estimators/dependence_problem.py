"""The rows of a fit by dependence: their kernel, samples and precision; and HSIC of given rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ism_dask._types import Array
from ism_dask._validation import check_seed
from ism_dask.engines import (
    Engine,
    EngineOptions,
    ExactEngine,
    Problem,
    as_engine,
    first_that_serves,
)
from ism_dask.engines.base import SAMPLE_ROWS
from ism_dask.estimators.preparation import Prepared, prepare_rows
from ism_dask.gamma.base import Dependence, repeated_rows
from ism_dask.gamma.target_input import rows_and_target
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Kernel, PointwiseKernel, as_kernel
from ism_dask.kernels.base import overflow_error
from ism_dask.kernels.pairing import DISTANCE
from ism_dask.linalg.subspaces import RowSpace
from ism_dask.rows.execution import on_this_machine
from ism_dask.rows.shards import Shards, cut
from ism_dask.threads import single_threaded_blas

# Contributions are computed on up to this many rows.
_SAMPLED_ROWS = 2000
# Single precision is enough if its rounding error is at most this share of what distinguishes
# typical rows. The final J and the residual are computed in double precision in any case.
_SINGLE_SHARE = 0.01
# Rows whose median width counts as typical.
_TYPICAL_ROWS = 500


@dataclass(frozen=True, eq=False)
class DependenceRows:
    """The rows of a fit, with the kernel and the sample that belong to them.

    All numbers of the kernel are set. `chosen` (s,) are the indices of the rows of the sample
    (s, r), which is in double precision; `seed` is that of the engines.
    """

    prepared: Prepared
    kernel: Kernel
    q: int
    chosen: Array
    sample: Array
    seed: int

    @classmethod
    def sampled(
        cls,
        prepared: Prepared,
        kernel: Kernel,
        random_state: Any,
        q: int,
        weights: Array | None = None,
    ) -> DependenceRows:
        """Return all that a fit of W (d, q) to prepared rows needs except Gamma.

        Rows with weights (n,) occur in the sample as often as these say.
        """
        random, n = check_random_state(random_state or 0), prepared.shards.n_rows
        drawn = np.arange(n) if weights is None else repeated_rows(weights)
        if len(drawn) > SAMPLE_ROWS:
            drawn = np.sort(random.choice(drawn, SAMPLE_ROWS, replace=False))
        seed, sample = int(random.randint(2**31)), prepared.shards.in_double().rows(drawn)
        kernel = kernel.with_rows_mapped(prepared.lower_rows)
        resolved = kernel.resolve(prepared.with_others(sample), prepared.column_share(q))
        return cls(prepared, resolved, q, drawn, sample, seed)

    @cached_property
    def shards(self) -> Shards:
        """The rows, in the precision that the kernel needs.

        Single precision is too coarse if distances are far smaller than the lengths of the rows, or
        if the kernel is so wide that it is almost constant. A kernel that is almost constant in
        double precision too is an error.
        """
        shards, sample = self.prepared.shards, self.sample
        size = float(np.einsum("ij,ij->", sample, sample)) / len(sample)
        worst_loss = max(_precision_loss(term, size, sample) for _, term in self.kernel.terms)
        if float(np.finfo(np.float64).eps) * worst_loss >= 1.0:
            _raise_constant(self.kernel, size, shards.dtype)
        limits: Any = np.finfo(shards.dtype)
        eps = float(limits.eps)
        squares_fit = float(limits.tiny) < eps**2 * size < eps**4 * float(limits.max)
        is_double = not squares_fit or eps * worst_loss > _SINGLE_SHARE
        return shards.in_double() if is_double else shards

    @property
    def fitted_kernel(self) -> Kernel:
        """The kernel; rows that it may hold are mapped to the user's features."""
        return self.kernel.with_rows_mapped(self.prepared.lift_rows)

    def problem(self, dependence: Dependence) -> Problem:
        """Return the problem of all rows under a dependence, such as that of y."""
        return Problem.from_dependence(self.shards, self.kernel, dependence, **self.parameters)

    def contributing(self, dependence: Dependence) -> Engine:
        """Return the engine of all rows if they are few, else of a sample, in this process."""
        n = self.shards.n_rows
        if n <= _SAMPLED_ROWS:
            X = self.shards.rows(np.arange(n))
        else:
            random = np.random.default_rng(self.seed)
            positions = np.sort(random.permutation(len(self.chosen))[:_SAMPLED_ROWS])
            X = self.sample[positions].astype(self.shards.dtype)
            dependence = dependence.part(self.chosen[positions])
        with on_this_machine():
            return ExactEngine(Problem.from_dependence(cut(X), self.kernel, dependence), self.q)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of `Problem` other than the rows, the kernel and Gamma."""
        prepared = self.prepared
        space = RowSpace(prepared.n_varying, prepared.n_constant, prepared.basis)
        return {"sample": self.sample, "seed": self.seed, "space": space}


def _raise_constant(kernel: Kernel, size: float, dtype: np.dtype[Any]) -> None:
    """Raise ValueError: the kernel is almost constant over rows of squared length `size`.

    If the kernel overflows, raise `overflow_error` instead.
    """
    beta = np.array([[0.0, size]])
    with np.errstate(over="ignore"):
        values = [term.value(beta.copy()).astype(dtype) for _, term in kernel.terms]
    if not np.isfinite(values).all():
        raise overflow_error()
    names = " and ".join(term.title for _, term in kernel.terms)
    raise ValueError(
        f"{names} is all but constant over these rows: its values differ by less than rounding. "
        "Take a width or an offset nearer the distances between the rows"
    )


def _precision_loss(term: PointwiseKernel, size: float, sample: Array) -> float:
    """Return the factor by which f loses relative precision, for rows of squared length `size`."""
    if term.constant_slope or not size > 0:
        return 1.0
    if term.per_row_width:
        size /= float(np.median(term.widths(sample[:_TYPICAL_ROWS]))) ** 2
    # beta of two rows that differ in one direction of X.
    beta = np.full((1, 1), 2.0 * size / sample.shape[1])
    zero = np.zeros((1, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        at_zero = term.value(zero.copy())
        difference = np.abs(term.value(beta.copy()) - at_zero)
        steepest = zero if term.pairing is DISTANCE else beta
        error_size = np.abs(at_zero) + 4 * size * np.abs(term.slope(steepest))
        share = float(np.divide(error_size, difference)[0, 0]) if difference > 0 else np.inf
    return share if np.isfinite(share) else np.inf


def hsic(
    X: Any,
    y: Any,
    *,
    kernel: str | Kernel = "gaussian",
    target: str = "auto",
    engine: str | EngineOptions = "auto",
    standardize: bool = False,
    random_state: Any = None,
) -> float:
    """Return how strongly X depends on y: `tr(K_X H K_Y H) / (n - 1)^2`.

    With `Z = estimator.transform(X)` and `kernel=estimator.kernel_` this equals
    `estimator.objective_ / (n - 1)^2`, except for kernels with a width for each row, whose widths
    belong to the space of all features. The function makes no n x n matrix.

    Parameters
    ----------
    X : (n, d) array
    y : (n,) labels, or (n,) or (n, t) numbers
    kernel : str or Kernel, default "gaussian"
        Kernel of X. A median width is the median distance of the rows of X as given here.
    target : str, default "auto"
        Kernel of y, as in `SupervisedIKDR`.
    engine : {"auto", "closed_form", "landmarks", "exact"} or EngineOptions, default "auto"
        As in `SupervisedIKDR`: "auto" may approximate from 4,000 rows up, "exact" never does.
    standardize : bool, default False
        Whether to scale the features to mean 0 and standard deviation 1 first.
    random_state : int, RandomState or None, default None
        As in `SupervisedIKDR`.

    Returns
    -------
    float

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import hsic
    >>> X, y = load_wine(return_X_y=True)
    >>> round(hsic(X, y, standardize=True), 4)
    0.0465
    """
    check_seed(random_state)
    X, y = rows_and_target(X, y, 2)
    with single_threaded_blas():
        kernel_of_x = as_kernel(kernel)
        prepared = prepare_rows(X, kernel_of_x, standardize=standardize)
        rows = DependenceRows.sampled(prepared, kernel_of_x, random_state, X.shape[1])
        problem = rows.problem(target_dependence(y, target))
        identity = np.eye(problem.d)
        engines = as_engine(engine).engines(problem, problem.d)
        J = first_that_serves(engines, lambda chosen: chosen.double.value(identity))
    return J.objective / (len(X) - 1) ** 2
