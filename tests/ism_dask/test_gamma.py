from __future__ import annotations

import numpy as np
import pytest
from definition import centred, dense_gamma

from ism_dask.gamma import FactoredGamma
from ism_dask.targets import TARGETS, dependence

RNG = np.random.default_rng(1)
LABELS = RNG.choice(["ant", "bee", "cat"], size=31)
NUMBERS = RNG.normal(size=31)
MANY = RNG.normal(size=(31, 3))


def _one_hot(labels):
    return (labels[:, None] == np.unique(labels)).astype(float)


def _standardised(y):
    y = y.reshape(len(y), -1)
    return (y - y.mean(axis=0)) / y.std(axis=0)


def _gaussian(y):
    U = _standardised(y)
    distances = np.linalg.norm(U[:, None] - U, axis=-1)
    sigma = np.median(distances[np.triu_indices(len(U), 1)])
    return np.exp(-(distances**2) / (2 * sigma**2))


@pytest.mark.parametrize(
    ("target", "y", "K"),
    [
        ("classes", LABELS, _one_hot(LABELS) @ _one_hot(LABELS).T),
        ("linear", NUMBERS, _standardised(NUMBERS) @ _standardised(NUMBERS).T),
        ("linear", MANY, _standardised(MANY) @ _standardised(MANY).T),
        ("gaussian", NUMBERS, _gaussian(NUMBERS)),
        ("gaussian", MANY, _gaussian(MANY)),
    ],
)
def test_gamma_is_the_centred_kernel_of_y(target, y, K):
    np.testing.assert_allclose(dense_gamma(dependence(y, target)), centred(K), atol=1e-12)


@pytest.mark.parametrize(
    ("target", "y"), [("classes", LABELS), ("linear", NUMBERS), ("linear", MANY)]
)
def test_factors_multiply_to_gamma(target, y):
    known = dependence(y, target)
    assert isinstance(known.gamma, FactoredGamma)
    U = known.gamma.factor(known.facts)
    np.testing.assert_allclose((U * known.gamma.signs) @ U.T, dense_gamma(known), atol=1e-12)


def test_auto_tells_labels_from_numbers():
    assert dependence(LABELS).classes.tolist() == ["ant", "bee", "cat"]
    assert dependence(np.arange(31) % 3).classes.tolist() == [0, 1, 2]
    assert dependence(NUMBERS).classes is None
    assert dependence(MANY).classes is None


@pytest.mark.parametrize("value", [0.1, 0.3, 1e9 / 3])
@pytest.mark.parametrize("n", [100, 300, 777])
def test_constant_numbers_are_found_whatever_their_rounding(value, n):
    with pytest.raises(ValueError, match="`y` is constant"):
        dependence(np.full(n, value), "linear")
    with pytest.raises(ValueError, match="column 1 of `y` is constant"):
        dependence(np.column_stack([np.arange(n), np.full(n, value)]), "linear")


def test_numbers_taken_for_classes_are_refused():
    with pytest.raises(ValueError, match=r'60 different labels for 60 rows.*target="linear"'):
        dependence(np.arange(60))


def test_bad_targets():
    with pytest.raises(ValueError, match=r"one class only .*ant"):
        dependence(np.array(["ant"] * 5))
    with pytest.raises(ValueError, match="auto, classes, linear, gaussian; got 'cubic'"):
        dependence(LABELS, "cubic")
    for target in sorted(set(TARGETS) - {"classes"}):
        with pytest.raises(ValueError, match="`y` must be numbers"):
            dependence(LABELS, target)
        with pytest.raises(ValueError, match="constant"):
            dependence(np.ones(9), target)
    with pytest.raises(ValueError, match="one label for each row"):
        dependence(MANY, "classes")
