"""How a supervised fit is computed: its start, its W, and the attributes that they set."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ism_dask._types import Array
from ism_dask._validation import check_choice
from ism_dask.engines import Engine, EngineOptions
from ism_dask.estimators.avoidance import measured_avoidance
from ism_dask.estimators.base import IKDR, row_source
from ism_dask.estimators.contributions import Contributions, contributions
from ism_dask.estimators.few_features import check_enough_features, choose_support, limited
from ism_dask.estimators.prediction_fit import (
    FEWEST_ROWS,
    FittedPrediction,
    PredictionFit,
    features_advice,
)
from ism_dask.estimators.prediction_target import prediction_targets
from ism_dask.estimators.preparation import FitRows, Prepared, seed_of
from ism_dask.estimators.supervised_input import (
    CheckedInput,
    FitTarget,
    check_rows_and_target,
    is_small,
    row_weights,
    rows_in_memory,
)
from ism_dask.estimators.wide_rows import WideFit, WidePrepared
from ism_dask.gamma.base import Dependence
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.records.checkpoint import CheckpointedFit, current_fit
from ism_dask.records.iteration import Solution
from ism_dask.rows.execution import on_this_machine
from ism_dask.selection.dimension import MOST_FEATURES, DimensionTrial
from ism_dask.selection.sample import Setting
from ism_dask.solvers import Ascent, Solver, as_solver
from ism_dask.solvers.ism import state_at
from ism_dask.solvers.whole_space import solution_of_whole_space
from ism_dask.status import components_advice

PREDICTION, DEPENDENCE = "prediction", "dependence"
# The names of the criteria, each with that of its usual solver.
CRITERIA = {PREDICTION: "ascent", DEPENDENCE: "ism"}


class _Start(NamedTuple):
    """The rows of a fit, and the W (r + s, q) that it starts at; None is the spectral start."""

    prepared: Prepared
    fit_rows: FitRows
    W: Array | None


class _Fitted(NamedTuple):
    """A fitted W: the engine that computed it, the solution, and the rows that it is for."""

    engine: Engine
    solution: Solution
    prepared: Prepared
    fit_rows: FitRows


class SupervisedFit(IKDR):
    """Gives a supervised estimator the steps of its fit."""

    n_components: int | str | None
    criterion: str
    target: str
    whiten: bool
    max_features: int | str | None
    avoid_weight: float
    warm_start: bool
    class_weight: dict[Any, float] | str | None
    sides_: tuple[str, ...]
    setting_: Setting | None
    _slope_noise: float | None

    def _checked_input(
        self, X: Any, y: Any, sample_weight: Any, *, avoid: Any = None, given: Any = None
    ) -> CheckedInput:
        """Return validated rows, in an order of their own, with their target and weights."""
        X, y = check_rows_and_target(self, row_source(X), y)
        X = rows_in_memory(X) if self.criterion == PREDICTION else X
        weights = row_weights(y, self.target, self.class_weight, sample_weight)
        X, target = FitTarget.of(y, weights, avoid, given).in_order(X)
        return CheckedInput(X, target, target.dependence(self.target, self.avoid_weight))

    def check_same_sides(self, target: FitTarget, what: str) -> None:
        """Raise a ValueError if the target has another of avoid and given than the fit had."""
        if target.sides != self.sides_:
            raise ValueError(
                f"the fit had {' and '.join(self.sides_) or 'neither avoid nor given'}, {what} "
                f"has {' and '.join(target.sides) or 'neither'}; give it the same"
            )

    def _prepared(
        self, checked: CheckedInput, kernel: Kernel, support: Array | None = None
    ) -> Prepared:
        """Return the rows for the solver, of all features or of those of a support (d,) alone."""
        return checked.prepared(
            kernel, standardize=self.standardize, whiten=self.whiten, support=support
        )

    def _learn(self, checked: CheckedInput) -> tuple[Solution, str]:
        """Return the solution for validated rows, and advice on the number of features."""
        self.criterion_ = self.criterion
        learn = {PREDICTION: self._learn_to_predict, DEPENDENCE: self._learn_dependence}
        return learn[self.criterion](checked)

    def _learn_to_predict(self, checked: CheckedInput) -> tuple[Solution, str]:
        """Return the solution that predicts y best, and advice on the number of features."""
        checked.check_dense('criterion="prediction"', '. Take criterion="dependence" for more')
        if is_small(checked.X):
            # The rows are here, and tasks of a cluster would take longer.
            with on_this_machine():
                return self._predicted(checked)
        return self._predicted(checked)

    def _predicted(self, checked: CheckedInput) -> tuple[Solution, str]:
        """Return the same, computed on the cluster if one is active."""
        if checked.target.weights is not None and not checked.target.weights.all():
            raise ValueError(
                "rows of weight 0 among rows that are read from storage cannot be left out; give a "
                'data set without them, or take criterion="dependence"'
            )
        prepared = self._prepared(checked, as_kernel(self.kernel))
        fit, self.dimension_path_ = self._prediction_fit(checked, prepared)
        warm = self.warm_start and hasattr(self, "components_")
        result = self._continued(fit, prepared) if warm else fit.run()
        if self.max_features is not None:
            prepared, result = self._with_few_columns(checked, fit, result, self.max_features)
        # The steps are few: an interrupted fit begins anew, and comes to the same bits.
        current_fit().run_or_restore(lambda *_: result.solution)
        return self._set_prediction(result, prepared, checked)

    def _with_few_columns(
        self, checked: CheckedInput, fit: PredictionFit, full: FittedPrediction, most: int | str
    ) -> tuple[Prepared, FittedPrediction]:
        """Return the rows and the fit with the features alone that are stable in a full fit."""
        if self.whiten:
            raise ValueError(
                "`max_features` with `whiten` is for criterion='dependence': the prediction of y "
                "does not depend on the scales of columns; set whiten=False"
            )
        self.full_objective_ = full.solution.objective
        W = fit.prepared.lift(full.solution.W.T)
        support = full.support(fit.prepared.feature_space, W.T, most)
        self.stability_ = support.frequencies
        few = self._prepared(checked, as_kernel(self.kernel), support.chosen)
        report = partial(self._report_state, few)
        again = replace(fit, prepared=few, on_iteration=report)
        start = few.orthonormal(W)[: few.n_varying]
        return few, again.run_from(start, full.setting, full.target_name)

    def _continued(self, fit: PredictionFit, prepared: Prepared) -> FittedPrediction:
        """Return the fit that continues at the components of an earlier one."""
        if self.setting_ is None or self.target_ not in fit.targets:
            raise ValueError(
                "`warm_start` continues a fit with criterion='prediction' of the same kind of y; "
                "set warm_start=False"
            )
        return fit.run_from(prepared.lower(self.components_), self.setting_, self.target_)

    def _prediction_fit(
        self, checked: CheckedInput, prepared: Prepared
    ) -> tuple[PredictionFit, tuple[DimensionTrial, ...]]:
        """Return the fit with its number of new features, and what the numbers tried explain."""
        classes = checked.dependence.classes
        default_q = len(classes) - 1 if classes is not None else checked.dependence.columns
        most = limited(prepared.n_varying - 1, self.max_features)
        q = self._resolve_n_components(
            self.n_components, limited(max(default_q, 1), self.max_features), prepared
        )
        is_warm = self.warm_start and hasattr(self, "components_")
        q = self._check_warm_start(prepared) if is_warm else q
        check_enough_features(self.max_features, q)
        fit = self._prediction_fit_of(checked, prepared, q)
        chooses = self.n_components in (None, "auto") and not is_warm
        if chooses and default_q <= MOST_FEATURES and fit.n_rows >= FEWEST_ROWS:
            return fit.with_dimension(most)
        return fit, ()

    def _prediction_fit_of(
        self, checked: CheckedInput, prepared: Prepared, q: int
    ) -> PredictionFit:
        """Return the fit with q new features."""
        return PredictionFit(
            prepared,
            as_kernel(self.kernel),
            prediction_targets(checked.target, self.target, self.avoid_weight),
            checked.target.weights,
            q,
            seed_of(self.random_state or 0),
            self._solver.max_iter,
            self._solver.max_seconds,
            partial(self._report_state, prepared),
        )

    def _set_prediction(
        self, result: FittedPrediction, prepared: Prepared, checked: CheckedInput
    ) -> tuple[Solution, str]:
        """Set the fitted attributes; return the solution, and advice on the number of features."""
        solution = result.solution
        rotated = self._rotated(solution, prepared)
        self._set_solution_attributes(rotated, prepared)
        self.kernel_ = result.regression.kernel.with_rows_mapped(prepared.lift_rows)
        self.setting_, self.selection_ = result.setting, result.trials
        self.target_ = result.target_name
        self.solver_, self.engine_, self.engine_note_ = "ascent", "blocks", ""
        self.engine_error_, self.certificate_ = solution.error, solution.certificate
        self.residual_, self.residual_rows_ = solution.residual, solution.residual_rows
        self.tolerance_, self._slope_noise = result.limit, result.slope_noise
        self.contributions_ = Contributions(*result.contributions(rotated.W))
        self.target_remainder_ = checked.dependence.remainder
        self.avoided_ = None
        if "avoid" in checked.target.sides:
            rows = self._fit_rows(prepared, self.kernel_, len(rotated.W.T), checked)
            self.avoided_ = measured_avoidance(rows, rotated.W, checked.dependence)
        return solution, features_advice(
            result.trials, self.contributions_.lost, solution.objective
        )

    def _learn_dependence(self, checked: CheckedInput) -> tuple[Solution, str]:
        """Return the solution of largest HSIC, and advice on the number of features."""
        self.setting_, self.selection_, self.dimension_path_ = None, (), ()
        self._slope_noise = None
        started = time.perf_counter()
        kernel, saved_fit = as_kernel(self.kernel), current_fit()
        if self.max_features is not None:
            checked.check_dense("`max_features`")
        dependence = checked.dependence
        prepared = self._prepared(checked, kernel)
        solve = partial(self._solve, dependence, saved_fit, started)
        fitted = solve(self._start(prepared, kernel, checked))
        if self.max_features is not None:
            fitted = solve(self._with_few_features(checked, fitted, self.max_features))
        engine, solution, prepared, fit_rows = fitted
        rotated = self._rotated(solution, prepared)
        self._set_solution_attributes(rotated, prepared)
        self.kernel_ = _kernel_of(fit_rows, prepared)
        self._set_engine_attributes(engine, solution)
        with on_this_machine():
            W, sample = rotated.W[: prepared.n_varying], fit_rows.sampled(dependence)
            self.contributions_ = contributions(sample, W, solution.objective)
        self.target_remainder_ = dependence.remainder
        self.avoided_ = measured_avoidance(fit_rows, rotated.W, dependence)
        return solution, components_advice(solution.eigenvalues.tolist(), solution.eigengap)

    def _with_few_features(self, checked: CheckedInput, full: _Fitted, most: int | str) -> _Start:
        """Return the start of a fit to the features that are stable in a full fit."""
        _, solution, prepared, fit_rows = full
        self.full_objective_ = solution.objective
        support = choose_support(fit_rows, prepared, checked.dependence, solution, most)
        self.stability_ = support.frequencies
        W, kernel = prepared.lift(solution.W.T), _kernel_of(fit_rows, prepared)
        few = self._prepared(checked, as_kernel(self.kernel), support.chosen)
        return _Start(few, self._fit_rows(few, kernel, fit_rows.q, checked), few.orthonormal(W))

    def _solve(
        self, dependence: Dependence, saved_fit: CheckpointedFit, started: float, start: _Start
    ) -> _Fitted:
        """Return the fit from a start."""
        prepared, fit_rows, W = start
        problem, q = fit_rows.problem(dependence), fit_rows.q
        search = self._search_with(prepared)
        if q == fit_rows.space.size:
            engine, solution = solution_of_whole_space(problem, search.engine)
            return _Fitted(engine, solution, prepared, fit_rows)
        left = search.stopping.after(time.perf_counter() - started)
        search = replace(search, stopping=left)
        state = None if W is None else state_at(W)
        if isinstance(prepared, WidePrepared):
            wide = WideFit(dependence, search, self._report_state)
            return _Fitted(*wide.run(prepared, fit_rows, state))
        engine, solution = search.run(problem, q, state, saved_fit=saved_fit)
        return _Fitted(engine, solution, prepared, fit_rows)

    def _fit_rows(
        self, prepared: Prepared, kernel: Kernel, q: int, checked: CheckedInput
    ) -> FitRows:
        """Return everything that a fit of W (d, q) needs except Gamma."""
        return prepared.fit_rows(
            kernel, self.random_state, q, checked.target.weights, checked.sampling_order
        )

    def _start(self, prepared: Prepared, kernel: Kernel, checked: CheckedInput) -> _Start:
        """Return the rows for the number of new features, and the W of a warm start."""
        dependence = checked.dependence
        if dependence.classes is None:
            default_q = dependence.columns
        else:
            default_q = max(len(dependence.classes) - 1, 1)
        default_q = limited(default_q, self.max_features)
        is_warm = self.warm_start and hasattr(self, "components_")
        q = self._resolve_n_components(self.n_components, default_q, prepared)
        if is_warm:
            q = self._check_warm_start(prepared)
        check_enough_features(self.max_features, q)
        fit_rows = self._fit_rows(prepared, kernel, q, checked)
        continues = is_warm and q <= prepared.n_varying
        W = prepared.orthonormal(self.components_) if continues else None
        return _Start(prepared, fit_rows, W)

    def _check_warm_start(self, prepared: Prepared) -> int:
        """Return the number of new features to continue from; raise if they do not fit."""
        q, d = self.components_.shape
        if d != prepared.n_varying + prepared.n_constant:
            raise ValueError(
                f"`warm_start` continues from `components_` of {d} features, but X has "
                f"{prepared.n_varying + prepared.n_constant}; set warm_start=False"
            )
        if self.n_components not in (None, "auto", q):
            raise ValueError(
                f"`warm_start` continues from `components_` with {q} new features, but "
                f"`n_components` is {self.n_components}; set warm_start=False"
            )
        return int(q)


def solver_for(criterion: str, solver: str | Solver) -> Solver:
    """Return a solver; "auto" is the usual one of the criterion."""
    is_auto = isinstance(solver, str) and solver == "auto"
    return as_solver(CRITERIA.get(criterion, "ascent") if is_auto else solver)


def check_criterion(
    criterion: str, kernel: str | Kernel, solver: str | Solver, engine: str | EngineOptions
) -> None:
    """Raise a ValueError if the kernel, solver or engine cannot serve the criterion."""
    check_choice("`criterion`", criterion, CRITERIA)
    predicts = criterion == PREDICTION
    if predicts != isinstance(solver_for(criterion, solver), Ascent):
        raise ValueError(
            f"`solver`={solver!r} does not serve criterion={criterion!r}; take "
            "solver='auto', or criterion="
            + ("'dependence', which the spectral method solves" if predicts else "'prediction'")
        )
    if not predicts:
        return
    if engine != "auto":
        raise ValueError(
            f"`engine`={engine!r} is for criterion='dependence'; the prediction of y is "
            "computed in blocks of rows, with engine='auto'"
        )
    if not as_kernel(kernel).is_positive_definite:
        raise ValueError(
            f"`kernel`={kernel!r} is not positive definite, so that no regression can use "
            "it; expected 'gaussian', 'polynomial', 'linear' or sums of them. Other kernels "
            "are for criterion='dependence'"
        )


def _kernel_of(fit_rows: FitRows, prepared: Prepared) -> Kernel:
    """Return the kernel of a fit; rows that it may hold are mapped to the user's features."""
    return fit_rows.kernel.with_rows_mapped(prepared.lift_rows)
