"""The rows of a fit by dependence with its kernel, and samples of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ism_dask._types import Array
from ism_dask._validation import check_seed
from ism_dask.engines import Engine, Exact, Problem
from ism_dask.engines.base import SAMPLE_ROWS
from ism_dask.engines.precision import needs_double
from ism_dask.estimators.preparation import Prepared
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.row_values import repeated_rows
from ism_dask.kernels import Kernel
from ism_dask.linalg.null_space import RowSpace
from ism_dask.rows.execution import on_this_machine
from ism_dask.rows.shards import Shards, cut

# Contributions are computed on up to so many rows.
_SAMPLED_ROWS = 2000


def seed_of(random_state: Any) -> int:
    """Return the first number that a random state draws."""
    check_seed(random_state)
    return int(check_random_state(random_state or 0).randint(2**31))


@dataclass(frozen=True, eq=False)
class DependenceRows:
    """The rows of a fit, with the kernel and the sample that belong to them.

    Attributes
    ----------
    prepared : Prepared
    kernel : Kernel
        The kernel, resolved: all its numbers are set.
    q : int
        The number of new features.
    chosen : (s,) array
        The indices of the sampled rows.
    sample : (s, r) array
        The sampled rows, in double precision.
    seed : int
        Seed of the engines.
    """

    prepared: Prepared
    kernel: Kernel
    q: int
    chosen: Array
    sample: Array
    seed: int

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        kernel: Kernel,
        random_state: Any,
        q: int,
        *,
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
        resolved = kernel.resolve(sample, prepared.column_share(q))
        return cls(prepared, resolved, q, drawn, sample, seed)

    @cached_property
    def shards(self) -> Shards:
        """The rows, in the precision that the kernel needs."""
        shards = self.prepared.shards
        return (
            shards.in_double() if needs_double(self.kernel, self.sample, shards.dtype) else shards
        )

    @property
    def space(self) -> RowSpace:
        """The coordinates of W."""
        return RowSpace(self.prepared.n_varying, self.prepared.n_constant, self.prepared.basis)

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
            return Exact().build(Problem.from_dependence(cut(X), self.kernel, dependence), self.q)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of `Problem` other than the rows, the kernel and Gamma."""
        return {"sample": self.sample, "seed": self.seed, "space": self.space}
