"""How a supervised fit is computed: its start, its W, and the attributes that they set."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ism_dask._types import Array
from ism_dask.engines import Engine
from ism_dask.estimators.avoidance import measured_avoidance
from ism_dask.estimators.base import IKDR, row_source
from ism_dask.estimators.contributions import contributions
from ism_dask.estimators.few_features import check_enough_features, choose_support, limited
from ism_dask.estimators.model_choice import FitStart, tries_dimensions
from ism_dask.estimators.preparation import FitRows, Prepared
from ism_dask.estimators.supervised_input import (
    CheckedInput,
    FitTarget,
    check_rows_and_target,
    row_weights,
)
from ism_dask.estimators.wide_rows import WideFit, WidePrepared
from ism_dask.gamma.base import Dependence
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.records.checkpoint import CheckpointedFit, current_fit
from ism_dask.records.iteration import Solution
from ism_dask.rows.execution import on_this_machine
from ism_dask.solvers.whole_space import solution_of_whole_space

# Maximum number of iterations from a W that a selection chose: gradient steps, which are cheap.
_MAX_GRADIENT_STEPS = 1000


class _Fitted(NamedTuple):
    """A fitted W: the engine that computed it, the solution, and the rows and start it is for."""

    engine: Engine
    solution: Solution
    prepared: Prepared
    fit_start: FitStart


class SupervisedFit(IKDR):
    """Gives a supervised estimator the steps of its fit."""

    n_components: int | str | None
    target: str
    whiten: bool
    selection: str | None
    max_features: int | str | None
    avoid_weight: float
    warm_start: bool
    class_weight: dict[Any, float] | str | None
    sides_: tuple[str, ...]

    def _checked_input(
        self, X: Any, y: Any, sample_weight: Any, *, avoid: Any = None, given: Any = None
    ) -> CheckedInput:
        """Return validated rows, in an order of their own, with their target and weights."""
        X, y = check_rows_and_target(self, row_source(X), y)
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
        started = time.perf_counter()
        kernel, saved_fit = as_kernel(self.kernel), current_fit()
        if self.max_features is not None:
            checked.check_dense("`max_features`")
        dependence = checked.dependence
        prepared = self._prepared(checked, kernel)
        fit_start = self._fit_start(prepared, kernel, checked)
        solve = partial(self._solve, dependence, saved_fit, started)
        fitted = solve(prepared, fit_start)
        if self.max_features is not None:
            prepared, fit_start = self._with_few_features(checked, fitted, self.max_features)
            fitted = solve(prepared, fit_start)
        engine, solution, prepared, fit_start = fitted
        rotated = self._rotated(solution, prepared)
        self._set_solution_attributes(rotated, prepared)
        self.kernel_ = self._kernel_of(fit_start, prepared)
        self._set_engine_attributes(engine, solution)
        with on_this_machine():
            W = rotated.W[: prepared.n_varying]
            choice = fit_start.on_sample(dependence)
            self.contributions_ = contributions(choice, W, solution.objective)
        self.target_remainder_ = dependence.remainder
        self.avoided_ = measured_avoidance(fit_start.fit_rows, rotated.W, dependence)
        self.selection_ = fit_start.trials
        self.dimension_path_ = fit_start.dimension_path
        return solution, fit_start.advice(solution)

    def _with_few_features(
        self, checked: CheckedInput, full: _Fitted, most: int | str
    ) -> tuple[Prepared, FitStart]:
        """Return the rows and the start of a fit to the features that are stable in a full fit."""
        _, solution, prepared, fit_start = full
        dependence = checked.dependence
        self.full_objective_ = solution.objective
        support = choose_support(fit_start, prepared, dependence, solution, most)
        self.stability_ = support.frequencies
        W, kernel = prepared.lift(solution.W.T), self._kernel_of(fit_start, prepared)
        few = self._prepared(checked, as_kernel(self.kernel), support.chosen)
        fit_rows = self._fit_rows(few, kernel, fit_start.q, checked)
        start = replace(fit_start, fit_rows=fit_rows)
        return few, start.continued(few.lower(W), 1.0, dependence)

    def _kernel_of(self, fit_start: FitStart, prepared: Prepared) -> Kernel:
        """Return the kernel of the fit; rows that it may hold are mapped to the user's features."""
        return fit_start.fit_rows.kernel.with_rows_mapped(prepared.lift_rows)

    def _solve(
        self,
        dependence: Dependence,
        saved_fit: CheckpointedFit,
        started: float,
        prepared: Prepared,
        fit_start: FitStart,
    ) -> _Fitted:
        """Return the fit of W from a start."""
        problem, q = fit_start.fit_rows.problem(dependence), fit_start.q
        search = self._search_with(prepared)
        if q == fit_start.fit_rows.space.size:
            engine, solution = solution_of_whole_space(problem, search.engine)
            return _Fitted(engine, solution, prepared, fit_start)
        stopping = search.stopping.after(time.perf_counter() - started)
        search = replace(search, stopping=stopping, precondition=fit_start.precondition)
        if search.begins_with_gradient_steps and search.solver.max_iter is None:
            search = replace(search, stopping=replace(stopping, max_iter=_MAX_GRADIENT_STEPS))
        if isinstance(prepared, WidePrepared):
            return _Fitted(
                *WideFit(dependence, search, self._report_state).run(prepared, fit_start)
            )
        engine, solution = search.run(problem, q, fit_start.state, saved_fit=saved_fit)
        return _Fitted(engine, solution, prepared, fit_start)

    def _fit_rows(
        self, prepared: Prepared, kernel: Kernel, q: int, checked: CheckedInput
    ) -> FitRows:
        """Return everything that a fit of W (d, q) needs except Gamma."""
        return prepared.fit_rows(
            kernel, self.random_state, q, checked.target.weights, checked.sampling_order
        )

    def _fit_start(self, prepared: Prepared, kernel: Kernel, checked: CheckedInput) -> FitStart:
        """Return the start of the fit: the number of new features, the width and the W."""
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
        default_start = FitStart(fit_rows, q)
        if is_warm and q <= prepared.n_varying:
            trials = getattr(self, "selection_", ())
            width = trials[0].width if trials and kernel.multiples else 1.0
            start = default_start.continued(prepared.lower(self.components_), width, dependence)
            return replace(
                start, trials=trials, dimension_path=getattr(self, "dimension_path_", ())
            )
        if self.selection is None or not kernel.multiples or not default_start.can_select:
            return default_start
        n_classes = None if dependence.classes is None else len(dependence.classes)
        is_given = self.n_components not in (None, "auto")
        if is_given or not tries_dimensions(n_classes, kernel, self.selection):
            return default_start.selected(dependence, kernel.multiples)
        most = limited(prepared.n_varying - 1, self.max_features)
        return default_start.grown(dependence, kernel.multiples, most)

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
