"""The certificates of fits, against brute force."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import Figure, in_processes, say
from benchmarks.registry import figure
from benchmarks.studies.local_maxima import objection
from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask._types import Array
from ism_dask.kernels import Gaussian, Kernel, Linear, Multiquadric, Polynomial, Squared

_FITS, _ALIKE, _SHARE = 300, 20, 0.9
# Two ways to compute J, from 0 to 1, differ by less.
_SAME = 1e-6
Values = Callable[[Any, Array], Array]


def _squared_distances(Z: Array) -> Array:
    """Return the (n, n) squared distances between rows of Z (n, k)."""
    lengths = (Z**2).sum(axis=1)
    return np.asarray(np.maximum(lengths[:, None] + lengths - 2 * Z @ Z.T, 0))


def _gaussian(kernel: Any, Z: Array) -> Array:
    return np.asarray(np.exp(-_squared_distances(Z) / (2 * kernel.sigma**2)))


def _polynomial(kernel: Any, Z: Array) -> Array:
    return np.asarray((Z @ Z.T + kernel.offset) ** kernel.degree)


def _multiquadric(kernel: Any, Z: Array) -> Array:
    return np.asarray(-np.sqrt(_squared_distances(Z) + kernel.offset**2))


# Kernels of every kind, with f written once more.
_KERNELS: dict[str, tuple[Kernel, Values]] = {
    "gaussian": (Gaussian(), _gaussian),
    "gaussian, median": (Gaussian("median"), _gaussian),
    "gaussian, 0.5": (Gaussian(0.5), _gaussian),
    "gaussian, 1": (Gaussian(1.0), _gaussian),
    "gaussian, 4": (Gaussian(4.0), _gaussian),
    "polynomial, 2": (Polynomial(2, 1.0), _polynomial),
    "polynomial, 3": (Polynomial(3, 1.0), _polynomial),
    "homogeneous, 2": (Polynomial(2, 0.0), _polynomial),
    "multiquadric": (Multiquadric(0.5), _multiquadric),
    "linear": (Linear(), lambda _, Z: Z @ Z.T),
    "squared": (Squared(), lambda _, Z: -_squared_distances(Z)),
}


@dataclass(frozen=True)
class _Judged:
    """What one fit claims, and what brute force says against it."""

    kernel: str
    converged: bool
    certified: bool
    is_global: bool
    reason: str
    refutation: str


# The positive definite ones, which a regression can have.
_REGRESSIONS = (
    "gaussian",
    "gaussian, median",
    "gaussian, 1",
    "polynomial, 2",
    "polynomial, 3",
    "linear",
)


@figure
def certified() -> Figure:
    """300 fits of 30 to 80 rows: every certified W has to be a local maximum by brute force.

    X has 3 to 8 columns, in a third of the fits with a constant one or a copy; y holds classes,
    numbers or noise, and W has 1 to 3 columns. Brute force takes second differences of J at W, J at
    some hundred places nearby, and ascents that start nearby; if the certificate claims a global
    maximum, J of leading eigenvectors and of random W.
    """
    return _summary(_judge, tuple(_KERNELS))


@figure
def certified_predictions() -> Figure:
    """Measure `certified` for fits by prediction: 300 of the same problems, by `certify`.

    Brute force moves the weights of the features that a fit has chosen. A W that spans all of
    these has no free weight, and does not count as converged.
    """
    return _summary(_judge_prediction, _REGRESSIONS)


def _summary(judge: Callable[[int], _Judged], kernels: tuple[str, ...]) -> Figure:
    blocks = [(judge, first, min(_ALIKE, _FITS - first)) for first in range(0, _FITS, _ALIKE)]
    judged = [each for block in in_processes(_judge_fits, blocks) for each in block]
    refuted = [each for each in judged if each.refutation]
    for each in refuted:
        say(f"{each.kernel}: {each.refutation}")
    reasons = Counter(each.reason for each in judged if not each.certified)
    converged = [each for each in judged if each.converged]
    share = float(np.mean([each.certified for each in converged])) if converged else 0.0
    return {
        "fits": _FITS,
        "certified": sum(each.certified for each in judged),
        "certified_as_global": sum(each.is_global for each in judged),
        "refuted": len(refuted),
        "certified_share_of_converged": share,
        "table": [_line(name, judged) for name in kernels],
        "notes": [
            f"Not certified: {count} of {_FITS}, because {reason}"
            for reason, count in reasons.most_common()
        ],
        "must": f"no certified fit refuted; at least {_SHARE:.0%} of the converged fits certified",
        "met": not refuted and share >= _SHARE,
    }


def _line(name: str, judged: list[_Judged]) -> Figure:
    own = [each for each in judged if each.kernel == name]
    counts = {key: sum(getattr(each, key) for each in own) for key in ("converged", "certified")}
    refuted = sum(bool(each.refutation) for each in own)
    return {"kernel": name, "fits": len(own), **counts, "refuted": refuted}


def _judge_fits(judge: Callable[[int], _Judged], first: int, count: int) -> list[_Judged]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return [judge(seed) for seed in range(first, first + count)]


def _judge(seed: int) -> _Judged:
    name = list(_KERNELS)[seed % len(_KERNELS)]
    kernel, values = _KERNELS[name]
    X, y, target, q = _problem(seed)
    model = SupervisedIKDR(q, kernel=kernel, target=target).fit(X, y)
    Z, certificate = (X - model.mean_) / model.scale_, model.certify(X, y)
    Gamma = _label_dependence(y) if target == "classes" else _number_dependence(y)

    def objective(W: Array) -> float:
        return float((Gamma * values(model.kernel_, Z @ W)).sum())

    W, refutation = model.components_.T, ""
    if certificate.is_global:
        refutation = _larger_anywhere(objective, W)
    elif certificate.is_certified:
        refutation = objection(objective, W, certificate.distance, climb=True)
    return _outcome(name, model, refutation)


def _judge_prediction(seed: int) -> _Judged:
    name = _REGRESSIONS[seed % len(_REGRESSIONS)]
    kernel, values = _KERNELS[name]
    X, y, target, q = _problem(seed)
    model = PredictiveIKDR(q, kernel=kernel, target=target).fit(X, y)
    # The certificate is about the features that the fit has chosen.
    support, n = model.get_support(), len(y)
    Z = ((X - model.mean_) / model.scale_)[:, support]
    Gamma = _label_dependence(y) if target == "classes" else _number_dependence(y)
    Gamma *= n / np.trace(Gamma)
    # The ridge is a share of the mean kernel of a row with itself, for rows as long as in X W.
    share = np.sqrt(q / np.count_nonzero(Z.any(axis=0)))
    ridge = model.setting_.ridge * float(np.diag(values(model.kernel_, Z * share)).mean())

    def objective(W: Array) -> float:
        features = Z @ W if model.scales_ is None else Z @ W @ model.scales_
        system = values(model.kernel_, features) + n * ridge * np.eye(n)
        return float(1.0 - ridge * np.trace(np.linalg.solve(system, Gamma)))

    W, refutation = model.components_[:, support].T, ""
    certificate = model.certify(X, y)
    if abs(objective(W) - model.objective_) > _SAME:
        refutation = f"J is {model.objective_:.6g}, by brute force {objective(W):.6g}"
    elif certificate.is_certified:
        refutation = objection(objective, W, certificate.distance, climb=True)
    return _outcome(name, model, refutation)


def _outcome(name: str, model: SupervisedIKDR, refutation: str) -> _Judged:
    certificate = model.certificate_
    is_free = np.count_nonzero(model.components_.any(axis=0)) > len(model.components_)
    return _Judged(
        name,
        bool(model.converged_ and is_free),
        certificate.is_certified,
        certificate.is_global,
        certificate.reason.removeprefix("not certified: ").split(":")[0].split(". ")[0],
        refutation,
    )


def _problem(seed: int) -> tuple[Array, Array, str, int]:
    """Return X, y, the kind of y and the number of new features."""
    rng = np.random.default_rng([22, seed])
    n, d = int(rng.integers(30, 81)), int(rng.integers(3, 9))
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    kind = rng.integers(6)
    if kind == 0:
        X[:, -1] = 1.0
    elif kind == 1:
        X[:, -1] = X[:, 0]
    score = X[:, 0] + 0.5 * X[:, 1] ** 2 + rng.normal(size=n)
    target = ("classes", "numbers", "noise")[rng.integers(3)]
    q = int(rng.integers(1, min(4, d - 1)))
    if target == "numbers":
        return X, score, "linear", q
    if target == "noise":
        score = rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, [0.3, 0.6])), "classes", q


def _label_dependence(y: Array) -> Array:
    """Return `H K_Y H` (n, n) of labels y, for the matrix K_Y that is 1 where labels are equal."""
    same = (y[:, None] == y).astype(float)
    means = same.mean(axis=0)
    return np.asarray(same - means[:, None] - means + means.mean())


def _number_dependence(y: Array) -> Array:
    Z = (y - y.mean()) / y.std()
    return np.outer(Z, Z)


def _larger_anywhere(objective: Callable[[Array], float], W: Array) -> str:
    """Return "" if J of 200 random W (d, q) is no larger than that of this one."""
    rng, J = np.random.default_rng(0), objective(W)
    others = (objective(np.linalg.qr(rng.normal(size=W.shape))[0]) for _ in range(200))
    highest = max(others)
    return f"a random W has a larger J, {highest:.4g}" if highest > J * (1 + 1e-9) else ""
