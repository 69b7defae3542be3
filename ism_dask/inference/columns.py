"""Which columns are real: p-values of all columns, also of those that the fit has left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy import stats

from ism_dask._types import Array
from ism_dask.criteria.curvature import (
    Tangents,
    curvature,
    inverse_curvature,
    turn_covariance,
    wald_pvalue,
    wald_pvalue_of,
)
from ism_dask.criteria.prediction import RowsInMemory
from ism_dask.estimators.fitted_maximum import FittedMaximum
from ism_dask.selection.rules import RULES


@dataclass(frozen=True, eq=False)
class ColumnTests:
    """Tests of each feature of a fit, whose `components` (q, d) are 0 where it left one out."""

    maximum: FittedMaximum
    components: Array

    @cached_property
    def weights(self) -> Array:
        """The weights (v, q) of the features that vary."""
        return self.components.T[self.maximum.all_features.prepared.affine.varying]

    @cached_property
    def blocks(self) -> list[RowsInMemory]:
        """Blocks of rows of all varying features."""
        rows = self.maximum.all_features
        features = rows.prepared.features[:, rows.prepared.affine.varying]
        return [replace(each, X=each.X @ features) for each in self.maximum.blocks_of(rows)]

    def pvalues(self) -> Array:
        """Return the p-values (d,) of the hypotheses that y does not depend on a column.

        Those of columns that the fit has chosen are multiplied by the number of all; 1 if a column
        does not vary.
        """
        pvalues = np.ones(self.components.shape[1])
        varying = np.flatnonzero(self.maximum.all_features.prepared.affine.varying)
        left_out = np.setdiff1d(np.arange(len(varying)), self._taken)
        choices = len(varying) if len(left_out) else 1
        pvalues[varying[self._taken]] = np.minimum(choices * self._of_taken(), 1.0)
        most = max((RULES.most_weights - self._inner.size) // self.weights.shape[1], 1)
        for first in range(0, len(left_out), most):
            some = left_out[first : first + most]
            pvalues[varying[some]] = list(self._of_left_out(some))
        return pvalues

    def influences(self) -> Array:
        """Return the influences (m, p) of rows on the slope along columns that are left out."""
        outside = np.delete(np.eye(len(self.weights)), self._taken, axis=1)
        most = RULES.tried_weights // self.weights.shape[1]
        tangents = Tangents(self.weights, outside[:, :most])
        return curvature(self.maximum.regression, tangents, self.blocks)[1]

    @cached_property
    def _taken(self) -> Array:
        taken = self.maximum.rows.prepared.affine.varying
        return np.flatnonzero(taken[self.maximum.all_features.prepared.affine.varying])

    @cached_property
    def _inner(self) -> Tangents:
        """The turns of W within the columns that the fit has taken."""
        return Tangents.at_weights(self.weights[self._taken])

    def _of_taken(self) -> Array:
        """Return the p-values (k,) of the columns that the fit has taken.

        They are those of Wald's test. If W spans all of them, no weight varies: then unseen rows
        judge whether they are predicted better with the column than without.
        """
        tangents = self.maximum.tangents
        if tangents.size:
            # Coordinates of rows in fewer directions are not columns.
            prepared = self.maximum.rows.prepared
            features = prepared.features[:, prepared.affine.varying].T
            columns = Tangents(features @ tangents.W, features @ tangents.basis)
            pvalue = partial(wald_pvalue, columns, self.maximum.turn_covariance)
            return np.array([pvalue(np.array([i])) for i in range(len(self._taken))])
        losses = self._losses(self.weights)
        pvalues = []
        for column in self._taken:
            without = self.weights.copy()
            without[column] = 0.0
            gains = self._losses(without) - losses
            pvalues.append(stats.norm.sf(gains.sum() / np.linalg.norm(gains)))
        return np.array(pvalues)

    def _losses(self, weights: Array) -> Array:
        """Return the squared error (m,) with which others predict each row, or group of rows."""
        regression, losses = self.maximum.regression, []
        for block in self.blocks:
            of_rows = regression.leave_one_out(block, weights)
            if block.groups is not None:
                of_rows = np.bincount(np.unique(block.groups, return_inverse=True)[1], of_rows)
            losses.append(of_rows)
        return np.concatenate(losses)

    def _of_left_out(self, columns: Array) -> Iterator[float]:
        """Yield the p-value of each of some columns (k,) that the fit has left out.

        One step of Newton's method gives the column and those that were taken their best weights;
        the test is Wald's for those of the column.
        """
        (v, q), inside = self.weights.shape, self._inner.basis
        basis = np.zeros((v, inside.shape[1] + len(columns)))
        basis[self._taken, : inside.shape[1]] = inside
        basis[columns, inside.shape[1] + np.arange(len(columns))] = 1.0
        # What a column has in common with X W would only make all distances larger or smaller.
        rows = np.concatenate([block.X for block in self.blocks])
        shared = np.linalg.lstsq(rows @ self.weights, rows[:, columns])[0]
        basis[:, inside.shape[1] :] -= self.weights @ shared
        regression, tangents = self.maximum.regression, Tangents(self.weights, basis)
        hessian, influences = curvature(regression, tangents, self.blocks)
        slopes = self.maximum.slope_covariance(influences)
        products = [b.size * regression.explained(b, self.weights).product for b in self.blocks]
        total, size = sum(products), sum(block.size for block in self.blocks)
        slope = (2.0 * basis.T @ total / size).ravel()
        inner = self.weights.T @ total / size  # of turns, which keep the length of W
        of_columns = hessian[inside.shape[1] * q :, inside.shape[1] * q :]
        of_columns -= np.kron(np.eye(len(columns)), inner + inner.T)
        for number in range(len(columns)):
            own = inside.shape[1] * q + number * q + np.arange(q)
            free = np.concatenate([np.arange(inside.shape[1] * q), own])
            some = np.ix_(free, free)
            covariance = turn_covariance(hessian[some], slopes[some])[-q:, -q:]
            step = (inverse_curvature(hessian[some])[0] @ slope[free])[-q:]
            yield wald_pvalue_of(step, covariance)
