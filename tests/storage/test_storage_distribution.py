"""Distributions of columns: the index of how far new rows are away."""

import numpy as np
import pytest

from storage.distribution import Distribution


def test_the_index_by_its_definition():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=4_000), rng.normal(0.5, 1.5, size=3_000)
    slack = 0.05 * old.std()
    deciles = np.quantile(old, np.arange(1, 10) / 10)
    limits = [-np.inf, old.min() - slack, *(deciles + slack), old.max() + slack, np.inf]
    e, a = (np.histogram(each, limits)[0] / len(each) for each in (old, new))
    e, a = np.maximum(e, 0.5 / 4_000), np.maximum(a, 0.5 / 3_000)
    chance = (11 + 4 * np.sqrt(22)) * (1 / 4_000 + 1 / 3_000)
    expected = ((a - e) * np.log(a / e)).sum() - chance
    index = Distribution.from_rows(old[:, None]).instability(new[:, None])
    assert index == pytest.approx([expected], rel=0.01)


@pytest.mark.parametrize("n", [80, 400, 2_000])
def test_rows_of_the_same_kind_are_stable(n):
    rng = np.random.default_rng(n)

    def rows():
        normal, skewed = rng.normal(size=(n, 40)), rng.exponential(size=(n, 40))
        return np.column_stack([normal, skewed, rng.poisson(1.0, size=(n, 40)), normal > 1.0])

    found = [Distribution.from_rows(rows()).instability(rows()) for _ in range(5)]
    assert np.mean(np.array(found) > 0) < 0.01
    assert np.max(found) < 0.25
    shifted = rows()
    assert (Distribution.from_rows(shifted).instability(shifted + 2.0) > 0.25).all()


def test_rare_levels_constants_and_another_precision():
    rng = np.random.default_rng(1)
    level, constant = rng.random(1_000) < 0.02, np.full(1_000, 3.0)
    old = np.column_stack([level, constant, rng.normal(size=1_000)])
    assert (Distribution.from_rows(old.astype(np.float32)).instability(old) == 0).all()
    more, lower = rng.random(1_000) < 0.3, constant - 1e-3
    assert (Distribution.from_rows(old).instability(old + 0.04 * old.std(axis=0)) == 0).all()
    moved = Distribution.from_rows(old).instability(
        np.column_stack([more, lower, old[:, 2] * 1000])
    )
    assert (moved > 0.25).all()
