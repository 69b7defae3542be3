"""The prediction criterion: how much of y a kernel ridge regression on X W explains.

With the kernel matrix K of the rows of `X W` and the ridge lambda, the regularised loss of the
regression of Y (n, r) is `F = lambda tr(Y^T (K + n lambda I)^-1 Y)`, and the criterion is
`J = |Y|^2 / n - F`: the explained share of y if the rows of Y have a mean square of 1. With
`alpha = (K + n lambda I)^-1 Y`, the gradient of J is that of `sum_ij Gamma_ij K_ij` with
`Gamma = lambda alpha alpha^T` held fixed, so that it is `2 Phi W` as for any other Gamma.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels import Kernel
from ism_dask.kernels.pairing import DISTANCE
from ism_dask.linalg.cholesky import Cholesky, cholesky, square_matrices

_DOUBLE = np.dtype(np.float64)
# From this ridge on, single precision gives four digits of a regression with kernel values up to 1.
_SINGLE_RIDGE = 1e-4


@dataclass(frozen=True, eq=False)
class Block:
    """Rows X (n, d) that one regression takes, with the Y (n, r) that it predicts.

    `weights` (n,) are all positive, None if all rows count alike. A row of weight 2 counts as two
    equal rows.
    """

    X: Array
    Y: Array
    weights: Array | None = None

    def part(self, rows: Array) -> Block:
        """Return the block of some of the rows (k,)."""
        weights = None if self.weights is None else self.weights[rows]
        return Block(self.X[rows], self.Y[rows], weights)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.Y)

    @property
    def size(self) -> float:
        """The sum of the weights, which is the number of rows if all count alike."""
        return float(self.n_rows if self.weights is None else self.weights.sum())

    def weighted(self, losses: Array) -> Array:
        """Return losses (n,) of the rows times their weights."""
        return losses if self.weights is None else losses * self.weights

    def squares(self) -> Array:
        """Return the weighted mean square (r,) of each column of Y."""
        squared = self.Y**2 if self.weights is None else self.Y**2 * self.weights[:, None]
        return np.asarray(squared.sum(axis=0) / self.size)


@dataclass(frozen=True)
class Explained:
    """The criterion at a W on some rows: J, the share of y that is explained, and Phi W (d, q).

    `noise` is the standard error of the tangential part of Phi W between blocks of rows; 0 if there
    are too few blocks to tell.
    """

    objective: float
    product: Array
    noise: float = 0.0


@dataclass(frozen=True, eq=False)
class RidgeRegression:
    """Kernel ridge regression of Y on X W, by a positive definite kernel with all its numbers.

    `ridge` is lambda. `signs` (r,) are the weights of the columns of Y in J, negative for what X W
    is not to predict; None if all are 1. The matrices (n, n) in J and Phi W are in `dtype`.
    """

    kernel: Kernel
    ridge: float
    signs: Array | None = None
    dtype: np.dtype[Any] = _DOUBLE

    @property
    def in_single(self) -> RidgeRegression:
        """The regression in single precision if its rounding is far below the ridge, else itself.

        The rows have no weights: large ones lower the ridge.
        """
        bounded = all(term.pairing is DISTANCE for _, term in self.kernel.terms)
        single = bounded and self.ridge >= _SINGLE_RIDGE
        return replace(self, dtype=np.dtype(np.float32)) if single else self

    def with_width(self, factor: float, ridge: float) -> RidgeRegression:
        """Return the regression with the kernel's width times `factor` and another ridge."""
        kernel = self.kernel if factor == 1.0 else self.kernel.widened(factor)
        return replace(self, kernel=kernel, ridge=ridge)

    def explained(self, block: Block, W: Array) -> Explained:
        """Return J and Phi W at W (d, q)."""
        with square_matrices(block.X, 3, self.dtype) as (*memory, gamma):
            solved = _Solved.solve(self, block, W, memory, self.dtype)
            product = _kernel_product(
                self.kernel, solved, self._gamma(solved, gamma), block.X, solved.Z
            )
        predicted, avoided = self.sums(block.squares() - self.ridge * solved.fits(block))
        return Explained(float(predicted - avoided), product)

    def phi(self, block: Block, W: Array) -> Array:
        """Return Phi (d, d) at W (d, q)."""
        X = block.X.astype(_DOUBLE, copy=False)
        with square_matrices(block.X, 3) as (*memory, gamma):
            solved = _Solved.solve(self, block, W, memory)
            return _kernel_product(self.kernel, solved, self._gamma(solved, gamma), X, X)

    def evidence(self, block: Block, W: Array) -> float:
        """Return the log marginal likelihood of Y under a Gaussian process, for a column of Y.

        The variance of the noise is the most likely one. Columns that X W is not to predict do
        not count. Weights are numbers of equal rows, whose sum is Kish's effective number of rows:
        so their unit does not matter, and a row of tiny weight does not count.
        """
        n = float(block.n_rows)
        with square_matrices(block.X, 2) as memory:
            solved = _Solved.solve(self, block, W, memory)
            half_log_determinant = float(np.log(np.diag(solved.cholesky.factor)).sum())
        if block.weights is not None:
            weights = block.weights
            counts = weights * (weights.sum() / (weights @ weights))
            n = float(counts.sum())
            # That of repeated rows is larger by what copies of a row add to it.
            copies = (counts - 1.0) * np.log(n * self.ridge) + np.log(counts)
            half_log_determinant += 0.5 * float(copies.sum())
        fits = solved.fits(block)
        fits = fits if self.signs is None else fits[self.signs > 0]
        return -0.5 * n * float(np.log(fits.mean() / n)) - half_log_determinant

    def leave_one_out(self, block: Block, W: Array) -> Array:
        """Return the squared error (n,) with which others predict each row, times its weight.

        As in the evidence, columns that X W is not to predict do not count.
        """
        with square_matrices(block.X, 2) as memory:
            solved = _Solved.solve(self, block, W, memory)
            errors = solved.alpha / solved.cholesky.inverse_diagonal[:, None]
        return block.weighted(self.sums(errors**2)[0])

    def predicted(self, block: Block, W: Array, X: Array) -> Array:
        """Return what the rows of `block` predict of Y (m, r) for other rows X (m, d)."""
        with square_matrices(block.X, 2) as memory:
            solved = _Solved.solve(self, block, W, memory)
        return self.kernel.matrix(_projected(X, W), solved.Z, resolved=False) @ solved.alpha

    def _gamma(self, solved: _Solved, memory: Array) -> Array:
        """Return Gamma (n, n), whose product with the change of K is the change of J."""
        alpha = solved.alpha
        signs = self.ridge * (np.ones(1) if self.signs is None else self.signs)
        signed = alpha * signs.astype(alpha.dtype, copy=False)
        return np.matmul(signed, alpha.T, out=memory)

    def sums(self, columns: Array) -> Array:
        """Return the sums (2, ...) over the last axis, of length r: of columns to predict, others.

        The others have their weights.
        """
        signs = np.ones(columns.shape[-1]) if self.signs is None else self.signs
        return np.stack([columns @ np.maximum(each, 0.0) for each in (signs, -signs)])


@dataclass(frozen=True, eq=False)
class _Solved:
    """The regression on a block at a W: `alpha = (K + n lambda / weights)^-1 Y`.

    `K` and what `cholesky` has are in memory that others use later.
    """

    Z: Array
    K: Array
    cholesky: Cholesky
    alpha: Array

    @classmethod
    def solve(
        cls,
        regression: RidgeRegression,
        block: Block,
        W: Array,
        memory: Sequence[Array],
        dtype: np.dtype[Any] = _DOUBLE,
    ) -> _Solved:
        """Return the regression; the two matrices (n, n) in `memory` are overwritten."""
        Z = _projected(block.X, W, dtype)
        # What cancels in squared distances is far below what the ridge resolves.
        K = regression.kernel.matrix(Z, Z, memory[0], resolved=False)
        n, noise, shifted = block.n_rows, block.size * regression.ridge, memory[1]
        np.copyto(shifted, K)
        counts = 1.0 if block.weights is None else block.weights
        shifted.flat[:: n + 1] += np.asarray(noise / counts, dtype)
        factor = cholesky(shifted)
        if factor is None:
            raise ValueError(
                f"the kernel matrix of {n} rows with the ridge {regression.ridge:g} is not "
                "positive definite in double precision; take a larger ridge, or a kernel that is "
                "positive definite"
            )
        return cls(Z, K, factor, factor.solution(block.Y))

    def fits(self, block: Block) -> Array:
        """Return the sums (r,) of Y times alpha."""
        return np.asarray((block.Y * self.alpha).sum(axis=0))


def _kernel_product(kernel: Kernel, solved: _Solved, gamma: Array, X: Array, right: Array) -> Array:
    """Return Phi W (d, q) if `right` is `X W`, and Phi (d, d) if it is X; Gamma is overwritten."""
    Z, K = solved.Z, solved.K
    moved = np.zeros_like(right)
    for weight, term in kernel.terms:
        psi = gamma if len(kernel.terms) == 1 else gamma.copy()
        rate = term.value_per_unit_slope
        if rate is not None and len(kernel.terms) == 1:
            # f' is a multiple of f, which is at hand.
            psi *= K
            factor = term.amplitude / rate
        else:
            beta = term.pairing.between(Z, Z)
            psi *= term.unit_slope(beta, out=beta)
            factor = weight * term.amplitude
        moved += (factor * term.pairing.coupling) * (psi @ right)
        if term.pairing.degree:
            moved += (factor * term.pairing.degree) * (psi.sum(axis=1)[:, None] * right)
    # The rows are in single precision where there are many; the sum over blocks is in double.
    return (X.T @ moved.astype(X.dtype, copy=False)).astype(_DOUBLE, copy=False)


def _projected(X: Array, W: Array, dtype: np.dtype[Any] = _DOUBLE) -> Array:
    return X.astype(dtype, copy=False) @ W.astype(dtype, copy=False)
