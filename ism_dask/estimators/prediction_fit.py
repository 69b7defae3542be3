"""A fit by the prediction criterion: from the posed problem to the fitted attributes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.criteria.curvature import Tangents, turn_covariance
from ism_dask.criteria.prediction import Block
from ism_dask.estimators.fitted import (
    Fitted,
    contributions,
    measured_avoidance,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.pose import SupervisedProblem, limited
from ism_dask.estimators.prediction_steps import (
    FEWEST_ROWS,
    FittedPrediction,
    PredictionFit,
    Regressed,
)
from ism_dask.estimators.preparation import Prepared, Report
from ism_dask.estimators.wide_rows import check_dense
from ism_dask.gamma.independence import dependence_test
from ism_dask.kernels import as_kernel
from ism_dask.records.certificate import Certificate
from ism_dask.records.checkpoint import current_fit
from ism_dask.records.measured import DimensionTrial
from ism_dask.rows.blocks import fits_memory
from ism_dask.rows.execution import on_this_machine
from ism_dask.selection.dimension import MOST_FEATURES
from ism_dask.selection.folds import Trial
from ism_dask.selection.support import MOST_WEIGHTS, SupportSearch
from ism_dask.solvers.certificates import certificate_by_hessian

# A new feature adds nothing if J without it is larger than this share of J.
_NOTHING = 0.999
# Rows from which the covariance of W is computed, at least, and for each free weight.
_CURVED_ROWS, _ROWS_PER_WEIGHT = 10_000, 10
# What the best of many trials explains is clear from this many standard errors on.
_CLEAR = 2.0


def fit_prediction(problem: SupervisedProblem, report: Report) -> Fitted:
    """Return the fit whose X W predicts y best."""
    check_dense(problem.X, "PredictiveIKDR", "; SupervisedIKDR takes more")
    # Small rows are here, and tasks of a cluster would take longer.
    with on_this_machine() if fits_memory(problem.X.shape) else nullcontext():
        return _predicted(problem, report)


def _predicted(problem: SupervisedProblem, report: Report) -> Fitted:
    """Return the same, computed on the cluster if one is active."""
    parameters, most = problem.parameters, problem.parameters.max_features
    kernel, is_warm = as_kernel(parameters.kernel), problem.earlier is not None
    prepared = problem.prepared(kernel)
    q = problem.n_components(prepared)
    fit = replace(PredictionFit.of(problem, prepared, q, report), saved_fit=current_fit())
    if most is not None and not is_warm and prepared.has_many_features:
        fit = fit.with_best_alone()
    trials: tuple[DimensionTrial, ...] = ()
    chooses = parameters.n_components in (None, "auto") and not is_warm
    if chooses and problem.usual_components <= MOST_FEATURES and fit.n_rows >= FEWEST_ROWS:
        fit, trials = fit.with_dimension(limited(fit.prepared.n_varying - 1, most))
    of_support = dict[str, Any]()
    result = fit.continued() if is_warm else fit.run()
    if most is not None:
        of_support["full_objective_"] = result.solution.objective
        result, prepared = _with_few_features(fit, result)
    solution = result.solution
    turned = rotated(solution, prepared, parameters.rotation)
    evaluate = partial(result.sample.blocks.explained, result.regression)
    of_features = contributions(evaluate, turned.W[: prepared.n_varying], solution.objective)
    avoided = None
    if problem.avoid is not None:
        rows = problem.fit_rows(prepared, result.regression.kernel, q)
        avoided = measured_avoidance(rows, turned.W, problem.dependence)
    attributes = {
        **solution_attributes(turned, prepared, result.sample.rows.X),
        **of_support,
        "kernel_": result.regression.kernel.with_rows_mapped(prepared.lift_rows),
        "solver_": "ascent",
        "tolerance_": result.ascent.limit,
        "contributions_": of_features,
        "avoided_": avoided,
        "setting_": result.choice.setting,
        "selection_": result.choice.trials,
        "other_maximum_": result.choice.other_maximum,
        "target_": result.target_name,
        "dimension_path_": trials,
        "components_advice_": features_advice(
            result.choice.trials,
            result.sample.rows,
            fit.seed,
            of_features.lost,
            solution.objective,
        ),
    }
    return Fitted(solution, attributes)


@dataclass(frozen=True, eq=False)
class FittedMaximum:
    """The W of an estimator on the rows of its fit, and how J changes around it.

    Attributes
    ----------
    fit : PredictionFit
        With the estimator as its parameters.
    tangents : Tangents
        At W.
    """

    fit: PredictionFit
    tangents: Tangents

    @classmethod
    def of(cls, problem: SupervisedProblem) -> FittedMaximum:
        """Return the W of the problem's estimator; raise a ValueError if it is too large."""
        fit = PredictionFit.of_fitted(problem)
        prepared = fit.prepared
        prepared.check_varying(fit.q)
        size = (prepared.n_varying - fit.q) * fit.q
        if size > MOST_WEIGHTS:
            raise ValueError(
                f"W has {size:,} free weights, and the curvature of J a square matrix of this "
                f"size; it is computed for up to {MOST_WEIGHTS:,}. Fit with `max_features`"
            )
        return cls(fit, Tangents.at(prepared.lower(problem.parameters.components_)))

    @cached_property
    def _hessian(self) -> Array:
        """The second derivative (p, p) of 1 - J over all rows."""
        return self._regressed().curvature(self.tangents)[0]

    def turn_covariance(self) -> Array:
        """Return the covariance (p, p) of the turns of W from one sample of rows to another.

        Some rows are enough for the curvature of J and the spread of its slope, so that it takes
        no longer with more rows.
        """
        regressed = self._regressed()
        some = regressed.blocks.first(max(_CURVED_ROWS, _ROWS_PER_WEIGHT * self.tangents.size))
        hessian, slopes = some.curvature(regressed.regression, self.tangents)
        # The slope of all rows varies less than that of some.
        return turn_covariance(hessian, slopes * (some.n_rows / regressed.blocks.n_rows))

    @cached_property
    def certificate(self) -> Certificate:
        """Whether W is proved to be a local maximum."""
        prepared = self.fit.prepared
        return certificate_by_hessian(
            self.tangents,
            self._product(),
            self._hessian,
            prepared.shards.n_rows,
            constant=prepared.n_constant > 0,
        )

    @property
    def deal_error(self) -> float:
        """The distance by which another deal of the rows into blocks would move W.

        It is that of one other deal, to second order; NaN unless W is proved to be a maximum.
        """
        if not self.certificate.is_certified:
            return float("nan")
        change = 2.0 * self.tangents.basis.T @ (self._product(deal=1) - self._product())
        turn = np.linalg.solve(self._hessian, change.ravel())
        return float(np.linalg.norm(turn) / np.sqrt(self.fit.q))

    def _regressed(self, deal: int = 0) -> Regressed:
        fitted = self.fit.problem.parameters
        assert fitted.setting_ is not None  # every fit by prediction has one
        return self.fit.regressed(fitted.setting_, fitted.target_, deal)

    def _product(self, deal: int = 0) -> Array:
        """Return Phi W (r, q)."""
        return self._regressed(deal).product(self.tangents.W).product


def _with_few_features(
    fit: PredictionFit, result: FittedPrediction
) -> tuple[FittedPrediction, Prepared]:
    """Return the fit to few features alone, and their rows; `result` is that of `fit`."""
    problem, most = fit.problem, fit.problem.parameters.max_features
    sample, size = result.sample, int(most) if is_whole(most) else None
    space, d = fit.prepared.feature_space, problem.X.shape[1]
    search = SupportSearch(sample.blocks, result.regression, space, d)
    with on_this_machine():
        support = search.support(fit.prepared.lift(result.solution.W.T).T, size)
    prepared = problem.prepared(as_kernel(problem.parameters.kernel), support.chosen)
    few = replace(fit, prepared=prepared)
    W, setting = prepared.orthonormal(support.weights.T), result.choice.setting
    fitted = few.run_from(W, setting, result.target_name)
    # What unseen rows have judged is what they said of all features.
    choice = replace(fitted.choice, trials=result.choice.trials)
    return replace(fitted, choice=choice), prepared


def features_advice(
    trials: Sequence[Trial], rows: Block, seed: int, lost: Array, objective: float
) -> str:
    """Return advice if y or some of the new features seem to explain nothing; else no text."""
    if trials and trials[0].explained <= _CLEAR * trials[0].error:
        share = f"{trials[0].explained:.3f} +- {trials[0].error:.3f}"
        advice = (
            f"unseen rows are hardly predicted better than by their mean (share of y explained: "
            f"{share}): y may not depend on X at all"
        )
        if rows.weights is not None and np.ptp(rows.weights):  # the test counts all rows alike
            return advice
        test = dependence_test(rows.X, rows.Y, target="linear", n_permutations=0, random_state=seed)
        return (
            f"{advice}. A test of independence on {rows.n_rows} rows has the p-value "
            f"{test.pvalue:.2g} (`ism_dask.dependence_test`)"
        )
    useless = np.flatnonzero(objective - lost > _NOTHING * objective) + 1
    if not len(useless) or len(lost) == 1:
        return ""
    which = ", ".join(map(str, useless))
    return (
        f"J is as large without new feature {which}: it explains nothing of y that the others "
        f"do not. Take fewer `n_components`"
    )
