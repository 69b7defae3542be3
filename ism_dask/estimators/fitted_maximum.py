"""The W of a fitted estimator on the rows of its fit, and how J changes around it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents, curvature, turn_covariance
from ism_dask.criteria.prediction import RegressionRows, RidgeRegression
from ism_dask.estimators.prediction_fit import training_rows, with_features
from ism_dask.estimators.problem import SupervisedProblem
from ism_dask.estimators.training_rows import Target, TrainingRows
from ism_dask.records.fit_report import Certificate
from ism_dask.selection.rules import RULES
from ism_dask.solvers.ascent import residual_limit
from ism_dask.solvers.certificates import certify


@dataclass(frozen=True, eq=False)
class FittedMaximum:
    """The W of a fitted estimator on the rows of its fit, and how J changes around it."""

    rows: TrainingRows
    target: Target
    regression: RidgeRegression
    tangents: Tangents

    @classmethod
    def of_problem(cls, problem: SupervisedProblem) -> FittedMaximum:
        """Return the W of the problem's estimator; raise a ValueError if it is too large."""
        fitted = problem.parameters
        assert fitted.setting_ is not None  # every fit by prediction has one
        rows, q = training_rows(problem), len(fitted.components_)
        if fitted.max_features is not None:
            rows = with_features(problem, rows, fitted.get_support())
        rows.prepared.check_varying(q)
        size = (rows.prepared.n_varying - q) * q
        if size > RULES.most_weights:
            raise ValueError(
                f"W has {size:,} free weights, and the curvature of J a square matrix of this "
                f"size; it is computed for up to {RULES.most_weights:,}. Fit with `max_features`"
            )
        target = rows.targets[fitted.report_.target]
        regression = rows.sample(target, q).regression(fitted.setting_)
        tangents = Tangents.at_weights(rows.prepared.lower(fitted.components_))
        return cls(rows, target, regression, tangents)

    @cached_property
    def _hessian(self) -> Array:
        """The second derivative (p, p) of 1 - J over all rows."""
        return curvature(self.regression, self.tangents, self._blocks())[0]

    def turn_covariance(self) -> Array:
        """Return the covariance (p, p) of the turns of W from one sample of rows to another.

        Some rows are enough for the curvature of J and the spread of its slope, so that it takes
        no longer with more rows.
        """
        blocks, per_weight = self._blocks(), RULES.curvature_rows_per_weight
        some = blocks.first(max(RULES.curvature_rows, per_weight * self.tangents.size))
        hessian, slopes = curvature(self.regression, self.tangents, some)
        # The slope of all rows varies less than that of some.
        return turn_covariance(hessian, slopes * (some.n_rows / blocks.n_rows))

    @cached_property
    def certificate(self) -> Certificate:
        """Whether W is proved to be a local maximum."""
        prepared = self.rows.prepared
        value = self.regression.explained(self._blocks(), self.tangents.W)
        return certify(
            self.tangents,
            value,
            lambda: self._hessian,
            prepared.shards.n_rows,
            limit=residual_limit(value),
            has_constant=prepared.n_constant > 0,
        )

    @property
    def deal_error(self) -> float:
        """The distance by which another deal of the rows into blocks would move W.

        It is that of one other deal, to second order; NaN unless W is proved to be a maximum.
        """
        if not self.certificate.is_certified:
            return float("nan")
        deals = self._blocks(deal=1), self._blocks()
        other, own = (self.regression.explained(each, self.tangents.W).product for each in deals)
        change = 2.0 * self.tangents.basis.T @ (other - own)
        turn = np.linalg.solve(self._hessian, change.ravel())
        return float(np.linalg.norm(turn) / np.sqrt(self.tangents.W.shape[1]))

    def _blocks(self, deal: int = 0) -> RegressionRows:
        """Return all rows in blocks, for 0 in those of the fit, else as another deal has them."""
        return replace(self.rows, seed=self.rows.seed + deal).all_blocks(self.target)
