"""How a fit by the dependence criterion is computed, from the problem to the fitted attributes."""

from __future__ import annotations

from functools import partial

from ism_dask.engines import as_engine
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.fitted import (
    Fitted,
    contributions,
    measured_avoidance,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.preparation import Report
from ism_dask.estimators.problem import SupervisedProblem, solver_for
from ism_dask.kernels import as_kernel
from ism_dask.records.checkpoint import current_fit
from ism_dask.records.iteration import Solution, State
from ism_dask.rows.execution import on_this_machine
from ism_dask.solvers.options import solver_name
from ism_dask.solvers.search import Search, solution_of_whole_space
from ism_dask.solvers.time_limit import TimeLimit
from ism_dask.status import components_advice


def fit_dependence(problem: SupervisedProblem, report: Report) -> Fitted:
    """Return the fit whose X W depends on y most, by HSIC."""
    parameters, dependence = problem.parameters, problem.dependence
    kernel, solver = as_kernel(parameters.kernel), solver_for("dependence", parameters.solver)
    engine = as_engine(parameters.engine)
    saved_fit = current_fit()
    time_limit = TimeLimit(solver.max_seconds, saved_fit.earlier_seconds)

    def solve(rows: DependenceRows, start: State | None) -> tuple[Solution, DependenceRows]:
        if rows.q == rows.space.size:
            return solution_of_whole_space(rows.problem(dependence), engine), rows
        search = Search(engine, solver, partial(report, rows.prepared), time_limit)
        return search.run(rows.problem(dependence), rows.q, start, saved_fit), rows

    prepared, earlier = problem.prepared(kernel), problem.earlier
    q = problem.n_components(prepared)
    start = None
    if earlier is not None and q <= prepared.n_varying:
        start = State.at(prepared.orthonormal(earlier))
    solution, rows = solve(problem.dependence_rows(prepared, kernel, q), start)
    turned = rotated(solution, rows.prepared, parameters.rotation)
    contributing = rows.contributing(dependence)
    with on_this_machine():
        evaluate = contributing().value
        W = turned.W[: rows.prepared.n_varying]
        of_features = contributions(evaluate, W, solution.objective)
    attributes = {
        **solution_attributes(
            turned,
            rows.prepared,
            rows.sample,
            components_advice=components_advice(solution.eigenvalues.tolist(), solution.eigengap),
            solver=solver_name(solver),
            target_remainder=dependence.remainder,
            avoided=measured_avoidance(rows, turned.W, dependence),
        ),
        "kernel_": rows.fitted_kernel,
        "tolerance_": solver.stopping.limit,
        "contributions_": of_features,
    }
    return Fitted(solution, attributes)
