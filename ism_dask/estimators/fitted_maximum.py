"""The W of a fitted estimator on the rows of its fit, and how J changes around it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents, curvature, turn_covariance
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.estimators.growth import landmark_regression
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
    all_features: TrainingRows  # the same rows; W may have few of these features
    target: Target
    regression: RidgeRegression
    tangents: Tangents

    @classmethod
    def of_problem(cls, problem: SupervisedProblem) -> FittedMaximum:
        """Return the W of the problem's estimator; raise a ValueError if it is too large."""
        fitted = problem.parameters
        rows = all_features = training_rows(problem)
        if fitted.report_.has_few_features:
            rows = with_features(problem, all_features, fitted.get_support())
        q = len(fitted.components_)
        size = (rows.prepared.n_varying - q) * q
        if size > RULES.most_weights:
            raise ValueError(
                f"W has {size:,} free weights, and the curvature of J a square matrix of this "
                f"size; it is computed for up to {RULES.most_weights:,}. Fit with `max_features`"
            )
        target = rows.targets[fitted.report_.target]
        regression = rows.sample(target, q).regression(fitted.setting_)
        regression = replace(regression, scales=fitted.scales_)
        tangents = Tangents.at_weights(rows.prepared.lower(fitted.components_))
        return cls(rows, all_features, target, regression, tangents)

    @cached_property
    def curvature(self) -> tuple[Array, Array]:
        """The second derivative (p, p) of 1 - J, and the influences (m, p) of rows of blocks."""
        return curvature(self.regression, self.tangents, self.blocks)

    @cached_property
    def turn_covariance(self) -> Array:
        """The covariance (p, p) of the turns of W from one sample of rows to another."""
        hessian, influences = self.curvature
        return turn_covariance(hessian, self.slope_covariance(influences))

    @cached_property
    def certificate(self) -> Certificate:
        """Whether W is proved to be a local maximum, by the curvature of some of the rows."""
        rows, W, regression = self.rows, self.tangents.W, self.regression
        if rows.are_one_block:
            value = regression.explained(self.blocks[0], W)
        else:
            value = landmark_regression(rows, self.target, regression, W).explained(W)
        certificate = certify(
            self.tangents,
            value,
            lambda: self.curvature[0],
            rows.n_rows,
            limit=residual_limit(value),
            has_constant=rows.prepared.n_constant > 0,
        )
        if len(self.blocks) == 1:  # it has all rows
            return certificate
        n = sum(block.n_rows for block in self.blocks)
        words = f"{certificate.reason}; the curvature is that of {n:,} rows, in blocks"
        return replace(certificate, reason=words)

    def slope_covariance(self, influences: Array) -> Array:
        """Return the covariance (p, p) of the slope of all rows, by influences (m, p) of blocks."""
        # The slope of all rows varies less than that of some.
        share = sum(block.n_rows for block in self.blocks) / len(self.rows.counting)
        return share * (influences.T @ influences)

    @cached_property
    def blocks(self) -> list[RowsInMemory]:
        """Blocks of rows, enough for the curvature of J and the spread of its slope."""
        return self.blocks_of(self.rows)

    def blocks_of(self, rows: TrainingRows) -> list[RowsInMemory]:
        """Return such blocks of rows (n, r)."""
        numbers = rows.some(self.target.keys, rows.counting, RULES.curvature_rows)
        return rows.blocks(self.target, numbers, max(1, len(numbers) // RULES.curvature_block))
