"""The test of independence: its level, and its power beside others."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.measure import Figure, say
from benchmarks.registry import figure, long_figure
from ism_dask import dependence_test

Array = np.ndarray[Any, Any]
Design = Callable[[np.random.Generator, int], tuple[Array, Array]]

_NULLS, _NULL_ROWS, _PERMUTATIONS = 1000, 100, 199
_DRAWS, _ROWS = 100, 60
# The relations of hyppo that its own examples compare tests on; the last one is independence.
_RELATIONS = (
    "linear", "exponential", "cubic", "joint_normal", "step", "quadratic", "w_shaped", "spiral",
    "uncorrelated_bernoulli", "logarithmic", "fourth_root", "sin_four_pi", "sin_sixteen_pi",
    "square", "two_parabolas", "circle", "ellipse", "diamond", "multimodal_independence",
)  # fmt: skip
_NOISELESS = ("uncorrelated_bernoulli", "multimodal_independence")


@figure
def level() -> Figure:
    """Independent X and y, 1,000 draws of 100 rows: how often the test rejects at 5%."""
    lines = []
    for name, design in _NULLS_BY_NAME.items():
        for kernel in ("gaussian", "distance"):
            line: dict[str, Any] = {"rows": name, "kernel": kernel}
            for method, count in (("moments", 0), ("permutations", _PERMUTATIONS)):
                rng, how = np.random.default_rng(0), {"kernel": kernel, "n_permutations": count}
                draws = (design(rng, _NULL_ROWS) for _ in range(_NULLS))
                tests = [dependence_test(*each, **how, random_state=0) for each in draws]
                line[method] = np.mean([each.pvalue <= 0.05 for each in tests])
            say(f"{name}, {kernel}: {line['moments']:.3f}, {line['permutations']:.3f}")
            lines.append(line)
    shares = [line[method] for line in lines for method in ("moments", "permutations")]
    return {
        "rejected": [float(min(shares)), float(max(shares))],
        "table": lines,
        "must": "between 4 and 6%",
        "met": all(0.04 <= share <= 0.06 for share in shares),
    }


@long_figure
def power() -> Figure:
    """19 relations of hyppo, 60 rows, 100 draws: how often tests reject at 5%, and milliseconds.

    hyppo and dcor are compared if they are installed (`pip install hyppo dcor`).
    """
    simulate = import_module("hyppo.tools").indep_sim
    tests = _tests()
    lines = []
    spent = dict.fromkeys(tests, 0.0)
    for relation in _RELATIONS:
        found: dict[str, list[bool]] = {name: [] for name in tests}
        noise = {} if relation in _NOISELESS else {"noise": True}
        for seed in range(_DRAWS):
            np.random.seed(seed)  # noqa: NPY002 - hyppo draws from it
            x, y = simulate(relation, _ROWS, 1, **noise)
            for name, test in tests.items():
                began = time.perf_counter()
                found[name].append(test(x, y[:, 0], seed) <= 0.05)
                spent[name] += time.perf_counter() - began
        lines.append(
            {"relation": relation, **{name: np.mean(each) for name, each in found.items()}}
        )
        say(", ".join(f"{key} {value}" for key, value in lines[-1].items()))
    means = {name: np.mean([line[name] for line in lines[:-1]]) for name in tests}
    count = len(_RELATIONS) * _DRAWS
    return {
        "table": [
            *lines,
            {"relation": "mean of the first 18", **means},
            {"relation": "milliseconds", **{name: 1e3 * s / count for name, s in spent.items()}},
        ],
        "must": "mean power of the default at least that of every other test",
        "met": means["ism_dask gaussian"] >= max(means.values()),
    }


def _normal(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rng.normal(size=(n, 3)), rng.normal(size=n)


def _clustered(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    centres = 5.0 * rng.normal(size=(5, 3))
    return centres[rng.integers(0, 5, n)] + rng.normal(size=(n, 3)), rng.integers(0, 3, n)


def _heavy(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rng.standard_t(1.5, size=(n, 3)), rng.standard_t(2.0, size=n)


def _wide(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rng.normal(size=(n, 50)), rng.integers(0, 4, n)


_NULLS_BY_NAME: dict[str, Design] = {
    "normal": _normal,
    "clustered, classes": _clustered,
    "heavy tails": _heavy,
    "50 columns, classes": _wide,
}


def _tests() -> dict[str, Callable[[Array, Array, int], float]]:
    """Return functions that return the p-value of x (n, 1) and y (n,), with 199 permutations."""
    options = {"target": "multiscale", "n_permutations": _PERMUTATIONS}
    independence, dcor = import_module("hyppo.independence"), import_module("dcor")

    def ours(kernel: str) -> Callable[[Array, Array, int], float]:
        return lambda x, y, seed: (
            dependence_test(x, y, kernel=kernel, random_state=seed, **options).pvalue
        )

    def theirs(test: Any) -> Callable[[Array, Array, int], float]:
        reps = {"reps": _PERMUTATIONS, "workers": 1, "auto": False}
        return lambda x, y, seed: float(test().test(x, y[:, None], random_state=seed, **reps)[1])

    def distance_covariance(x: Array, y: Array, seed: int) -> float:
        test = dcor.independence.distance_covariance_test
        found = test(x, y[:, None], num_resamples=_PERMUTATIONS, random_state=seed)
        return float(found.pvalue)

    return {
        "ism_dask gaussian": ours("gaussian"),
        "ism_dask distance": ours("distance"),
        "hyppo Hsic": theirs(independence.Hsic),
        "hyppo Dcorr": theirs(independence.Dcorr),
        "dcor": distance_covariance,
    }
