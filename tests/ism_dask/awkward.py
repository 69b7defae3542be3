"""Rows that are hard on a fit, and the definition of a fit to them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from definition import Definition, centred, equal_classes, standardised

from ism_dask.engines import EngineOptions
from ism_dask.estimators.input_rows import row_order
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import (
    Gaussian,
    Kernel,
    Linear,
    Multiquadric,
    Polynomial,
    RelativeGaussian,
    Squared,
)
from ism_dask.solvers import ISM

_SUM = 0.5 * Gaussian() + 0.1 * Polynomial(2)
_KINDS = ("plain", "heavy", "whole", "mixed", "clusters")


def _apart(rng, X):
    along = np.eye(X.shape[1])[rng.integers(X.shape[1])]
    return X + 10.0 ** rng.uniform(0, 4) * rng.integers(-1, 2, size=(len(X), 1)) * along


def _one_far(rng, X):
    X[rng.integers(len(X))] *= 10.0 ** rng.uniform(1, 7)
    return X


def _near_copies(rng, X):
    half = X[: len(X) // 2]
    return np.concatenate([half, half + 1e-6 * rng.normal(size=half.shape)])


# What is done to normal rows, each to lose other digits.
_HOSTILE = (
    lambda _, X: X,
    _apart,
    _one_far,
    _near_copies,
    lambda rng, X: rng.standard_cauchy(size=X.shape),
    lambda rng, X: np.round(rng.exponential(2, size=X.shape)),
    lambda rng, X: X * 10.0 ** rng.uniform(-15, 15, size=X.shape[1]),
    lambda rng, X: X + 10.0 ** rng.uniform(0, 6),
    lambda rng, X: X * 10.0 ** rng.uniform(-3, 3, size=(len(X), 1)),
)


@dataclass(frozen=True)
class Case:
    """One problem, and how it is to be solved."""

    X: np.ndarray
    y: np.ndarray
    target: str
    kernel: Kernel
    q: int
    settings: dict[str, Any] = field(default_factory=dict)


def definition_of(case, model, kind=np.float64):
    """Return the definition of a fitted model, in a precision."""
    X = (case.X.astype(kind) - model.mean_.astype(kind)) / model.scale_.astype(kind)
    return Definition(X, _gamma(case, kind), model.kernel_)


def _gamma(case, kind):
    y = case.y
    if case.target == "gaussian":
        # The factor that a fit makes, in its order of the rows: test_gamma says what it leaves out.
        order = row_order(case.X, y)
        U = target_dependence(y[order], case.target).facts.astype(kind)[np.argsort(order)]
        return U @ U.T
    if target_dependence(y, case.target).classes is not None:
        return centred(equal_classes(y).astype(kind))
    Z = standardised(y.astype(kind))
    return centred(Z @ Z.T)


def small(seed):
    """Return an ordinary problem of up to 90 rows, with any kernel and target."""
    rng = np.random.default_rng([17, seed])
    n, d = int(rng.integers(12, 90)), int(rng.integers(2, 10))
    q, kind = int(rng.integers(1, d)), _KINDS[rng.integers(len(_KINDS))]
    X = rng.standard_t(2, size=(n, d)) if kind == "heavy" else rng.normal(size=(n, d))
    if kind == "whole":
        X = np.round(2 * X)
    elif kind == "mixed":
        X = X @ rng.normal(size=(d, d))
    elif kind == "clusters":
        X = X + 5 * rng.integers(0, 3, size=(n, 1)) * rng.normal(size=d)
    score = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.5 * rng.normal(size=n)
    target = ("classes", "numbers", "noise")[rng.integers(3)]
    y = np.digitize(score, np.quantile(score, [0.33, 0.66]))
    if target == "numbers":
        y = score
    elif target == "noise":
        y = np.append(rng.integers(0, int(rng.integers(2, 5)), size=n - 2), [0, 1])
    powers = ((2, 0.0), (2, 1.0), (3, 1.0), (3, 0.0), (4, 0.5))
    kernels = [Linear(), Squared(), *(Polynomial(*power) for power in powers)]
    kernels += [Gaussian(), Gaussian(float(10 ** rng.uniform(-1.2, 1.2)))]
    kernels += [Multiquadric(), Multiquadric(0.1), RelativeGaussian(), _SUM]
    read_as = ("linear", "gaussian")[rng.integers(2)] if target == "numbers" else "classes"
    return Case(X, y, read_as, kernels[rng.integers(len(kernels))], q)


def hostile(seed):
    """Return a problem that is made to lose digits, with any engine and precision."""
    rng = np.random.default_rng([4, seed])
    n, d = int(rng.integers(20, 120)), int(rng.integers(2, 12))
    q = int(rng.integers(1, min(d, 5)))
    X = _HOSTILE[rng.integers(len(_HOSTILE))](rng, rng.normal(size=(n, d)))
    n = len(X)
    score = np.arctan(X[:, 0]) + 0.3 * rng.normal(size=n)
    target = ("linear", "gaussian", "classes", "rare")[rng.integers(4)]
    y = score
    if target == "classes":
        y = np.append(rng.integers(0, 3, size=n - 2), [0, 1])
    elif target == "rare":
        y = (np.arange(n) == rng.integers(n)).astype(int)
    elif target == "linear":
        y = score * 10.0 ** rng.uniform(-8, 8)
    kernels = [Linear(), Squared(), Polynomial(2, 1.0), Polynomial(5, 0.5), Gaussian()]
    kernels += [Gaussian(float(10 ** rng.uniform(*ends))) for ends in ((-3, 2), (2, 5))]
    kernels += [Multiquadric(float(10 ** rng.uniform(-3, 3)))]
    kernels += [RelativeGaussian(int(rng.integers(1, 9))), _SUM]
    number, tol = rng.integers(3), float(10 ** rng.uniform(-11, -2))
    settings = {
        "engine": (EngineOptions(tol=tol), "exact", EngineOptions("landmarks", tol=tol))[number],
        "standardize": bool(rng.integers(4)),
        "solver": ISM(tol=0.01, max_iter=20),
    }
    X = X.astype((np.float64, np.float32)[rng.integers(2)])
    read_as = "classes" if target == "rare" else target
    return Case(X, y, read_as, kernels[rng.integers(len(kernels))], q, settings)


def rank_deficient(seed):
    """Return X with columns that carry nothing, equal rows, or more columns than rows; y, any q."""
    rng = np.random.default_rng([8, seed])
    n, d = int(rng.integers(8, 40)), int(rng.integers(3, 12))
    X = rng.normal(size=(n, d))
    X = (
        lambda: np.where(rng.random(d) < 0.4, rng.normal(), X),
        lambda: np.hstack([X, X[:, rng.integers(d, size=d // 2)]]),
        lambda: np.hstack([X, np.zeros((n, 2)), X @ rng.normal(size=(d, 3))]),
        lambda: rng.normal(size=(n, 2 * n)),
        lambda: X[rng.integers(5, size=n)],
    )[rng.integers(5)]()
    if (np.ptp(X, axis=0) > 0).sum() < 2:
        X[:, :2] = rng.normal(size=(n, 2))
    y = np.append(rng.integers(0, 4, size=n - 2), [0, 1])
    return X, y, int(rng.integers(1, X.shape[1]))
