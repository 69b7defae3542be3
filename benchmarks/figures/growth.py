"""Growth of the time of each engine with n, and of each solver with n, d and q."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import dense
from benchmarks.fits import Fit, fit, middle, phi_seconds
from benchmarks.measure import Figure, alternating, log_slope, say, timed
from benchmarks.paper.dimension_growth import DimensionGrowth
from benchmarks.paper.grassmann import Grassmann
from benchmarks.paper.stiefel import Stiefel
from benchmarks.rows import (
    Labelled,
    labelled,
    mnist_train,
    problem_of,
)
from ism_dask.kernels import Gaussian, Kernel, Polynomial
from ism_dask.solvers import ISM, Solver

Array = NDArray[Any]
_SIZES = (2000, 5000, 10_000, 20_000, 40_000, 60_000)
_REPEATS = 3
# The time of a fit depends on its number of iterations, so all fits make this many, which a
# tolerance that is never met ensures.
_SOLVER = ISM(tol=1e-12, max_iter=4)
_DENSE_SIZES = (2000, 5000)


@dataclass(frozen=True)
class _Kind:
    """A line of the figure: its engine, its kernel, and its largest number of rows."""

    line: str
    engine: str
    kernel: Kernel
    most: int


_KINDS = (
    _Kind("polynomial", "landmarks", Polynomial(degree=3), 60_000),
    _Kind("landmarks", "landmarks", Gaussian("median"), 60_000),
    _Kind("exact", "exact", Gaussian("median"), 20_000),
)


def slope() -> Figure:
    """Seconds against n on the first rows of MNIST train, streamed from disk, q = 10.

    Every fit makes four iterations at any n. `solved` leaves out the residual under the true
    kernel, which takes O(n^2) time up to 63,000 rows; `fit` includes it. `phi` is one Phi and J.
    The slopes are least-squares fits of log seconds against log n from 10,000 rows up.
    """
    rows = labelled(mnist_train())
    lines = [*_engine_lines(rows), *(_dense_line(n, rows) for n in _DENSE_SIZES)]
    lines.sort(key=lambda line: int(line["n"]))
    slopes = {kind.line: _slopes(kind.line, lines) for kind in _KINDS[:2]}
    return {
        **{key: value for each in slopes.values() for key, value in each.items()},
        "table": lines,
        "must": "slope of seconds without the check at most 1.1, features and landmarks",
        "met": all(each[f"{line}_slope"] <= 1.1 for line, each in slopes.items()),
    }


def _engine_lines(rows: Labelled) -> list[Figure]:
    """Return a line for each engine and n; each repeat runs all of them in turn."""
    points = [(kind, n) for kind in _KINDS for n in _SIZES if n <= kind.most]
    calls = {f"{kind.line}, {n:,} rows": partial(_fit, kind, n, rows) for kind, n in points}
    runs = alternating(calls, _REPEATS).values()
    return [
        _line(kind, n, rows, [run.value for run in each])
        for (kind, n), each in zip(points, runs, strict=True)
    ]


def _fit(kind: _Kind, n: int, rows: Labelled) -> Fit:
    head = rows.head(n)
    return fit(head, kind.kernel, engine=kind.engine, solver=_SOLVER)


def _line(kind: _Kind, n: int, rows: Labelled, fits: list[Fit]) -> Figure:
    problem = problem_of(rows.head(n), kind.kernel)
    return {
        "n": n,
        "line": kind.line,
        "seconds_fit": middle(fits, "seconds"),
        "seconds_solved": middle(fits, "solved"),
        "seconds_phi": phi_seconds(problem, (kind.engine,))[kind.engine],
    }


def _dense_line(n: int, rows: Labelled) -> Figure:
    """Return the line of the dense definition, which iterates until its own stopping rule."""
    head = rows.head(n).in_memory()
    X = dense.standardised(head.X.astype(float))
    sigma = dense.median_distance(X)
    run = timed(lambda: dense.dense_gaussian_fit(X, head.y, 10, sigma=sigma))
    say(f"dense, {n:,} rows: {run.seconds:.1f} s")
    return {
        "n": n,
        "line": f"dense, {run.value.n_iter} iterations",
        "seconds_fit": run.seconds,
        "seconds_phi": float(np.median(run.value.seconds)),
    }


def _slopes(name: str, lines: list[Figure]) -> Figure:
    large = [line for line in lines if line["line"] == name and line["n"] >= 10_000]
    sizes = [line["n"] for line in large]
    return {
        f"{name}_slope{suffix}": log_slope(sizes, [line[key] for line in large])
        for suffix, key in (
            ("", "seconds_solved"),
            ("_with_check", "seconds_fit"),
            ("_of_phi", "seconds_phi"),
        )
    }


# The sizes of the solvers' figure: one of them varies, the others are those of `_MIDDLE`. Images
# of 28 x 28 points have 784 columns; means of 2 x 2 and 4 x 4 points leave 196 and 49.
_MIDDLE = {"n": 1000, "d": 196, "q": 10}
_VARIED = {"n": (500, 1000, 2000), "d": (49, 196, 784), "q": (2, 5, 10, 20)}
_SOLVERS: dict[str, Solver] = {
    "ISM": ISM(tol=0.01),
    "SM": Stiefel(),
    "GM": Grassmann(),
    "DG": DimensionGrowth(),
}
_MOST_SECONDS = 120.0


def solver_slopes(*names: str) -> Figure:
    """CPU seconds of a fit by each solver against n, d and q: gaussian, all pairs of MNIST rows.

    Seconds are those of the process, which other programs hardly change. ISM has the published
    stopping rule, and the others the one of the library. The parts are names of solvers.
    """
    rows = labelled(mnist_train()).head(max(_VARIED["n"])).in_memory()
    chosen = {name: _SOLVERS[name] for name in names or _SOLVERS}
    for solver in chosen.values():  # the first fit of a process loads libraries
        fit(rows.head(200), "linear", 2, solver=solver)
    table = [line for name, solver in chosen.items() for line in _solver_lines(name, solver, rows)]
    slopes = [_slopes_of(name, table) for name in chosen]
    return {
        "table": slopes,
        "more_tables": {"All fits": table},
        "must": "seconds of ISM grow no faster than n^2, d and q",
        "met": all(
            line["by n"] <= 2.1 and line["by d"] <= 1.1 and line["by q"] <= 1.1
            for line in slopes
            if line["solver"] == "ISM"
        ),
    }


def _solver_lines(name: str, solver: Solver, rows: Labelled) -> Iterator[Figure]:
    points = [{**_MIDDLE, size: value} for size, values in _VARIED.items() for value in values]
    for point in {tuple(each.items()): each for each in points}.values():
        images = rows.head(point["n"]).X.reshape(-1, 28, 28).astype(float)
        side = int(point["d"] ** 0.5)
        X = images.reshape(-1, side, 28 // side, side, 28 // side).mean(axis=(2, 4))
        reduced = Labelled(X.reshape(len(X), -1), rows.y[: point["n"]])
        started = time.process_time()
        made = fit(
            reduced,
            Gaussian("median"),
            point["q"],
            engine="exact",
            solver=replace(solver, max_seconds=_MOST_SECONDS),
        )
        seconds = time.process_time() - started
        say(f"{name}, {point}: {seconds:.2f} s")
        yield {
            "solver": name,
            **point,
            "seconds": seconds,
            "iterations": made.model.n_iter_,
            "J": float(made.model.objective_),
            "ended": made.model.status_.value,
        }


def _slopes_of(name: str, table: list[Figure]) -> Figure:
    """Return log-log slopes of the seconds of a solver, and of its seconds an iteration."""
    slopes: Figure = {"solver": name}
    for size in _VARIED:
        fixed = {key: value for key, value in _MIDDLE.items() if key != size}
        lines = [
            line
            for line in table
            if line["solver"] == name and all(line[key] == fixed[key] for key in fixed)
        ]
        values = [line[size] for line in lines]
        slopes[f"by {size}"] = log_slope(values, [line["seconds"] for line in lines])
        slopes[f"an iteration, by {size}"] = log_slope(
            values, [line["seconds"] / line["iterations"] for line in lines]
        )
    return slopes
