"""Fit MNIST's 60,000 training images, streamed from disk, and compare with the exact engine."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.fits import Fit, determined, fit, leading_sine, middle
from benchmarks.measure import Figure, PeakMemory, alternating, say
from benchmarks.registry import figure
from benchmarks.rows import labelled, mnist_train
from ism_dask import hsic
from ism_dask.kernels import Gaussian, Kernel, Polynomial
from ism_dask.solvers import ISM

_REPEATS = 3
_SAME = 1e-4
# The new features of the verified fits; Gamma of ten classes has rank 9, so that the last of ten
# features has hardly any part in J, and spectral steps do not converge.
_FEATURES = (2, 5, 10)


@figure
def mnist60k() -> Figure:
    """MNIST, 60,000 training images, q = 10, gaussian, from the stored data set to W."""
    figure = _against_exact(Gaussian("median"))
    figure["must"] = (
        "30 s and 3 GB of all processes; sine to the exact answer at most 1e-4; J off by no more "
        "than engine_error"
    )
    figure["peak_limit_gb"] = 3.0
    figure["met"] = bool(
        figure["seconds"] <= 30 and _same_answer(figure) and figure["fit_peak_gb"] <= 3
    )
    return figure


@figure
def polynomial60k() -> Figure:
    """MNIST, 60,000 training images, q = 10, polynomial of degree 3, from the stored data set."""
    figure = _against_exact(Polynomial(degree=3))
    figure["must"] = "3 s an iteration; sine to the exact answer at most 1e-4"
    figure["met"] = bool(figure["seconds_an_iteration"] <= 3 and figure["sine_to_exact"] <= _SAME)
    return figure


@figure
def verified60k() -> Figure:
    """MNIST, 60,000 training images, gaussian, until W is stationary and the check has passed."""
    rows = labelled(mnist_train()).in_memory()
    figure: Figure = {"must": "15 s for 2 and 5 new features each, and every fit converges"}
    for q in _FEATURES:
        began = time.process_time()
        result = fit(rows, Gaussian("median"), q, solver=ISM())
        figure[f"seconds_{q}"] = result.seconds
        figure[f"cpu_seconds_{q}"] = time.process_time() - began
        figure[f"n_iter_{q}"] = result.model.n_iter_
        figure[f"residual_{q}"] = result.model.residual_
        figure[f"converged_{q}"] = result.model.converged_
    figure["met"] = bool(
        max(figure["seconds_2"], figure["seconds_5"]) <= 15
        and all(figure[f"converged_{q}"] for q in _FEATURES)
    )
    return figure


def _same_answer(figure: Figure) -> bool:
    off = max(figure["J_off_at_the_same_W"], figure["J_off_between_answers"])
    return bool(figure["sine_to_exact"] <= _SAME and off <= figure["engine_error"])


def _against_exact(kernel: Kernel) -> Figure:
    """Fit with the default engine, then once with the exact engine, and compare."""
    data = mnist_train()
    rows = labelled(data)
    with PeakMemory() as peak:
        runs = alternating({"default engine": lambda: fit(rows, kernel)}, _REPEATS)
    fits = [run.value for run in runs["default engine"]]
    say("the same with engine='exact' ...")
    exact = fit(rows, kernel, engine="exact")
    say(f"exact: {exact.seconds:.1f} s; J of the default answer, exactly ...")
    return {**_answer(fits), "fit_peak_gb": peak.together / 1e9, **_differences(fits[0], exact)}


def _answer(fits: list[Fit]) -> Figure:
    model = fits[0].model
    return {
        "seconds": middle(fits, "seconds"),
        "seconds_without_check": middle(fits, "solved"),
        "seconds_an_iteration": middle(fits, "iteration_seconds"),
        "n_iter": model.n_iter_,
        "engine": model.engine_,
        "engine_error": model.engine_error_,
        "residual": model.residual_,
        "residual_rows": model.report_.residual_rows,
    }


def _differences(ours: Fit, exact: Fit) -> Figure:
    """Compare a fit with the exact one; J at its own W comes from float64 tiles."""
    rows = labelled(mnist_train())
    n = len(rows.y)
    Z = ours.model.transform(rows.X)
    J = hsic(Z, rows.y, kernel=ours.model.kernel_, engine="exact") * (n - 1) ** 2
    objective = ours.model.objective_
    return {
        "sine_to_exact": leading_sine(exact.W, ours.W, len(exact.W.T)),
        "determined_components": determined(exact.model),
        "J_off_at_the_same_W": abs(objective / J - 1),
        "J_off_between_answers": float(np.abs(objective / exact.model.objective_ - 1)),
        "exact_seconds": exact.seconds,
        "exact_seconds_an_iteration": exact.iteration_seconds,
        "exact_n_iter": exact.model.n_iter_,
    }
