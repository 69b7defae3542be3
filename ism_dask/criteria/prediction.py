"""The prediction criterion: how much of y a kernel ridge regression on X W explains.

With the kernel matrix K of the rows of `X W` and the ridge lambda, the regularised loss of the
regression of Y (n, r) is `F = lambda tr(Y^T (K + n lambda I)^-1 Y)`, and the criterion is
`J = |Y|^2 / n - F`: the explained share of y if the rows of Y have a mean square of 1. With
`alpha = (K + n lambda I)^-1 Y`, the gradient of J is that of `sum_ij Gamma_ij K_ij` with
`Gamma = lambda alpha alpha^T` held fixed, so that it is `2 Phi W` as for any other Gamma.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels import Kernel
from ism_dask.linalg.cholesky import Cholesky, cholesky, square_matrices
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.raw import deal, number_of_blocks
from ism_dask.threads import in_threads

_Result = TypeVar("_Result")
Arrays = TypeVar("Arrays", bound=tuple[Array, ...])
# With fewer blocks, their differences say little of the noise between them.
_LEAST_FOR_NOISE = 4


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """Rows X (n, d) in memory, with the Y (n, r) that is predicted of them.

    `weights` (n,) are all positive, None if all rows count alike. A row of weight 2 counts as two
    equal rows. Blocks are rows that follow each other; `starts` are the numbers of their first
    rows. A block is such rows itself.
    """

    X: Array
    Y: Array
    weights: Array | None = None
    starts: tuple[int, ...] = (0,)

    def part(self, rows: Array | slice) -> RowsInMemory:
        """Return some of the rows (k,), as one block."""
        weights = None if self.weights is None else self.weights[rows]
        return RowsInMemory(self.X[rows], self.Y[rows], weights)

    def dealt(self, keys: Array, seed: int) -> RowsInMemory:
        """Return the rows, dealt by their keys (n,) into blocks."""
        count = number_of_blocks(len(keys))
        if count == 1:
            return self
        parts = deal(keys, count, seed)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        return replace(self.part(np.concatenate(parts)), starts=(0, *ends[:-1]))

    @cached_property
    def blocks(self) -> list[RowsInMemory]:
        """The blocks; threads share their memory."""
        if len(self.starts) == 1:
            return [self]
        return [self.part(slice(*ends)) for ends in pairwise((*self.starts, self.n_rows))]

    def first(self, n_rows: int) -> RowsInMemory:
        """Return the first blocks, which have at least this number of rows, or all blocks."""
        count = -(-n_rows * len(self.starts) // self.n_rows)
        stop = (*self.starts, self.n_rows)[min(count, len(self.starts))]
        return replace(self.part(slice(stop)), starts=self.starts[:count])

    def each(self, function: Callable[[RowsInMemory], _Result]) -> list[_Result]:
        """Return the results of a function of each block; threads share several blocks."""
        calls = [partial(function, block) for block in self.blocks]
        return in_threads(calls, self.n_rows if len(calls) > 1 else 0)

    def summed(self, function: Callable[[RowsInMemory], Arrays]) -> Arrays:
        """Return the sums over all blocks of what a function returns for each."""
        return added(self.each(function))

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.Y)

    @property
    def size(self) -> float:
        """The sum of the weights, which is the number of rows if all count alike."""
        return float(self.n_rows if self.weights is None else self.weights.sum())

    @property
    def target_and_weights(self) -> Array:
        """Y and the weights (n, r + 1)."""
        weights = np.ones(self.n_rows) if self.weights is None else self.weights
        return np.column_stack([self.Y, weights])

    def weighted(self, losses: Array) -> Array:
        """Return losses (n,) of the rows times their weights."""
        return losses if self.weights is None else losses * self.weights


def added(sums: Sequence[Arrays]) -> Arrays:
    """Return the sum of the sums of blocks, added in their order."""
    return tuple(sum(each) for each in zip(*sums, strict=True))  # type: ignore[return-value]


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
    is not to predict; None if all are 1.
    """

    kernel: Kernel
    ridge: float
    signs: Array | None = None

    def with_width(self, factor: float, ridge: float) -> RidgeRegression:
        """Return the regression with the kernel's width times `factor` and another ridge."""
        kernel = self.kernel if factor == 1.0 else self.kernel.widened(factor)
        return replace(self, kernel=kernel, ridge=ridge)

    def explained(self, rows: RowsInMemory, W: Array) -> Explained:
        """Return J and Phi W at W (d, q), the means over blocks, with the noise between them."""
        objective, product, squares, size, count = rows.summed(partial(self._sums, W))
        mean, noise = product / size, 0.0
        if count >= _LEAST_FOR_NOISE:
            spread = float(squares / size) - float(np.sum(tangent(W, mean) ** 2))
            noise = float(np.sqrt(max(spread, 0.0) / (count - 1)))
        return Explained(float(objective / size), mean, noise)

    def _sums(self, W: Array, block: RowsInMemory) -> tuple[Array, ...]:
        """Return J, Phi W and the square of its tangential part, each times the size of a block.

        Then this size, and 1; zeros for a block without rows.
        """
        size = block.size
        if not block.n_rows:
            return np.zeros(()), np.zeros_like(W), *np.zeros(3)
        objective, product = self.in_block(block, W)
        square = float(np.sum(tangent(W, product) ** 2))
        return np.array(size * objective), size * product, *np.array([size * square, size, 1.0])

    def in_block(self, block: RowsInMemory, W: Array) -> tuple[float, Array]:
        """Return J and Phi W of one block at W (d, q)."""
        Y, Z = block.Y, _projected(block.X, W)
        with square_matrices(block.X, 3) as (memory, shifted, gamma):
            K, factor = self._factor(block, Z, memory, shifted)
            alpha = factor.solution(Y)
            product = self._product(Z, K, self._gamma(alpha, gamma), block.X, Z)
        squared = Y**2 if block.weights is None else Y**2 * block.weights[:, None]
        squares, fits = squared.sum(axis=0) / block.size, (Y * alpha).sum(axis=0)
        predicted, avoided = self.sums(squares - self.ridge * fits)
        return float(predicted - avoided), product

    def phi(self, block: RowsInMemory, W: Array) -> Array:
        """Return Phi (d, d) of one block at W (d, q)."""
        X, Z = block.X.astype(np.float64, copy=False), _projected(block.X, W)
        with square_matrices(block.X, 3) as (memory, shifted, gamma):
            K, factor = self._factor(block, Z, memory, shifted)
            alpha = factor.solution(block.Y)
            return self._product(Z, K, self._gamma(alpha, gamma), X, X)

    def evidence(self, rows: RowsInMemory, W: Array) -> float:
        """Return the log marginal likelihood of Y under a Gaussian process, for a column of Y.

        It is summed over blocks. The variance of the noise is the most likely one. Columns that X W
        is not to predict do not count. Weights are numbers of equal rows, whose sum is Kish's
        effective number of rows: so their unit does not matter, and a row of tiny weight does not
        count.
        """

        def of_block(block: RowsInMemory) -> float:
            n = float(block.n_rows)
            with square_matrices(block.X, 2) as (memory, shifted):
                _, factor = self._factor(block, _projected(block.X, W), memory, shifted)
                fits = (block.Y * factor.solution(block.Y)).sum(axis=0)
                half_log_determinant = float(np.log(np.diag(factor.factor)).sum())
            if block.weights is not None:
                weights = block.weights
                counts = weights * (weights.sum() / (weights @ weights))
                n = float(counts.sum())
                # That of repeated rows is larger by what copies of a row add to it.
                copies = (counts - 1.0) * np.log(n * self.ridge) + np.log(counts)
                half_log_determinant += 0.5 * float(copies.sum())
            fits = fits if self.signs is None else fits[self.signs > 0]
            return -0.5 * n * float(np.log(fits.mean() / n)) - half_log_determinant

        return sum(rows.each(of_block))

    def leave_one_out(self, rows: RowsInMemory, W: Array) -> Array:
        """Return the squared error (n,) with which others of its block predict each row.

        It is multiplied by the weight of the row. As in the evidence, columns that X W is not to
        predict do not count.
        """

        def of_block(block: RowsInMemory) -> Array:
            with square_matrices(block.X, 2) as (memory, shifted):
                _, factor = self._factor(block, _projected(block.X, W), memory, shifted)
                errors = factor.solution(block.Y) / factor.inverse_diagonal[:, None]
            return block.weighted(self.sums(errors**2)[0])

        return np.concatenate(rows.each(of_block))

    def predicted(self, rows: RowsInMemory, W: Array, X: Array) -> Array:
        """Return what rows predict of Y (m, r) for other rows X (m, d).

        The mean prediction of the blocks is nearly as good as that of all their rows.
        """
        total = np.zeros((len(X), rows.Y.shape[1]))
        for block in rows.blocks:
            Z = _projected(block.X, W)
            with square_matrices(block.X, 2) as (memory, shifted):
                alpha = self._factor(block, Z, memory, shifted)[1].solution(block.Y)
            total += self.kernel.matrix(_projected(X, W), Z, resolved=False) @ alpha
        return total / len(rows.blocks)

    def _factor(
        self, block: RowsInMemory, Z: Array, memory: Array, shifted: Array
    ) -> tuple[Array, Cholesky]:
        """Return K of the rows Z (n, q) of X W, and the factor of `K + n lambda / weights`.

        Both are in memory (n, n) that is given.
        """
        # What cancels in squared distances is far below what the ridge resolves.
        K = self.kernel.matrix(Z, Z, memory, resolved=False)
        np.copyto(shifted, K)
        counts = 1.0 if block.weights is None else block.weights
        shifted.flat[:: block.n_rows + 1] += block.size * self.ridge / counts
        factor = cholesky(shifted)
        if factor is None:
            raise ValueError(
                f"the kernel matrix of {block.n_rows} rows with the ridge {self.ridge:g} is not "
                "positive definite in double precision; take a larger ridge, or a kernel that is "
                "positive definite"
            )
        return K, factor

    def _gamma(self, alpha: Array, memory: Array) -> Array:
        """Return Gamma (n, n), whose product with the change of K is the change of J."""
        signs = self.ridge * (np.ones(1) if self.signs is None else self.signs)
        return np.matmul(alpha * signs, alpha.T, out=memory)

    def _product(self, Z: Array, K: Array, gamma: Array, X: Array, right: Array) -> Array:
        """Return Phi W (d, q) if `right` is `X W`, and Phi (d, d) if it is X; Gamma is overwritten.

        Z (n, q) and K are those of `_factor`.
        """
        terms = self.kernel.terms
        moved = np.zeros_like(right)
        for weight, term in terms:
            psi = gamma if len(terms) == 1 else gamma.copy()
            rate = term.value_per_unit_slope
            if rate is not None and len(terms) == 1:
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
        return np.asarray(X.T @ moved)

    def sums(self, columns: Array) -> Array:
        """Return the sums (2, ...) over the last axis, of length r: of columns to predict, others.

        The others have their weights.
        """
        signs = np.ones(columns.shape[-1]) if self.signs is None else self.signs
        return np.stack([columns @ np.maximum(each, 0.0) for each in (signs, -signs)])


def _projected(X: Array, W: Array) -> Array:
    return X.astype(np.float64, copy=False) @ W
