"""Random blocks of pairs, held against the definition by all their draws, or by many of them."""

from __future__ import annotations

from dataclasses import replace

import dask
import numpy as np
import pytest
from definition import Dense, dense_gamma
from sklearn.exceptions import ConvergenceWarning

from ism_dask import SupervisedIKDR
from ism_dask.engines import BlockEngine, Blocks, Problem, first_engine, random_pairs
from ism_dask.engines.random_blocks import _PairPlan
from ism_dask.engines.random_pairs import PairDesign
from ism_dask.gamma.base import GAMMA_FACTS, Dependence, ThinGamma
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Gaussian, Multiquadric, Polynomial, RelativeGaussian
from ism_dask.records.stopping_rule import RESIDUAL, Stopping
from ism_dask.rows.shards import cut
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.status import Status

N, D, Q = 60, 4, 2
USUAL = random_pairs._GROUP_ROWS
RNG = np.random.default_rng(11)
X = RNG.normal(size=(N, D))
W = np.linalg.qr(RNG.normal(size=(D, Q)))[0]
SORTED = np.repeat([0, 1, 2], [30, 28, 2])  # by class, one of them rare
DEPENDENCES = {
    "sorted classes, one rare": target_dependence(SORTED),
    "indefinite": Dependence(ThinGamma(np.array([1.0, -1.0, 0.5])), RNG.normal(size=(N, 3))),
    "gaussian": target_dependence(RNG.normal(size=N), "gaussian"),
}
LOCAL = RelativeGaussian(3) + 0.5 * RelativeGaussian(5) + Polynomial(2)
KERNELS = {"multiquadric": Multiquadric(0.5), "local and inner": LOCAL.resolve(X)}


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    monkeypatch.setattr(random_pairs, "_GROUP_ROWS", 5)


def _blocks(kernel, gamma, rows, partners=12, seed=0, tol=1e-4):
    problem = Problem.from_dependence(cut(X, rows), KERNELS[kernel], DEPENDENCES[gamma], seed=seed)
    engine = BlockEngine(problem, Q, tol)
    engine._plan = _PairPlan(problem, Q, tol, partners)
    return engine


def _draws(engine):
    """Yield the engine with each pair of shards and each shift there can be, all alike likely."""
    design = engine._plan.design
    assert engine._plan.tangent is not None or not hasattr(engine.problem.gamma, "signs")
    steps = range(1) if design.whole else range(design.count)
    for step in steps:
        partners = design.partners if design.whole else (design.partners + step) % design.count
        for shift in range(design.groups):
            firsts = (design.firsts + shift) % design.groups
            engine._plan.__dict__["design"] = replace(design, partners=partners, firsts=firsts)
            yield engine


@pytest.mark.parametrize("rows", [60, 13, 8])
@pytest.mark.parametrize("gamma", sorted(DEPENDENCES))
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_the_mean_over_all_draws_is_the_definition(kernel, gamma, rows):
    dense = Dense(X, dense_gamma(DEPENDENCES[gamma]), KERNELS[kernel])
    engine = _blocks(kernel, gamma, rows)
    assert not engine._plan.design.is_complete
    drawn = [(each.phi(W), each.product(W), each.value(W)) for each in _draws(engine)]
    assert np.ptp([phi.objective for phi, _, _ in drawn]) > 0
    near = {"rtol": 1e-9, "atol": 1e-9 * np.abs(dense.phi(W)).max()}
    np.testing.assert_allclose(np.mean([phi.phi for phi, _, _ in drawn], 0), dense.phi(W), **near)
    for phi, product, value in drawn:
        np.testing.assert_allclose(product.product, phi.phi @ W, **near)
        assert product.objective == pytest.approx(phi.objective)
        assert value.objective == pytest.approx(phi.objective)
    means = [np.mean([each.objective for each in side]) for side in zip(*drawn, strict=True)]
    assert means == pytest.approx([dense.objective(W)] * 3, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3, 12, 23])
def test_each_pair_of_shards_is_drawn_as_often_on_average(count):
    shards = cut(np.zeros((10 * count, 1)), 10)
    met = np.zeros((count, count))
    draws = 400
    for seed in range(draws):
        design = PairDesign.of(shards, 6, seed)
        for head in range(count):
            for tail in design.tails[head]:
                met[head, tail] += sum(design.weight(each) for each in design.between(head, tail))
                assert len(design.between(head, tail)) == len(design.between(tail, head))
    # Each is weighed by its groups, of which one in `expected` is drawn.
    expected = design.groups / design.shifts
    off = np.abs(met / draws - expected)
    assert off.max() <= (1e-12 if design.whole else 6 * expected * np.sqrt(count / draws / 2))
    assert np.abs(met.sum(axis=0) - met.sum(axis=1)).max() < 1e-6


@pytest.mark.parametrize("rows", [60, 13])
def test_twice_phi_w_is_the_gradient_of_the_objective_of_the_blocks(rows):
    engine, h = _blocks("local and inner", "indefinite", rows), 1e-5
    numerical = np.empty_like(W)
    for index in np.ndindex(W.shape):
        step = np.zeros_like(W)
        step[index] = h
        up, down = engine.objective(W + step), engine.objective(W - step)
        numerical[index] = (up - down) / (2 * h)
    analytic = 2 * engine.gradient(W).product
    np.testing.assert_allclose(analytic, numerical, rtol=1e-6, atol=1e-6 * np.abs(analytic).max())


@pytest.mark.parametrize("gamma", sorted(DEPENDENCES))
def test_all_pairs_are_the_exact_engine(gamma):
    blocks = _blocks("local and inner", gamma, 13, partners=N)
    exact = first_engine("exact", blocks.problem, Q)
    assert blocks._plan.design.is_complete
    assert blocks.finer() is None
    evaluation, expected = blocks.phi(W), exact.phi(W)
    np.testing.assert_allclose(evaluation.phi, expected.phi, rtol=1e-9, atol=1e-9)
    assert evaluation.objective == pytest.approx(expected.objective, rel=1e-11)
    assert evaluation.error < 1e-9
    assert evaluation.standard_error == 0.0


@pytest.mark.parametrize("rows", [60, 20, 8])
def test_the_standard_error_is_what_draws_differ_by(rows):
    errors, values = [], []
    for seed in range(60):
        evaluation = _blocks("multiquadric", "sorted classes, one rare", rows, 15, seed).value(W)
        assert evaluation.error == np.inf
        errors.append(evaluation.standard_error * abs(evaluation.objective))
        values.append(evaluation.objective)
    said = np.sqrt(np.mean(np.square(errors)))
    assert 0.6 * np.std(values) < said < 2.0 * np.std(values)


def test_any_number_of_workers_gives_the_same_bits():
    def answers():
        engine = _blocks("multiquadric", "indefinite", 8)
        return [engine.phi(W).phi, engine.product(W).product, engine.value(W).objective]

    here = answers()
    for workers in (1, 3):
        with dask.config.set(num_workers=workers):
            for one, other in zip(here, answers(), strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_smaller_tolerance_takes_more_pairs_and_finer_ends():
    plans = [_blocks("multiquadric", "gaussian", 8, None, tol=t)._plan for t in (0.1, 1e-3)]
    assert plans[0].needed(W) <= plans[1].needed(W)
    engine = _blocks("multiquadric", "gaussian", 8, 6, tol=1e-8)
    partners = []
    while engine is not None:
        engine.phi(W)
        partners.append(engine.partners_per_row)
        engine = engine.finer()
    assert len(partners) > 1
    assert partners == sorted(partners)
    assert partners[-1] == N


def test_groups_have_their_share_of_each_class():
    shards = cut(X, 30).with_rows(GAMMA_FACTS, SORTED[:, None])
    design = PairDesign.of(shards, 6, 0)
    dealt = design.dealt(shards.load_rows(np.arange(30, 60)))
    edges = design.edges(30)
    counts = [
        np.bincount(part[:, 0], minlength=3)
        for part in np.split(dealt.facts[GAMMA_FACTS], edges[1:-1])
    ]
    assert np.ptp(counts, axis=0).max() <= 1
    assert sorted(map(tuple, dealt.X)) == sorted(map(tuple, X[30:]))


def test_a_fit_ends_near_that_of_all_pairs(monkeypatch):
    monkeypatch.setattr(random_pairs, "_GROUP_ROWS", 50)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 6))
    y = (rows[:, 0] ** 2 + rows[:, 1] ** 2 > 1.4).astype(int)
    fits = {
        engine: SupervisedIKDR(2, kernel=Gaussian(1.5), engine=engine).fit(rows, y)
        for engine in ("blocks", "exact")
    }
    one, other = (each.components_.T @ each.components_ for each in fits.values())
    assert np.linalg.norm(one - other, 2) < 0.1
    blocks = fits["blocks"]
    assert blocks.status_ in (Status.CONVERGED, Status.APPROXIMATE)
    assert blocks.engine_standard_error_ == 0.0  # J is that of all pairs at last
    assert blocks.objective_ == pytest.approx(fits["exact"].objective_, rel=1e-2)
    assert blocks.residual_rows_ == 2000


@pytest.mark.long
def test_many_shards_begin_with_some(monkeypatch):
    monkeypatch.setattr(random_pairs, "_GROUP_ROWS", 50)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6400, 5))
    y = (rows[:, 0] ** 2 + rows[:, 1] ** 2 > 1.4).astype(int)
    rows, y = rows[np.argsort(y)], np.sort(y)
    # With few pairs: what counts is where the search begins, and that it comes to an end.
    problem = Problem.from_dependence(cut(rows, 100), Gaussian(1.5), target_dependence(y))
    coarse = BlockEngine(problem, 2).coarser()
    assert coarse.problem.shards.n_rows == 1600
    assert coarse.problem.shards.bounds[:3] == (0, 100, 200)
    assert coarse.coarser() is None
    np.testing.assert_array_equal(coarse.problem.shards.rows(np.arange(1500, 1600)), rows[6300:])
    _, solution = MultistartSearch(Blocks(tol=1e-2), Stopping(None)).run(problem, 2)
    assert solution.status in (Status.CONVERGED, Status.APPROXIMATE)


@pytest.fixture
def usual_groups(_small_groups, monkeypatch):
    """Groups as they are outside of these tests, for which rows are many enough."""
    monkeypatch.setattr(random_pairs, "_GROUP_ROWS", USUAL)


def _sum_of_squares(n):
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, 8))
    return rows, (rows[:, 0] + rows[:, 1]) ** 2 + 0.5 * rng.normal(size=n)


@pytest.mark.long
@pytest.mark.usefixtures("usual_groups")
def test_few_rows_stand_for_all_with_what_is_known_of_them():
    rows, y = _sum_of_squares(40_000)
    known = target_dependence(y, "gaussian")
    problem = Problem.from_dependence(cut(rows, 5000), Gaussian(1.5), known)
    coarse = BlockEngine(problem, 1).coarser()
    few = coarse.problem.shards
    assert few.n_rows < 20_000
    numbers = np.searchsorted(np.sort(rows[:, 0]), few.rows(np.arange(few.n_rows))[:, 0])
    order = np.argsort(rows[:, 0])[numbers]
    drawn = few.load_rows(np.arange(few.n_rows)).facts[GAMMA_FACTS]
    np.testing.assert_array_equal(drawn, known.facts[order])
    W = np.eye(8)[:, :1]
    share = (few.n_rows / len(rows)) ** 2
    whole = first_engine("exact", problem, 1).objective(W)
    assert coarse.objective(W) == pytest.approx(share * whole, rel=0.05)


@pytest.mark.usefixtures("usual_groups")
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Multiquadric(0.2)])
def test_the_resolution_is_the_residual_that_other_pairs_make(kernel):
    rows, y = _sum_of_squares(20_000)
    problem = Problem.from_dependence(cut(rows, 2500), kernel, target_dependence(y, "gaussian"))
    W = np.eye(8)[:, :2]
    engines = []
    for seed in range(6):
        engine = BlockEngine(replace(problem, seed=seed), 2)
        engine._plan = _PairPlan(engine.problem, 2, 1e-4, 1000)
        engines.append(engine)
    products = np.array([engine.product(W).product for engine in engines])
    off = products - products.mean(axis=0)
    off -= W @ (W.T @ off)
    seen = np.sqrt((off**2).sum(axis=(1, 2)).sum() / 5) / np.linalg.norm(products[0])
    assert 0.7 * seen <= engines[0].resolution(W) <= 4 * seen


@pytest.mark.long
@pytest.mark.usefixtures("usual_groups")
def test_a_default_fit_of_many_rows_ends_at_the_noise_of_its_pairs():
    rows, y = _sum_of_squares(10_000)
    with pytest.warns(ConvergenceWarning, match="noise of the blocks"):
        model = SupervisedIKDR(1).fit(rows, y)
    truth = np.array([1.0, 1.0] + [0.0] * 6) / np.sqrt(2)
    assert model.engine_ == "blocks"
    assert model.status_ is Status.APPROXIMATE
    assert RESIDUAL < model.tolerance_ < 1  # what the noise allows was in force
    assert model.history_[-1].residual <= model.tolerance_
    assert abs(model.components_[0] @ truth) > 0.999
    assert len(model.history_) < 50
