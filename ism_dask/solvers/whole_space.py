"""The solution for as many new features as there are features: W spans the whole space."""

from __future__ import annotations

import numpy as np

from ism_dask.engines import (
    Engine,
    EngineOptions,
    PaddedOperator,
    Problem,
    as_engine,
    first_that_serves,
)
from ism_dask.linalg.eigen import rayleigh_ritz
from ism_dask.records.iteration import Record, Solution
from ism_dask.stationarity import with_true_residual
from ism_dask.status import Status


def solution_of_whole_space(
    problem: Problem, options: str | EngineOptions
) -> tuple[Engine, Solution]:
    """Return an engine, and the solution with as many new features as `problem` has features.

    J is the same for every W, so that every W is a maximum. The W that is returned makes
    `W^T Phi W` diagonal. No direction is outside of W: the eigengap is the last eigenvalue minus
    zero, the eigenvalue of directions in which the rows are constant.
    """

    def solve(engine: Engine) -> tuple[Engine, Solution]:
        return engine, with_true_residual(engine, _solution(engine))

    return first_that_serves(as_engine(options).engines(problem, problem.d), solve)


def _solution(engine: Engine) -> Solution:
    identity = np.eye(engine.problem.d)
    evaluation = PaddedOperator(engine, 0).gradient(identity)
    W, values, product = rayleigh_ritz(identity, evaluation.product)
    record = Record(
        iteration=1,
        objective=evaluation.objective,
        eigenvalues=tuple(values.tolist()),
        change=0.0,
        angle=0.0,
        seconds=0.0,
        ascent=True,
        settled=True,
        residual=0.0,
    )
    return Solution(
        W=W,
        eigenvalues=values,
        eigengap=float(values[-1]),
        objective=evaluation.objective,
        error=evaluation.error,
        product=product,
        n_iter=1,
        status=Status.CONVERGED,
        history=(record,),
        in_double=True,
    )
