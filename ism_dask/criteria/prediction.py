"""The prediction criterion: how much of y a kernel ridge regression on X W explains.

With the kernel matrix K of the rows of `X W` and the ridge lambda, the regularised loss of the
regression of Y (n, r) is `F = lambda tr(Y^T (K + n lambda I)^-1 Y)`, and the criterion is
`J = |Y|^2 / n - F`: the explained share of y if the rows of Y have a mean square of 1. With
`alpha = (K + n lambda I)^-1 Y`, the gradient of J is that of `sum_ij Gamma_ij K_ij` with
`Gamma = lambda alpha alpha^T` held fixed, so that it is `2 Phi W` as for any other Gamma.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels import Kernel
from ism_dask.linalg.cholesky import Cholesky, cholesky, square_matrices


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """Rows X (n, d) in memory, with the Y (n, r) that is predicted of them.

    `weights` (n,) are all positive, None if all rows count alike. A row of weight 2 counts as two
    equal rows. Rows of equal `groups` (n,) do not judge each other. The `numbers` (n,) of rows are
    their places among all rows of a fit.
    """

    X: Array
    Y: Array
    weights: Array | None = None
    groups: Array | None = None
    numbers: Array | None = None

    def part(self, rows: Array) -> RowsInMemory:
        """Return some of the rows (k,)."""
        facts = (self.weights, self.groups, self.numbers)
        some = (None if fact is None else fact[rows] for fact in facts)
        return RowsInMemory(self.X[rows], self.Y[rows], *some)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.Y)

    @property
    def size(self) -> float:
        """The sum of the weights, which is the number of rows if all count alike."""
        return float(self.n_rows if self.weights is None else self.weights.sum())

    @property
    def effective_size(self) -> float:
        """Kish's effective number of rows, which the unit of the weights does not change."""
        weights = self.weights
        return float(self.n_rows if weights is None else weights.sum() ** 2 / (weights @ weights))

    @property
    def target_and_weights(self) -> Array:
        """Y and the weights (n, r + 1)."""
        weights = np.ones(self.n_rows) if self.weights is None else self.weights
        return np.column_stack([self.Y, weights])

    def weighted(self, losses: Array) -> Array:
        """Return losses (n,) of the rows times their weights."""
        return losses if self.weights is None else losses * self.weights


@dataclass(frozen=True)
class Explained:
    """The criterion at a W on some rows: J, the share of y that is explained, and Phi W (d, q).

    `noise` is the standard error of the tangential part of Phi W between rows; 0 if it is unknown.
    """

    objective: float
    product: Array
    noise: float = 0.0


@dataclass(frozen=True, eq=False)
class RidgeRegression:
    """Kernel ridge regression of Y on X W, by a positive definite kernel with all its numbers.

    `ridge` is lambda. `signs` (r,) are the weights of the columns of Y in J, negative for what X W
    is not to predict; None if all are 1. With `scales` A (q, q) the regression is one on `X W A`:
    y may vary faster along one direction than along another. None is one scale for all.
    """

    kernel: Kernel
    ridge: float
    signs: Array | None = None
    scales: Array | None = None

    def explained(self, rows: RowsInMemory, W: Array) -> Explained:
        """Return J and Phi W at W (d, q)."""
        Y, Z = rows.Y, self.projected(rows.X, W)
        with square_matrices(rows.X, 3) as (memory, shifted, gamma):
            K, factor = self._factor(rows, Z, memory, shifted)
            alpha = factor.solution(Y)
            product = self._product(Z, K, self._gamma(alpha, gamma), rows.X, Z)
        if self.scales is not None:
            product = product @ self.scales.T
        squared = Y**2 if rows.weights is None else Y**2 * rows.weights[:, None]
        squares, fits = squared.sum(axis=0) / rows.size, (Y * alpha).sum(axis=0)
        predicted, avoided = self.sums(squares - self.ridge * fits)
        return Explained(float(predicted - avoided), product)

    def phi(self, rows: RowsInMemory, W: Array) -> Array:
        """Return Phi (d, d) at W (d, q)."""
        X, Z = rows.X.astype(np.float64, copy=False), self.projected(rows.X, W)
        with square_matrices(rows.X, 3) as (memory, shifted, gamma):
            K, factor = self._factor(rows, Z, memory, shifted)
            alpha = factor.solution(rows.Y)
            return self._product(Z, K, self._gamma(alpha, gamma), X, X)

    def evidence(self, rows: RowsInMemory, W: Array) -> float:
        """Return the log marginal likelihood of Y under a Gaussian process, for a column of Y.

        The variance of the noise is the most likely one. Columns that X W is not to predict do not
        count. Weights are numbers of equal rows, whose sum is Kish's effective number of rows: so
        their unit does not matter, and a row of tiny weight does not count.
        """
        with square_matrices(rows.X, 2) as (memory, shifted):
            _, factor = self._factor(rows, self.projected(rows.X, W), memory, shifted)
            fits = (rows.Y * factor.solution(rows.Y)).sum(axis=0)
            return self._evidence(rows, fits, factor)

    def evident(self, rows: RowsInMemory, W: Array) -> Explained:
        """Return the evidence as an objective, and half of its slope, at W (d, q)."""
        with square_matrices(rows.X, 3) as (memory, shifted, gamma):
            Z = self.projected(rows.X, W)
            K, factor = self._factor(rows, Z, memory, shifted)
            alpha = factor.solution(rows.Y)
            fits = (rows.Y * alpha).sum(axis=0)
            evidence = self._evidence(rows, fits, factor)
            alpha, fits = self._predicted_columns(alpha), self._predicted_columns(fits)
            np.matmul(alpha * (0.5 * rows.effective_size / fits.sum()), alpha.T, out=gamma)
            np.subtract(gamma, 0.5 * factor.inverse, out=gamma)
            return Explained(evidence, self._product(Z, K, gamma, rows.X, Z))

    def _evidence(self, rows: RowsInMemory, fits: Array, factor: Cholesky) -> float:
        """Return the evidence from `Y^T alpha` (r,) of each column, and the factor."""
        n, half_log_determinant = rows.effective_size, float(np.log(np.diag(factor.factor)).sum())
        if rows.weights is not None:
            counts = rows.weights * (n / rows.weights.sum())
            # That of repeated rows is larger by what copies of a row add to it.
            copies = (counts - 1.0) * np.log(n * self.ridge) + np.log(counts)
            half_log_determinant += 0.5 * float(copies.sum())
        mean = float(self._predicted_columns(fits).mean())
        return -0.5 * n * float(np.log(mean / n)) - half_log_determinant

    def _predicted_columns(self, columns: Array) -> Array:
        """Return those of some columns (..., r) that X W is to predict."""
        return columns if self.signs is None else columns[..., self.signs > 0]

    def leave_one_out(self, rows: RowsInMemory, W: Array) -> Array:
        """Return the squared error (n,) with which the others predict each row.

        The others are the rows of other groups, if there are groups. The error is multiplied
        by the weight of the row. As in the evidence, columns that X W is not to predict do not
        count.
        """
        with square_matrices(rows.X, 2) as (memory, shifted):
            _, factor = self._factor(rows, self.projected(rows.X, W), memory, shifted)
            alpha = factor.solution(rows.Y)
            if rows.groups is None:
                errors = alpha / factor.inverse_diagonal[:, None]
            else:
                errors, inverse = np.empty_like(alpha), factor.inverse
                for group in np.unique(rows.groups):
                    left = np.flatnonzero(rows.groups == group)
                    errors[left] = np.linalg.solve(inverse[np.ix_(left, left)], alpha[left])
        return rows.weighted(self.sums(errors**2)[0])

    def predicted(self, rows: RowsInMemory, W: Array, X: Array) -> Array:
        """Return what rows predict of Y (m, r) for other rows X (m, d)."""
        Z = self.projected(rows.X, W)
        with square_matrices(rows.X, 2) as (memory, shifted):
            alpha = self._factor(rows, Z, memory, shifted)[1].solution(rows.Y)
        return self.kernel.matrix(self.projected(X, W), Z, resolved=False) @ alpha

    def projected(self, X: Array, W: Array) -> Array:
        """Return the rows (n, q) of X W, with their own scales if there are some."""
        Z = X.astype(np.float64, copy=False) @ W
        return Z if self.scales is None else Z @ self.scales

    def _factor(
        self, rows: RowsInMemory, Z: Array, memory: Array, shifted: Array
    ) -> tuple[Array, Cholesky]:
        """Return K of the rows Z (n, q) of X W, and the factor of `K + n lambda / weights`.

        Both are in memory (n, n) that is given.
        """
        # What cancels in squared distances is far below what the ridge resolves.
        K = self.kernel.matrix(Z, Z, memory, resolved=False)
        np.copyto(shifted, K)
        counts = 1.0 if rows.weights is None else rows.weights
        shifted.flat[:: rows.n_rows + 1] += rows.size * self.ridge / counts
        factor = cholesky(shifted)
        if factor is None:
            raise ValueError(
                f"the kernel matrix of {rows.n_rows} rows with the ridge {self.ridge:g} is not "
                "positive definite in double precision; take a lower degree, a larger ridge, or a "
                "kernel that is positive definite"
            )
        return K, factor

    def _gamma(self, alpha: Array, memory: Array) -> Array:
        """Return Gamma (n, n), whose product with the change of K is the change of J."""
        signs = self.ridge * (np.ones(1) if self.signs is None else self.signs)
        return np.matmul(alpha * signs, alpha.T, out=memory)

    def _product(self, Z: Array, K: Array, gamma: Array, X: Array, right: Array) -> Array:
        """Return Phi W (d, q) if `right` is `X W`, and Phi (d, d) if it is X; K is overwritten.

        Z (n, q) and K are those of `_factor`.
        """
        moved = np.zeros_like(right)
        for psi, coupling, degree in slope_terms(self.kernel, Z, Z, gamma, K):
            moved += coupling * (psi @ right)
            if degree:
                moved += degree * (psi.sum(axis=1)[:, None] * right)
        return np.asarray(X.T @ moved)

    def sums(self, columns: Array) -> Array:
        """Return the sums (2, ...) over the last axis, of length r: of columns to predict, others.

        The others have their weights.
        """
        signs = np.ones(columns.shape[-1]) if self.signs is None else self.signs
        return np.stack([columns @ np.maximum(each, 0.0) for each in (signs, -signs)])


def slope_terms(
    kernel: Kernel, left: Array, right: Array, gamma: Array, values: Array | None
) -> Iterator[tuple[Array, float, float]]:
    """Yield `gamma` (a, b) times the slopes of projected rows (a, q) and (b, q), for each term.

    Beside these products are their factors in the `coupling` and the `degree` of the pairing.
    `values` may be overwritten: the kernel matrix, if it is at hand.
    """
    for weight, term in kernel.terms:
        rate = term.value_per_unit_slope if len(kernel.terms) == 1 else None
        if values is not None and rate is not None:  # f' is a multiple of f
            psi, factor = np.multiply(gamma, values, out=values), term.amplitude / rate
        else:
            beta = term.pairing.between(left, right)
            psi, factor = term.unit_slope(beta, out=beta), weight * term.amplitude
            psi *= gamma
        yield psi, factor * term.pairing.coupling, factor * term.pairing.degree
